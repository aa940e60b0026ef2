"""Traverses: the same image decoded at every rank, or with another image's appearance."""

import torch
from torch import Tensor

from dismix.generator.codes import Codes
from dismix.generator.model import Generator
from dismix.labels import OrdinalTarget


@torch.no_grad()
def ordinal_traverse(model: Generator, images: Tensor, ranks: Tensor) -> Tensor:
    """Decode each image at each rank; everything but the condition stays.

    Args:
        model: Generator in evaluation mode.
        images: (B, channels, H, W) in [-1, 1].
        ranks: (R,) ranks, fractional ones too.

    Returns:
        (R, B, channels, H, W).
    """
    latents = model.latents(images)
    nonordinal = model.quantize(latents.nonordinal).codes
    levels = OrdinalTarget.from_rank(ranks.to(images.device), model.config.num_ranks).levels
    made = [
        model.decode(
            Codes(model.quantized_ordinal(latents.ordinal, level.expand(len(images), -1)).codes,
                  nonordinal)
        )
        for level in levels
    ]  # fmt: skip
    return torch.stack(made).float()


@torch.no_grad()
def nonordinal_traverse(
    model: Generator, images: Tensor, partners: Tensor, levels: Tensor | None, lams: Tensor
) -> Tensor:
    """Move each image's non-ordinal codes towards a partner's; the ordinal codes stay.

    Args:
        model: Generator in evaluation mode.
        images: (B, channels, H, W) in [-1, 1].
        partners: (B, channels, H, W) givers of appearance.
        levels: (B, C-1) of the images, or None.
        lams: (R,) share of the partner.

    Returns:
        (R, B, channels, H, W).
    """
    own, other = model.encode(images, levels), model.encode(partners)
    made = [
        model.decode(
            Codes(own.ordinal, (1 - lam) * own.nonordinal + lam * other.nonordinal)
        )
        for lam in lams.tolist()
    ]  # fmt: skip
    return torch.stack(made).float()
