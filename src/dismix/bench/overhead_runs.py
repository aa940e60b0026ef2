"""One run: what a mixer adds to the time of training, against the same steps without it.

Steps with and without the mixer take turns in one process, so that neither has the cooler card
or the quieter machine; the record holds the median over rounds.

A pool decodes in the background. Its work must not fall on the steps without it, nor be left out
because a block outlasts a round: each turn of its steps uses up whole blocks and waits for what
follows them.
"""

import contextlib
import math
import statistics
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dismix.accelerators import make_accelerator
from dismix.background import background
from dismix.bench.artifacts import generator_of
from dismix.bench.folder import BenchFolder
from dismix.bench.grader_runs import build_grader, settings_of
from dismix.bench.memory import PeakMemory
from dismix.bench.mixer_runs import build_mixer, shared_mixing
from dismix.bench.warm import Warm
from dismix.data.batches import Batches
from dismix.graders.mixed import loss_of, with_clean_loss
from dismix.graders.plan import begin_stage, set_stage_mode
from dismix.graders.start_run import mixer_rows
from dismix.layout import lay_out
from dismix.progress import Progress


def run_overhead(
    folder: BenchFolder,
    job: Mapping[str, Any],
    warm: Warm,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Time training steps; return the record's measured fields.

    Args:
        folder: The benchmark's folder.
        job: See `dismix.bench.grader_runs.run_grader`.
        warm: What this process keeps between runs.
        progress: Called after each round.
    """
    spec, shared = job["spec"], generator_of(folder, job, progress)
    start = time.perf_counter()
    accelerator = make_accelerator(cpu=bool(job["cpu"]))
    peak = PeakMemory(accelerator.device)
    data = warm.manifest(folder, spec["data"])
    settings = settings_of(spec["local"]["settings"])
    train = warm.images(folder, spec["data"], "train", settings.size, accelerator.device, progress)
    common = shared_mixing(folder, spec, shared, warm, accelerator.device, progress)
    mixer = build_mixer(spec, data.num_ranks, common)
    rows = mixer_rows(mixer, data)
    grader = build_grader(spec, settings, data, warm, cpu=bool(job["cpu"]))
    trainer = _Steps(grader, settings, train, accelerator, rows)
    bare, rounds = (spec["local"]["timing"][name] for name in ("steps", "rounds"))
    mixed = _whole_blocks(bare, mixer, spec["factors"]["p"], settings.batch_size)
    times: dict[bool, list[float]] = {False: [], True: []}
    with contextlib.closing(mixer) if hasattr(mixer, "close") else contextlib.nullcontext():
        for number in range(-1, rounds):
            for mixing, steps in ((False, bare), (True, mixed)):
                seconds = trainer.seconds(mixer if mixing else None, steps if number >= 0 else 3)
                if number >= 0:
                    times[mixing].append(seconds)
            if progress is not None:
                progress("timing", number + 2, rounds + 1)
    ratios = [a / b for a, b in zip(times[True], times[False], strict=True)]
    return {
        "metrics": {
            "overhead_percent": round(100 * (statistics.median(ratios) - 1), 3),
            "ms_per_step": round(1e3 * statistics.median(times[True]), 4),
            "ms_vanilla": round(1e3 * statistics.median(times[False]), 4),
        },
        "predictions": None, "wall_s": round(time.perf_counter() - start, 3),
        "generator_s": None if shared is None else shared["seconds"],
        "images_seen": (bare + mixed) * rounds * settings.batch_size, "peak_memory_mib": peak.mib(),
    }  # fmt: skip


def _whole_blocks(steps: int, mixer: Any, p: float | None, batch: int) -> int:
    """Return so many steps or more, that use up whole blocks of a mixer's pool, if it has one.

    Begins in the middle of a block, so that each turn of so many steps ends as many.
    """
    pool = getattr(mixer, "served", None)
    if pool is None or not pool.size:
        return steps
    uses: int = pool.size * pool.reuse
    pool.restart(pool.seed, (0, uses // 2))
    a_step = batch * (p or 1.0)
    return math.ceil(math.ceil(steps * a_step / uses) * uses / a_step)


class _Steps:
    """A grader in its last stage and the steps it takes."""

    def __init__(
        self, grader: Any, settings: Any, train: Any, accelerator: Any, rows: Tensor | None
    ) -> None:
        self.grader, self.accelerator = grader.to(accelerator.device), accelerator
        self.device = accelerator.device
        lay_out(self.grader.backbone, self.device)
        self.stage = self.grader.stages[-1]
        self.optimizer = begin_stage(self.grader, self.stage, settings, 1000)
        set_stage_mode(self.grader, self.stage)
        self.batches = Batches(
            train.source, train.target, settings.batch_size, augment=settings.augment,
            equalize=train.equalize, device=self.device,
        )  # fmt: skip
        self.rows, self.count, self._feed = rows, 0, iter(self.batches)

    def _batch(self) -> Any:
        batch = next(self._feed, None)
        if batch is None:
            self.count += 1
            self.batches.set_epoch(self.count)
            self._feed = iter(self.batches)
            batch = next(self._feed)
        return batch

    def seconds(self, mixer: Any, steps: int) -> float:
        """Return the seconds of a step, the mean of some, synchronised at both ends."""
        self._wait()
        start = time.perf_counter()
        for _ in range(steps):
            self._step(mixer)
        # What these steps began in the background is theirs.
        background().submit(int).result()
        self._wait()
        return (time.perf_counter() - start) / steps

    def _step(self, mixer: Any) -> None:
        batch = self._batch()
        images, target = batch.images, batch.target
        if mixer is not None:
            images, target = mixer(images, target, **self._options(mixer, batch))
        if self.stage.views > 1:
            images = images.unsqueeze(1).expand(-1, self.stage.views, -1, -1, -1)
        with self.accelerator.autocast():
            parts = self.grader.training_loss(images, target, self.stage)
        if mixer is not None:
            parts = with_clean_loss(parts, mixer)
        self.optimizer.zero_grad(set_to_none=True)
        parts["loss"].backward()
        self.optimizer.step()

    def _options(self, mixer: Any, batch: Any) -> dict[str, Any]:
        if getattr(mixer, "takes_rows", False):
            rows = None if self.rows is None else self.rows[batch.index.to(self.rows.device)]
            return {"rows": rows}
        if not mixer.needs_saliency:
            return {}
        return {"model": self.grader, "loss_fn": loss_of(self.stage)}

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
