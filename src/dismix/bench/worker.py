"""What a worker does with a job: plain values in, a record on disk, a few words back.

Every engine calls `run_job`, in whatever process; so the same plan leaves the same records.
"""

import shutil
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dismix.atomic import disk_is_full
from dismix.bench.durations import own_seconds
from dismix.bench.folder import BenchFolder
from dismix.progress import Progress

FORMAT = 1
TRIES = 3
"""A run that broke off this often, or whose worker died as often, is kept as failed."""
Job = dict[str, Any]
Outcome = dict[str, Any]


def run_job(job: Job, progress: Progress | None = None) -> Outcome:
    """Do a job, unless it is done or somebody else is at it.

    Args:
        job: {"type": "run" or "generator", "spec", "generator", "folder", "work", "cpu", "keep",
            "retry", "at_once": how many jobs the engine does side by side}.
        progress: Called while it computes.

    Returns:
        {"type", "id", "status": "done", "failed", "known", "elsewhere" or "stopped", "seconds",
        "error"}; "stopped": the disk is full, which is no fault of the run.
    """
    folder = BenchFolder(job["folder"], job.get("work"))
    try:
        if job["type"] == "generator":
            return _generator(folder, job, progress)
        return _run(folder, job, progress)
    except Exception as error:
        if not disk_is_full(error):
            raise
        return _outcome(job, job_id(job), "stopped", error=_line(error))


def tried(job: Job, progress: Progress | None = None) -> Outcome:
    """Do a job far from whoever runs the study: what breaks it off comes back as "broken".

    Args:
        job: See `run_job`.
        progress: Called while it computes.

    Returns:
        What `run_job` does, or the traceback as the error of a job that is "broken": of what no
        run is to blame for, such as a folder that cannot be read for a while.
    """
    try:
        return run_job(job, progress)
    except Exception:
        folder = BenchFolder(job["folder"], job.get("work"))
        error = _placeless(traceback.format_exc(), folder)
        return _outcome(job, job_id(job), "broken", error=error)


def job_id(job: Job) -> str:
    """Return the id of a job's run, or of its generator."""
    return str((job["generator"] if job["type"] == "generator" else job["spec"])["id"])


def _run(folder: BenchFolder, job: Job, progress: Progress | None) -> Outcome:
    name = job["spec"]["id"]
    with folder.try_lock(f"run-{name}") as mine:
        if not mine:
            return _outcome(job, name, "elsewhere")
        status = folder.status(name)
        if status == "done" or (status == "failed" and not job.get("retry")):
            return _outcome(job, name, "known")
        if status == "failed":
            # What is left of the failed try is not to be gone on from.
            shutil.rmtree(folder.work_dir(name), ignore_errors=True)
        folder.note("started", name)
        record = _record(folder, job, progress)
        folder.write_record(record)
        if record["status"] == "done" and not job.get("keep"):
            # Only now: where the record cannot be written, the next try goes on from here.
            shutil.rmtree(folder.work_dir(name), ignore_errors=True)
        folder.note(record["status"], name)
    return _outcome(job, name, record["status"], own_seconds(record), record["error"])


def _generator(folder: BenchFolder, job: Job, progress: Progress | None) -> Outcome:
    from dismix.bench.artifacts import ensure_generator

    name = job["generator"]["id"]
    try:
        done = ensure_generator(folder, job["generator"], cpu=bool(job["cpu"]), progress=progress)
    except Exception as error:
        if disk_is_full(error):
            raise
        return _outcome(job, name, "failed", error=_line(error))
    return _outcome(job, name, "done", done["seconds"])


def _outcome(
    job: Job, name: str, status: str, seconds: float | None = None, error: str | None = None
) -> Outcome:
    return {
        "type": job["type"], "id": name, "status": status, "seconds": seconds, "error": error,
    }  # fmt: skip


def _record(folder: BenchFolder, job: Job, progress: Progress | None) -> dict[str, Any]:
    error, found = None, dict[str, Any]()
    try:
        found = _measured(folder, job, progress)
    except Exception as raised:
        if disk_is_full(raised):
            raise
        error = _placeless(traceback.format_exc(), folder)
        _free_memory()
    return _assembled(job, found, error)


def _assembled(
    job: Mapping[str, Any], found: Mapping[str, Any], error: str | None
) -> dict[str, Any]:
    """Return a whole record; what was not measured is None."""
    spec = job["spec"]
    measured = dict.fromkeys(("wall_s", "generator_s", "images_seen", "peak_memory_mib"))
    return {
        "format": FORMAT, "id": spec["id"], "kind": spec["kind"], "plan": spec["plan"],
        "status": "done" if error is None else "failed", "factors": spec["factors"],
        "config": spec["config"], "seed": spec["seed"],
        "provenance": _provenance(cpu=bool(job["cpu"])), "at_once": job["at_once"], **measured,
        "metrics": {}, "predictions": None, **found, "error": error,
    }  # fmt: skip


def _measured(
    folder: BenchFolder, job: Mapping[str, Any], progress: Progress | None
) -> dict[str, Any]:
    from dismix.bench.warm import WARM

    kind = job["spec"]["kind"]
    if kind == "grader":
        from dismix.bench.grader_runs import run_grader

        return run_grader(folder, job, WARM, progress)
    if kind == "generator":
        from dismix.bench.generator_runs import run_generator

        return run_generator(folder, job, progress)
    from dismix.bench.overhead_runs import run_overhead

    return run_overhead(folder, job, WARM, progress)


def _placeless(text: str, folder: BenchFolder) -> str:
    """Return a traceback without this machine's folders: records are shown to others."""
    import dismix

    package = Path(dismix.__file__).parents[1]
    for place, name in ((folder.root, "BENCH"), (folder.work, "WORK"), (package, "")):
        text = text.replace(f"{place}/", f"{name}/" if name else "")
    return text.replace(f"{sys.prefix}/", "").replace(f"{Path.home()}/", "~/")


def _provenance(*, cpu: bool) -> dict[str, Any]:
    from dismix.bench.warm import WARM

    return WARM.provenance(cpu=cpu)


def _free_memory() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def lost_record(job: Job, reason: str) -> Outcome:
    """Write the record of a run that broke off, or whose worker died, again and again.

    A generator that has not ended by then is kept as failed too: other runs that need it would
    only lose their workers in the same way.

    Args:
        job: See `run_job`.
        reason: What is known of that.
    """
    from dismix.bench.artifacts import generator_done, keep_lost

    folder, spec = BenchFolder(job["folder"], job.get("work")), job["spec"]
    if job["generator"] is not None:
        keep_lost(folder, job["generator"]["id"], reason)
    if job["type"] == "generator":
        name = job["generator"]["id"]
        if (done := generator_done(folder, name)) is not None:
            # It died after its work was done.
            return _outcome(job, name, "done", done["seconds"])
        return _outcome(job, name, "failed", error=reason)
    with folder.lock(f"run-{spec['id']}"):
        if folder.status(spec["id"]) == "done":
            # It died after its work was done.
            return _outcome(job, spec["id"], "known")
        folder.write_record(_assembled(job, {}, reason))
        folder.note("failed", spec["id"])
    return _outcome(job, spec["id"], "failed", error=reason)
