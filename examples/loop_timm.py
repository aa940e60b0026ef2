"""DisMix where timm's training script has its own Mixup.

    python examples/loop_timm.py RUN

timm's `train.py` does `mixup_fn = Mixup(...)`, calls `input, target = mixup_fn(input, target)` in
the loop and trains with `SoftTargetCrossEntropy`: put `TimmCompat(DisMix.load(RUN))` in its place.
Normalise as timm does by giving DisMix the same mean and std.

Start `train.py` with `--mixup 1 --no-prefetcher`: with the prefetcher, its default, timm mixes by a
`FastCollateMixup` of its own and never calls `mixup_fn`.
"""

import sys

import torch

from dismix import DisMix, read_manifest
from dismix._compat import import_torchvision
from dismix.generator.images import load_split
from dismix.mixing.adapters import TimmCompat
from dismix.mixing.encoding import run_manifest

import_torchvision()
import timm.optim  # noqa: E402
from timm.loss import SoftTargetCrossEntropy  # noqa: E402

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def main(run: str, steps: int = 3) -> list[float]:
    """Train a timm model for a few steps and return its losses."""
    mixup_fn = TimmCompat(DisMix.load(run, p=0.5, mean=MEAN, std=STD), label_smoothing=0.1)
    size = mixup_fn.mix.engine.model.image_size
    train = load_split(read_manifest(run_manifest(run)), "train", size, device=torch.device("cpu"))
    model = timm.create_model("test_vit", num_classes=train.target.num_ranks, img_size=size)
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3)
    train_loss_fn = SoftTargetCrossEntropy()
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (MEAN, STD))
    losses = []
    for step in range(steps):
        rows = torch.arange(8) + 8 * step
        unit = train.images(rows % len(train), "cpu").expand(-1, 3, -1, -1)
        input, target = ((unit + 1) / 2 - mean) / std, train.target.hard[rows % len(train)]
        input, target = mixup_fn(input, target)
        loss = train_loss_fn(model(input), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert mixup_fn.mix.last is not None  # None: timm never called the mixer
    mixup_fn.mixup_enabled = False  # what --mixup-off-epoch does
    return losses


if __name__ == "__main__":
    print(main(sys.argv[1])[-1])  # noqa: T201
