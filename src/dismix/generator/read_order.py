"""How well a reader of rank orders real images: what its readings of pictures are worth.

Mixing accuracy is high as soon as pictures please their reader; whether that shows severity depends
on what the reader has learned, and of few images a small one learns little. So its readings of
real validation images are compared with their votes, by Spearman's rank correlation: 1 orders them
as the annotators do, 0 says nothing.
"""

import math
from collections.abc import Callable

import torch
from scipy.stats import spearmanr
from torch import Tensor

from dismix.labels import OrdinalTarget

#: Readings below this order real images too little to teach a decoder anything.
WEAK = 0.3
#: Images from which such a verdict is told; the correlation of fewer is chance.
ENOUGH = 30


@torch.no_grad()
def read_order(
    reader: Callable[[Tensor], Tensor], images: Tensor, target: OrdinalTarget, batch_size: int = 64
) -> float:
    """Return Spearman's correlation of the ranks that are read and the mean ranks of the votes.

    Args:
        reader: Images (B, channels, H, W) -> rank logits (B, C-1).
        images: (N, channels, H, W) in [-1, 1].
        target: Targets of the N images.
        batch_size: Images read at once.

    Returns:
        Within -1 and 1; 0 where the reader says the same of all, NaN where the votes do.

    Example:
        >>> images = torch.linspace(-1, 1, 6).view(6, 1, 1, 1)
        >>> bright = lambda x: x.flatten(1).expand(-1, 2)
        >>> round(read_order(bright, images, OrdinalTarget.from_labels([0, 0, 1, 1, 2, 2], 3)), 2)
        0.96
    """
    parts = [reader(part).float().sigmoid().sum(1) for part in torch.split(images, batch_size)]
    read, voted = torch.cat(parts).cpu(), target.rank.cpu()
    if bool((voted == voted[0]).all()):
        return math.nan
    if bool((read == read[0]).all()):
        return 0.0
    return float(spearmanr(read.numpy(), voted.numpy()).statistic)


def weak_note(order: float, images: int) -> str:
    """Return what to say of a guide that hardly orders real images, else nothing.

    Args:
        order: From `read_order`.
        images: How many were read.

    Example:
        >>> weak_note(0.1, 62)[:70]
        'the guide hardly reads severity: on 62 validation images its rank corr'
        >>> weak_note(0.6, 62), weak_note(0.1, 8)
        ('', '')
    """
    if not order < WEAK or images < ENOUGH:
        return ""
    return (
        f"the guide hardly reads severity: on {images} validation images its rank correlation with"
        f" the votes is {order:.2f}, so pictures will hardly show it; give it more images or pixels"
        " (--size), --set guide_kind=lite0 (ImageNet), or more --set guide_steps=..."
    )
