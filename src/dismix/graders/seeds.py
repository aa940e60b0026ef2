"""Several seeds of one training at once, each in a process of its own.

A small network can leave a GPU idle while its one Python process launches kernels. Processes
launch side by side, every seed gives (on a CPU, bit for bit) what it would give alone, any
method works as it is (stacked weights would need each to be written for `vmap`), and where one is
killed all stop at their last checkpoints, to go on with ``--resume``. The price is one CUDA context
and one copy of the images for each.
"""

import math
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from dismix import atomic
from dismix.errors import DisMixError
from dismix.generator.run_log import METRICS
from dismix.graders.metrics import SCALARS
from dismix.graders.settings import TrainSettings
from dismix.locks import end_with_parent, in_use
from dismix.progress import Progress

SUMMARY = "summary.json"


def seed_folder(run: Path, seed: int) -> Path:
    """Return the folder of one seed.

    Example:
        >>> str(seed_folder(Path("run"), 3))
        'run/seed_3'
    """
    return run / f"seed_{seed}"


def train_seeds(
    manifest: str | Path,
    run: str | Path,
    settings: TrainSettings,
    seeds: Sequence[int],
    *,
    at_once: int | None = None,
    cpu: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train several seeds, each below ``run``, and return means and intervals.

    Args:
        manifest: See `train_grader`.
        run: Folder to fill.
        settings: Settings.
        seeds: Seeds; finished ones are skipped when resuming.
        at_once: Processes; None is 4 on a GPU and one for each core on a CPU, at most.
        cpu: Do not use a GPU.
        progress: Called about once a second.
        **options: Of `train_grader`.
    """
    import torch

    from dismix.graders.state import refuse_unfinished

    run = Path(run)
    for seed in () if options.get("resume") else seeds:
        refuse_unfinished(seed_folder(run, seed))
    cores = os.cpu_count() or 1
    most = cores if cpu or not torch.cuda.is_available() else min(4, cores)
    at_once = min(len(seeds), at_once or most)
    threads = max(1, cores // at_once)
    context = multiprocessing.get_context("spawn")
    # Without an end of their own, workers of a killed parent would train on, unseen.
    pool = ProcessPoolExecutor(at_once, mp_context=context, initializer=end_with_parent)
    with in_use(run), pool:
        waiting = [
            pool.submit(
                _one, manifest, seed_folder(run, seed), settings, threads,
                {**options, "seed": seed, "cpu": cpu},
            )
            for seed in seeds
        ]  # fmt: skip
        try:
            _watch(waiting, run, seeds, settings.epochs, progress)
        except BrokenProcessPool as error:
            raise DisMixError(
                "the process of a seed was killed, perhaps for want of memory", file=run,
                cure="add --resume, and a smaller --at-once",
            ) from error  # fmt: skip
        results = [future.result() for future in waiting]
    summary = summarise([result["validation"] for result in results])
    content = {"seeds": [*seeds], "select": results[0]["select"], "validation": summary}
    atomic.write_json(run / SUMMARY, content)
    return content


def _one(
    manifest: str | Path, run: Path, settings: TrainSettings, threads: int, options: dict[str, Any]
) -> dict[str, Any]:
    import torch

    from dismix.graders.start_run import train_grader

    torch.set_num_threads(threads)
    return train_grader(manifest, run, settings, **options)


def _watch(
    waiting: list["Future[dict[str, Any]]"],
    run: Path,
    seeds: Sequence[int],
    epochs: int,
    progress: Progress | None,
) -> None:
    """Count the epochs that the processes have logged until all are done, or one failed."""
    pending = set(waiting)
    while pending:
        done, pending = wait(pending, timeout=1.0)
        for future in done:
            if future.exception() is not None:
                for other in pending:
                    other.cancel()
                future.result()
        if progress is not None:
            logs = [seed_folder(run, seed) / METRICS for seed in seeds]
            count = sum(log.read_bytes().count(b"\n") for log in logs if log.is_file())
            progress(f"training {len(seeds)} seeds", count, epochs * len(seeds))


def summarise(metrics: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return mean, sd and 95 % interval (Student's t) of every single number.

    Args:
        metrics: From `grade_metrics`, one for each seed.

    Example:
        >>> found = summarise([{"accuracy": 0.5}, {"accuracy": 0.6}, {"accuracy": 0.7}])
        >>> {k: round(v, 3) for k, v in found["accuracy"].items() if k != "values"}
        {'mean': 0.6, 'sd': 0.1, 'low': 0.352, 'high': 0.848}
    """
    from scipy.stats import t

    found: dict[str, dict[str, Any]] = {}
    for name in SCALARS:
        # Kappa may be undefined for some seeds, or for all.
        values = [float(m[name]) for m in metrics if m.get(name) is not None]
        if not values:
            continue
        mean, count = sum(values) / len(values), len(values)
        sd = math.sqrt(sum((v - mean) ** 2 for v in values) / (count - 1)) if count > 1 else 0.0
        half = float(t.ppf(0.975, count - 1)) * sd / math.sqrt(count) if count > 1 else 0.0
        found[name] = {
            "mean": mean, "sd": sd, "low": mean - half, "high": mean + half, "values": values,
        }  # fmt: skip
    return found
