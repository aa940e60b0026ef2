"""The mixer of a run, and what many runs share of it: the open generator, details, a judge.

What is shared is made before a run's clock starts: it is no run's own time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from dismix.bench.folder import BenchFolder
from dismix.bench.generator_runs import judge_file
from dismix.bench.sources import TRAINING
from dismix.bench.warm import Warm
from dismix.generator.judge import Judge, ready_judge
from dismix.graders.start_run import make_mixer
from dismix.mixing.agreement import reads_mixes
from dismix.mixing.encoding import encode_split
from dismix.mixing.engine import MixEngine
from dismix.mixing.registry import create_mixer
from dismix.progress import Progress


@dataclass(frozen=True)
class SharedMixing:
    """What the runs of one generator share.

    Attributes:
        engine: The open generator with its codes.
        judge: Who reads mixes, where a run asks for that and names nobody.
    """

    engine: MixEngine
    judge: Judge | None


def shared_mixing(
    folder: BenchFolder,
    spec: Mapping[str, Any],
    shared: Mapping[str, Any] | None,
    warm: Warm,
    device: torch.device,
    progress: Progress | None = None,
) -> SharedMixing | None:
    """Open, or make, what a run shares with others; None for one without a generator.

    Args:
        folder: The benchmark's folder.
        spec: A `RunSpec`.
        shared: What `ensure_generator` returned.
        warm: What this process keeps between runs.
        device: Where to mix.
        progress: Called while a judge is trained.
    """
    if shared is None:
        return None
    options = spec["local"]["options"]
    if options.get("detail"):
        # Not every run wants them, and they are as large as the images. The manifest is named:
        # the generator knows it by a path, and the folder may have been moved.
        run = folder.generator_dir(spec["generator"])
        manifest = folder.manifest_dir(spec["data"]) / TRAINING
        severity = options.get("severity", "label")
        warm.keep(
            "details",
            (run, severity),
            lambda: encode_split(run, manifest, device=device, details=True, severity=severity),
        )
    compiled = bool(options.get("compiled", False))
    engine = warm.engine(
        folder, spec["generator"], str(shared["store"]), device, compiled,
        votes_of=spec["data"] if options.get("ranks") == "consensus" else None,
    )  # fmt: skip
    if options.get("alike", 1) > 1:
        _ = engine.likeness
    if "judge" in options or not reads_mixes(options):
        return SharedMixing(engine, None)
    # It reads the generator's pictures, whose size need not be the grader's.
    size = engine.model.image_size
    file = judge_file(folder, spec["data"], size)

    def train() -> Judge:
        with folder.lock(f"judge-{file.stem}"):
            images = warm.images(folder, spec["data"], "train", size, device, progress)
            return ready_judge(file, images, size, progress=progress)

    return SharedMixing(engine, warm.keep("judges", (str(file), str(device)), train))


def build_mixer(spec: Mapping[str, Any], num_ranks: int, shared: SharedMixing | None) -> Any:
    """Return the run's mixer, or None."""
    name, options = spec["factors"]["mixer"], dict(spec["local"]["options"])
    if shared is None:
        return make_mixer(name, num_ranks, None, options)
    options.pop("compiled", None)
    if shared.judge is not None:
        options["judge"] = shared.judge
    return create_mixer(name, num_ranks, engine=shared.engine, **options)
