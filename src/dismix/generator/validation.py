"""What a training measures every few epochs, and the score that picks its checkpoint."""

import math
import warnings
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from dismix.generator.fidelity import psnr, ssim
from dismix.generator.images import SplitImages
from dismix.generator.mixing_accuracy import draw_pairs, mixing_accuracy, mixing_chance
from dismix.generator.model import Generator
from dismix.generator.perceptual import LPIPS
from dismix.generator.read_order import read_order, weak_note
from dismix.generator.step_draws import step_rng
from dismix.labels import OrdinalTarget

Reader = Callable[[Tensor], Tensor]
#: What is kept of a chosen epoch, by its name there; votes that all agree have no order.
_KEPT = {
    "score": "score", "chance": "mixing_chance_val", "epoch": "epoch",
    "reader_order": "reader_order_val",
}  # fmt: skip
#: Splits that are looked at, by the number that their draws have.
SPLITS = {"train": 1, "val": 2}
#: Images of each at most, and pairs of them.
PAIRS = 256


@torch.no_grad()
def validate(
    model: Generator,
    reader: Reader,
    train: SplitImages,
    val: SplitImages,
    seed: int,
    device: torch.device,
    perceptual: LPIPS | None = None,
) -> dict[str, float]:
    """Return mixing accuracy on both splits, its chance and fidelity on validation, the score.

    ``reader_order_val`` is how well the reader orders real validation images (`read_order`).

    Args:
        model: Generator in evaluation mode.
        reader: Reads rank logits (B, C-1) from images.
        train: Training split.
        val: Validation split.
        seed: Decides the pairs, the same at every call.
        device: Where to compute.
        perceptual: LPIPS on the same device, or None to leave that out.
    """
    metrics: dict[str, float] = {}
    for name, split in (("train", train), ("val", val)):
        images, target, rng = _some(split, name, seed, device)
        draws = draw_pairs(len(images), PAIRS, rng)
        metrics[f"mixing_accuracy_{name}"] = mixing_accuracy(model, reader, images, target, draws)
        if name == "val":
            metrics["mixing_chance_val"] = mixing_chance(target, draws)
            if not math.isnan(order := read_order(reader, images, target)):
                metrics["reader_order_val"] = order
            metrics |= _fidelity(model, images, perceptual)
    # paper: it chooses by the mixing accuracy on training pairs, which rewards overfitting.
    metrics["score"] = metrics["mixing_accuracy_val"]
    return metrics


def chosen_by(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return what is kept of the epoch that a checkpoint is chosen at.

    Args:
        metrics: Its line of the log, with what `validate` found.

    Example:
        >>> chosen_by({"epoch": 3, "score": 0.5, "mixing_chance_val": 0.4, "loss": 1.0})
        {'score': 0.5, 'chance': 0.4, 'epoch': 3}
    """
    return {short: metrics[name] for short, name in _KEPT.items() if name in metrics}


def warn_if_weak(guide: Reader, val: SplitImages, seed: int, device: torch.device) -> None:
    """Warn, before hours of training, of a guide that reads next to nothing.

    Args:
        guide: Reads rank logits (B, C-1) from images.
        val: Validation split, of which the images are read that `validate` reads.
        seed: As for `validate`.
        device: Where to read them.
    """
    images, target, _ = _some(val, "val", seed, device)
    if note := weak_note(read_order(guide, images, target), len(images)):
        warnings.warn(note, stacklevel=3)


def _some(
    split: SplitImages, name: str, seed: int, device: torch.device
) -> tuple[Tensor, OrdinalTarget, torch.Generator]:
    """Return up to `PAIRS` images and targets of a split, and what draws their pairs."""
    rng = step_rng(seed, 0, SPLITS[name])
    rows = torch.randperm(len(split), generator=rng)[:PAIRS].sort().values
    return split.images(rows, device), split.target[rows.to(split.target.probs.device)], rng


def _fidelity(model: Generator, images: Tensor, perceptual: LPIPS | None) -> dict[str, float]:
    sums = {"psnr_val": 0.0, "ssim_val": 0.0}
    for part in torch.split(images, 32):
        made = model.decode(model.encode(part)).float().clamp(-1, 1)
        sums["psnr_val"] += float(psnr(made, part).sum())
        sums["ssim_val"] += float(ssim(made, part).sum())
        if perceptual is not None:
            total = sums.get("lpips_val", 0.0)
            sums["lpips_val"] = total + float(perceptual(made, part).sum())
    return {name: total / len(images) for name, total in sums.items()}
