"""Runs what is missing of a study; finished runs are never repeated."""

import contextlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dismix import atomic
from dismix.bench.artifacts import forget_failures, generator_done, refuse_leaks
from dismix.bench.durations import (
    Durations,
    estimated_generator_seconds,
    estimated_seconds,
    in_words,
)
from dismix.bench.engines import Engine, Hooks, make_engine
from dismix.bench.folder import BenchFolder
from dismix.bench.specs import RunSpec, Study
from dismix.bench.worker import Job, Outcome
from dismix.errors import DisMixError
from dismix.progress import Progress

PLANNED = "planned.json"
_MARGIN = 1.15


@dataclass
class Summary:
    """What became of a study's runs.

    Attributes:
        done: Runs with a record, now or before.
        ran: Those that this call ran.
        failed: Runs kept as failed.
        left: Runs that were not started, or are in flight elsewhere.
        blocked: Runs that cannot run here.
        errors: A line for each failure of this call.
    """

    done: int = 0
    ran: int = 0
    failed: int = 0
    left: int = 0
    blocked: int = 0
    errors: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        words = f"{self.done} done ({self.ran} now), {self.failed} failed, {self.left} left"
        return words + (f", {self.blocked} cannot run here" if self.blocked else "")


def run_study(
    study: Study,
    folder: BenchFolder,
    engine: Engine | None = None,
    *,
    retry_failed: bool = False,
    minutes: float | None = None,
    cpu: bool = False,
    keep: bool = False,
    cost: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Run what is missing.

    Args:
        study: From `dismix.bench.resolve.resolve`.
        folder: Where everything is kept.
        engine: Who computes; this process when None.
        retry_failed: Also run what failed before.
        minutes: Start nothing that, by the mean of the runs so far and the plan's cost of
            generators to be trained, would end later than this.
        cpu: Do not use a GPU.
        keep: Keep the trained graders, below ``work``.
        cost: The plan's, for the first estimate of the time left.
        progress: Called when a run starts or ends.

    Raises:
        DisMixError: A given generator was trained on images that runs validate or test on.
    """
    todo = [run for run in study.runs if _wanted(run, folder, retry_failed)]
    refuse_leaks(study, todo, folder)
    note_plan(study, folder)
    engine = engine or make_engine()
    if retry_failed:
        forget_failures(folder, [*study.generators])
    options = {
        "folder": str(folder.root), "work": str(folder.work), "cpu": cpu, "keep": keep,
        "retry": retry_failed, "at_once": min(engine.at_once, max(1, len(todo))),
    }  # fmt: skip
    jobs = _jobs(study, todo, folder, options, parallel=engine.at_once > 1)
    watch = _Watch(study, folder, todo, engine.at_once, minutes, cost or {}, progress)
    engine.run(jobs, Hooks(watch.may_start, watch.started, watch.ended, progress))
    return _summary(study, folder, watch)


def _wanted(run: RunSpec, folder: BenchFolder, retry_failed: bool) -> bool:
    if run.blocked is not None:
        return False
    status = folder.status(run.id)
    return status == "missing" or (status == "failed" and retry_failed)


def _jobs(
    study: Study,
    todo: list[RunSpec],
    folder: BenchFolder,
    options: Mapping[str, Any],
    *,
    parallel: bool,
) -> list[Job]:
    """Return plain jobs; side by side, generators come first, and runs that need none next."""

    def described(name: str | None) -> dict[str, Any] | None:
        if name is None:
            return None
        spec = study.generators[name]
        return {
            "id": spec.id, "data": spec.data, "local": dict(spec.local),
            "described": dict(spec.described),
        }  # fmt: skip

    runs = [
        {"type": "run", "spec": run.to_dict(), "generator": described(run.generator), **options}
        for run in todo
    ]
    if not parallel:
        return runs
    names = dict.fromkeys(run.generator for run in todo if run.generator is not None)
    builds = [
        {"type": "generator", "spec": None, "generator": described(name), **options}
        for name in names
        if generator_done(folder, name) is None
    ]
    # Else all workers would wait for the one that trains the first generator.
    return [*builds, *sorted(runs, key=lambda job: job["generator"] is not None)]


class _Watch:
    """Counts, measures and says when to stop."""

    def __init__(
        self,
        study: Study,
        folder: BenchFolder,
        todo: list[RunSpec],
        at_once: int,
        minutes: float | None,
        cost: Mapping[str, Any],
        progress: Progress | None,
    ) -> None:
        self.todo = {run.id: run for run in todo}
        self.total, self.ended_count, self.begun = len(todo), 0, 0
        self.at_once, self.cost, self.progress = at_once, cost, progress
        self.study, self.folder = study, folder
        self.deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self.durations = Durations.of_records(folder, study.runs)
        self.starts: dict[str, float] = {}
        self.ran, self.errors = 0, list[str]()

    def may_start(self, job: Job) -> bool:
        """Tell whether a job would end in time, as far as one can know."""
        if self.deadline is None:
            return True
        left = self.deadline - time.monotonic()
        seconds = sum(self._building([job["generator"]["id"]] if job["generator"] else []))
        if job["type"] == "run":
            seconds += self.durations.mean(job["spec"]["kind"], job["spec"]["factors"]) or 0.0
        return left > _MARGIN * seconds

    def started(self, job: Job) -> None:
        """Name the run that starts."""
        if job["type"] == "generator":
            self._show(f"generator {job['generator']['id']}")
            return
        run = self.todo[job["spec"]["id"]]
        if run.id not in self.starts:
            self.begun += 1
        self.starts[run.id] = time.monotonic()
        self._show(f"run {self.begun} of {self.total}: {run.label}")

    def ended(self, job: Job, outcome: Outcome) -> None:
        """Take in an outcome."""
        if outcome["status"] == "stopped":
            raise DisMixError(
                f"no run can go on ({outcome['error']})", file=self.folder.root,
                cure="free some space and run again; finished runs are kept",
            )  # fmt: skip
        if outcome["status"] == "failed":
            last = str(outcome["error"]).strip().splitlines()[-1]
            self.errors.append(f"{outcome['id']}: {last}")
        if job["type"] == "generator":
            return
        run = self.todo.pop(job["spec"]["id"])
        self.ended_count += 1
        if outcome["status"] == "done":
            self.ran += 1
            taken = time.monotonic() - self.starts[run.id]
            if outcome["seconds"] is not None:
                # A generator that was trained on the way will not be trained again.
                taken = min(taken, max(float(outcome["seconds"]), 0.0) + 1.0)
            self.durations.add(run.kind, run.factors, taken)
        self._show(f"run {self.begun} of {self.total}: {run.label}")

    def _show(self, words: str) -> None:
        if self.progress is None:
            return
        seconds = sum(
            self.durations.mean(r.kind, r.factors) or estimated_seconds(r, self.cost)
            for r in self.todo.values()
        )
        building = self._building(
            {run.generator for run in self.todo.values() if run.generator is not None}
        )
        # Nothing that needs a generator can start before it is there.
        left = in_words(max((seconds + sum(building)) / self.at_once, *building, 0.0))
        self.progress(f"benchmark | {words}, about {left} left", self.ended_count, self.total)

    def _building(self, names: Iterable[str]) -> list[float]:
        """Return the seconds that generators may take, those alone that have to be trained."""
        specs = [self.study.generators[n] for n in names if generator_done(self.folder, n) is None]
        return [
            estimated_generator_seconds(spec.images, self.cost)
            for spec in specs
            if "given" not in spec.local
        ]


def _summary(study: Study, folder: BenchFolder, watch: _Watch) -> Summary:
    found = Summary(ran=watch.ran, errors=watch.errors)
    for run in study.runs:
        status = folder.status(run.id)
        if status == "done":
            found.done += 1
        elif status == "failed":
            found.failed += 1
        elif run.blocked is not None:
            found.blocked += 1
        else:
            found.left += 1
    return found


def note_plan(study: Study, folder: BenchFolder) -> None:
    """Write which runs a plan wants, and ``planned.json`` with those of all plans.

    What it wanted earlier, with other ``--data`` or ``--set``, stays where it is finished.
    """
    runs = [
        {"id": run.id, "kind": run.kind, "factors": dict(run.factors), "blocked": run.blocked}
        for run in study.runs
    ]
    with folder.lock("planned"):
        place, wanted = folder.root / "plans" / f"{study.plan}.json", {run["id"] for run in runs}
        runs += [
            run
            for run in _noted(place)
            if run["id"] not in wanted and folder.status(run["id"]) == "done"
        ]
        atomic.write_json(place, {"plan": study.plan, "title": study.title, "runs": runs})
        every: dict[str, Any] = {}
        for path in sorted(place.parent.glob("[!.]*.json")):
            for run in _noted(path):
                every.setdefault(run["id"], run)
        atomic.write_json(folder.root / PLANNED, {"runs": [*every.values()]})


def _noted(path: Path) -> list[dict[str, Any]]:
    """Return the runs in a plan's list; a damaged one is written anew when its plan is run."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(path.read_text(encoding="utf-8"))["runs"]
        return [run for run in found if isinstance(run["id"], str)]
    return []
