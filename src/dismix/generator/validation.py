"""What a training measures every few epochs, and the score that picks its checkpoint."""

from collections.abc import Callable

import torch
from torch import Tensor

from dismix.generator.fidelity import psnr
from dismix.generator.images import SplitImages
from dismix.generator.mixing_accuracy import draw_pairs, mixing_accuracy
from dismix.generator.model import Generator
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
) -> dict[str, float]:
    """Return mixing accuracy on both splits, PSNR on validation, and the score.

    Args:
        model: Generator in evaluation mode.
        reader: Reads rank logits (B, C-1) from images.
        train: Training split.
        val: Validation split.
        seed: Decides the pairs, the same at every call.
        device: Where to compute.
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
            made = [model.decode(model.encode(part)) for part in torch.split(images, 32)]
            metrics["psnr_val"] = float(psnr(torch.cat(made).clamp(-1, 1), images).mean())
    # paper: it chooses by the mixing accuracy on training pairs, which rewards overfitting.
    metrics["score"] = metrics["mixing_accuracy_val"]
    return metrics
