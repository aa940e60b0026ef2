"""Shared parts of runs, built once under a lock: generators and their latent stores.

A generator is trained from ``training.csv``, which holds no test rows, on the training split of
one derivation; so are the codes that mixing partners come from. A generator that fails leaves
``failed.json``, so that the runs that need it fail at once instead of training it again.
"""

import json
import shutil
import traceback
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dismix import atomic
from dismix.atomic import disk_is_full
from dismix.bench.clock import Clock
from dismix.bench.folder import BenchFolder
from dismix.bench.sources import FULL, TRAINING
from dismix.bench.specs import RunSpec, Study
from dismix.data.digest import content_digests
from dismix.data.manifest import read_manifest
from dismix.data.store import default_cache_dir
from dismix.errors import DisMixError
from dismix.progress import Progress

DONE, FAILED, CLOCK = "done.json", "failed.json", "clock.json"


def generator_done(folder: BenchFolder, name: str) -> dict[str, Any] | None:
    """Return {"seconds", "store"} of a finished generator, or None."""
    try:
        found: dict[str, Any] = json.loads(
            (folder.generator_dir(name) / DONE).read_text(encoding="utf-8")
        )
    except (OSError, ValueError):
        return None
    return found


def ensure_generator(
    folder: BenchFolder,
    spec: Mapping[str, Any],
    *,
    cpu: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return {"seconds", "store"} of a generator, after training it if need be.

    Args:
        folder: The benchmark's folder.
        spec: A `GeneratorSpec` as plain values.
        cpu: Do not use a GPU.
        progress: Called while it trains.

    Raises:
        DisMixError: It failed, now or earlier.
    """
    name = spec["id"]
    if (done := generator_done(folder, name)) is not None:
        return done
    run = folder.generator_dir(name)
    with folder.lock(f"generator-{name}"):
        if (done := generator_done(folder, name)) is not None:
            return done
        _raise_if_failed(run)
        folder.note("generator started", name)
        try:
            done = _build(folder, spec, run, cpu=cpu, progress=progress)
        except Exception as error:
            if not disk_is_full(error):
                atomic.write_json(run / FAILED, {"error": traceback.format_exc()})
            raise
        atomic.write_json(run / DONE, done)
        folder.note("generator done", name)
        return done


def generator_of(
    folder: BenchFolder, job: Mapping[str, Any], progress: Progress | None = None
) -> dict[str, Any] | None:
    """Return what `ensure_generator` does for a run's generator, None for a run without.

    Args:
        folder: The benchmark's folder.
        job: {"spec": a `RunSpec`, "generator": a `GeneratorSpec` or None, "cpu"}.
        progress: Called while it trains.

    Raises:
        DisMixError: It failed.
    """
    spec = job["generator"]
    if spec is None:
        return None
    return ensure_generator(folder, spec, cpu=bool(job["cpu"]), progress=progress)


def keep_lost(folder: BenchFolder, name: str, reason: str) -> bool:
    """Keep a generator as failed whose worker died, unless it is done or somebody is at it.

    Args:
        folder: The benchmark's folder.
        name: The generator's id.
        reason: What is known of the death.

    Returns:
        Whether it is kept as failed.
    """
    with folder.try_lock(f"generator-{name}") as mine:
        if not mine or generator_done(folder, name) is not None:
            return False
        atomic.write_json(folder.generator_dir(name) / FAILED, {"error": reason})
        return True


def forget_failures(folder: BenchFolder, names: list[str]) -> None:
    """Let failed generators be tried again."""
    for name in names:
        (folder.generator_dir(name) / FAILED).unlink(missing_ok=True)


def _raise_if_failed(run: Path) -> None:
    try:
        error = json.loads((run / FAILED).read_text(encoding="utf-8"))["error"]
    except (OSError, ValueError, KeyError):
        return
    raise DisMixError(
        f"this generator failed before ({error.strip().splitlines()[-1]})",
        file=run / FAILED,
        cure="look at the traceback there, then run with --retry-failed",
    )


def _build(
    folder: BenchFolder,
    spec: Mapping[str, Any],
    run: Path,
    *,
    cpu: bool,
    progress: Progress | None,
) -> dict[str, Any]:
    import torch

    from dismix.generator.start_run import train_generator
    from dismix.mixing.encoding import encode_split

    run.mkdir(parents=True, exist_ok=True)
    clock, progress = Clock(run / CLOCK), _named(progress)
    local, manifest = spec["local"], folder.manifest_dir(spec["data"]) / TRAINING
    best: dict[str, Any] = {}
    if "given" in local:
        _copy_given(Path(local["given"]), run, folder.manifest_dir(spec["data"]))
    else:
        best = dict(
            train_generator(
                manifest, run, arch=local["arch"], recipe=local["recipe"],
                settings=local["settings"], size=local["size"], weights=local["weights"],
                seed=local["seed"], resume=True, cpu=cpu, progress=clock.ticking(progress),
            )
        )  # fmt: skip
    device = "cuda" if torch.cuda.is_available() and not cpu else "cpu"
    # Later steps of a run need a GPU's memory; the generator's training does not any more.
    trained = clock.seconds
    store = encode_split(run, manifest, device=device, progress=clock.ticking(progress))
    return {
        "id": spec["id"], "seconds": None if "given" in local else round(clock.seconds, 3),
        "trained_s": round(trained, 3), "store": store.folder.name, "images": len(store),
        "best": {k: float(v) for k, v in best.items()},
    }  # fmt: skip


def _named(progress: Progress | None) -> Progress | None:
    """Return a callback that says that it is the generator: graders are training too."""
    if progress is None:
        return None
    return lambda stage, done, total: progress(f"generator {stage}", done, total)


def _copy_given(given: Path, run: Path, data: Path) -> None:
    """Copy a user's generator, so that nothing is written beside it.

    Raises:
        DisMixError: It was trained on other ranks, or on images that were read in another way.
    """
    from dismix.generator.model import CONFIG_FILE, WEIGHTS_FILE
    from dismix.generator.run_file import require_fitting
    from dismix.generator.trained_on import FILE as SEEN

    manifest = read_manifest(data / FULL)
    require_fitting(given, manifest)
    kept = [SEEN] if (given / SEEN).is_file() else []
    for name in (CONFIG_FILE, WEIGHTS_FILE, *kept):
        with atomic.replacing(run / name) as temporary:
            shutil.copyfile(given / name, temporary)
    atomic.write_json(run / "run.json", {"manifest": str(data / TRAINING), "given": given.name})


def refuse_leaks(study: Study, runs: Iterable[RunSpec], folder: BenchFolder) -> None:
    """Refuse given generators that learned what runs validate or test on, before anything runs.

    Data sets that share their training part share a given generator, but not what they test on;
    so each of them is looked at.

    Args:
        study: That the runs are of.
        runs: Those that are to run.
        folder: Where the derived data of the study lie.
    """
    pairs = {(run.generator, run.data) for run in runs if run.generator is not None}
    for name, key in sorted(pairs):
        if (given := study.generators[name].local.get("given")) is not None:
            refuse_leak(Path(given), folder.manifest_dir(key), study.data[key].name)


def refuse_leak(given: Path, data: Path, name: str) -> None:
    """Refuse a given generator that was trained on images which runs validate or test on.

    Args:
        given: Its run folder.
        data: Folder of the derived data of a run.
        name: Of the data set.
    """
    from dismix.generator.run_file import manifest_of
    from dismix.generator.trained_on import read_trained_on

    try:
        described = json.loads((given / "run.json").read_text(encoding="utf-8"))
        images = read_manifest(manifest_of(described)).split("train").image_paths
    except (OSError, ValueError, KeyError, DisMixError):
        images = []
    cache = default_cache_dir()
    # What the run itself wrote down holds even where its data were moved or split anew.
    known = read_trained_on(given)
    seen = [*known] or content_digests(images, cache, skip_unreadable=True)
    if not seen or "" in seen:
        warnings.warn(
            f"the data of the generator {given.name} are not here: nobody can tell whether it saw "
            "images that runs validate or test on",
            stacklevel=3,
        )
    held_out = read_manifest(data / FULL).split("val", "test")
    own = {*content_digests(read_manifest(data / FULL).split("train").image_paths, cache)}
    both = {*seen} & {*content_digests(held_out.image_paths, cache)}
    leaked = len(both - own)
    if leaked:
        raise DisMixError(
            f"was trained on {leaked} images that runs of '{name}' validate or test on",
            file=given,
            # The plan may divide the data in another way than their list does.
            cure=f"train one on {data / TRAINING}, or leave --generator {name} out: the benchmark "
            "trains it",
        )
