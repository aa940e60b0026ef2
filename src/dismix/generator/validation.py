"""What a training measures every few epochs, and the score that picks its checkpoint."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from dismix.generator.fidelity import psnr, ssim
from dismix.generator.images import SplitImages
from dismix.generator.mixing_accuracy import draw_pairs, mixing_accuracy, mixing_chance
from dismix.generator.model import Generator
from dismix.generator.perceptual import LPIPS
from dismix.generator.read_order import read_order
from dismix.generator.step_draws import step_rng

Reader = Callable[[Tensor], Tensor]
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
    for number, (name, split) in enumerate((("train", train), ("val", val)), start=1):
        rng = step_rng(seed, 0, number)
        rows = torch.randperm(len(split), generator=rng)[:PAIRS].sort().values
        images = split.images(rows, device)
        target = split.target[rows.to(split.target.probs.device)]
        draws = draw_pairs(len(rows), PAIRS, rng)
        metrics[f"mixing_accuracy_{name}"] = mixing_accuracy(model, reader, images, target, draws)
        if name == "val":
            metrics["mixing_chance_val"] = mixing_chance(target, draws)
            if not math.isnan(order := read_order(reader, images, target)):
                metrics["reader_order_val"] = order
            metrics |= _fidelity(model, images, perceptual)
    # paper: it chooses by the mixing accuracy on training pairs, which rewards overfitting.
    metrics["score"] = metrics["mixing_accuracy_val"]
    return metrics


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
