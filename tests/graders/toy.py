"""Toy splits: 40 small pictures whose brightness is the grade."""

import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from dismix.accelerators import make_accelerator
from dismix.generator.images import SplitImages
from dismix.graders.registry import create_grader
from dismix.graders.saving import plain_state
from dismix.graders.settings import TrainSettings, choose_settings
from dismix.graders.training import Training, run_training
from dismix.labels import OrdinalTarget
from dismix.progress import Progress

#: Settings that make a method small enough for a test.
SMALL: dict[str, dict[str, Any]] = {
    "poe": {"dim": 16, "samples": 4, "dropout": 0.0},
    "gol": {"dim": 16},
    "mwr": {"hidden": 16},
    "ord2seq": {"encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0},
}


def toy_split(count: int = 40, ranks: int = 4, seed: int = 0, size: int = 16) -> SplitImages:
    rng = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % ranks
    noise = torch.randint(24, (count, 3, size, size), generator=rng)
    pixels = (noise + (220 // ranks) * labels[:, None, None, None]).to(torch.uint8)
    return SplitImages(pixels, OrdinalTarget.from_labels(labels.tolist(), ranks), False)


def toy_settings(method: str = "ce", **changes: Any) -> TrainSettings:
    base = {
        "backbone": "tiny", "epochs": 4, "batch_size": 16, "lr": 3e-3, "size": 16,
        "validate_every": 1, "weight_decay": 0.0,
    }  # fmt: skip
    return choose_settings(method, changes={**base, **changes})


def toy_training(settings: TrainSettings, seed: int = 0, **parts: Any) -> Training:
    grader = create_grader(
        settings.method, backbone=settings.backbone, num_ranks=4, seed=seed, **settings.hparams
    )
    return Training(grader, settings, seed, **parts)


def train_toy(
    run: Path,
    settings: TrainSettings,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    train: SplitImages | None = None,
    **parts: Any,
) -> Training:
    training = toy_training(settings, **parts)
    run_training(
        training, train or toy_split(), toy_split(20, seed=1), run, make_accelerator(cpu=True),
        resume=resume, progress=progress, save_seconds=0.0,
    )  # fmt: skip
    return training


if __name__ == "__main__":
    import sys

    from dismix.mixing.mixup import Mixup

    torch.set_num_threads(1)
    run, *words = sys.argv[1:]

    def stop(text: str, done: int, total: int) -> None:
        # 40 images in batches of 16: the first step of the third epoch.
        if "stop" in words and done > 2 * (40 // 16):
            raise SystemExit(3)

    own: dict[str, Any] = {"method": "rnc"} if "rnc" in words else {"dropout": 0.0}
    trained = train_toy(
        Path(run), toy_settings(augment=False, optimizer="sgd", **own), resume=True,
        progress=stop, mixer=Mixup(4, p=0.5) if "mixup" in words else None,
    )  # fmt: skip
    # What each process ends with.
    process = os.environ.get("RANK", "0")
    save_file(plain_state(trained.grader), Path(run) / f"process{process}.safetensors")
