"""Class-balanced sampling: an option, since it changes what a baseline is."""

import torch
from torch import Tensor

from dismix.labels import OrdinalTarget
from dismix.seeds import rng_of


def balanced_rows(target: OrdinalTarget, seed: int, epoch: int) -> Tensor:
    """Draw N rows with replacement so that every grade that occurs is expected equally often.

    Args:
        target: Targets of the N training images; an image counts for each grade by its share.
        seed: With the epoch, decides the draw.
        epoch: Epoch.

    Returns:
        (N,) long, on the CPU.

    Example:
        >>> rare = OrdinalTarget.from_labels([0] * 98 + [1, 1], num_ranks=2)
        >>> rows = balanced_rows(rare, 0, 0)
        >>> 35 < int((rows >= 98).sum()) < 65
        True
    """
    probs = target.probs.double().cpu()
    mass = probs.sum(0)
    chance = (probs / mass.clamp_min(1e-9)).sum(1)
    generator = rng_of(seed, epoch, 7)
    return torch.multinomial(chance, len(chance), replacement=True, generator=generator)


def balanced_rank_weights(target: OrdinalTarget) -> Tensor:
    """Return weights (C,) inverse to each rank's share, with mean one over the images.

    Example:
        >>> balanced_rank_weights(OrdinalTarget.from_labels([0, 0, 0, 1], num_ranks=2))
        tensor([0.6667, 2.0000])
    """
    mass = target.probs.sum(0)
    present = mass > 0
    weights = torch.where(present, 1 / mass.clamp_min(1e-9), torch.zeros_like(mass))
    return weights * len(target) / present.sum()
