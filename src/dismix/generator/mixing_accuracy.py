"""Mixing accuracy, by which the paper chooses its checkpoint.

Random pairs, random lambda: decode the mix of their ordinal codes and compare the rank that
a reader sees with the rank the mix should have. The paper's reader is the discriminator's
rank head; where there is a guide, that reads instead, since the head learned too little to
choose by. Both took part in training, so this proves little by
itself: judge a generator by a grader that did not.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dismix.generator.codes import Codes
from dismix.generator.model import Generator
from dismix.labels import OrdinalTarget


@dataclass(frozen=True)
class PairDraws:
    """Pairs to mix.

    Attributes:
        first: (P,) rows.
        second: (P,) rows.
        lam: (P,) share of the first.
    """

    first: Tensor
    second: Tensor
    lam: Tensor


def draw_pairs(images: int, pairs: int, generator: torch.Generator) -> PairDraws:
    """Draw random pairs of ``images`` rows and their ratio."""
    rows = torch.randint(images, (2, pairs), generator=generator)
    return PairDraws(rows[0], rows[1], torch.rand(pairs, generator=generator))


def round_half_up(rank: Tensor) -> Tensor:
    """Round to whole ranks; halves go up, where torch's own rounding goes to the even one.

    Example:
        >>> round_half_up(torch.tensor([0.5, 1.5, 2.4]))
        tensor([1., 2., 2.])
    """
    return torch.floor(rank + 0.5)


def asked_ranks(target: OrdinalTarget, draws: PairDraws) -> Tensor:
    """Return the whole rank (P,) that each mix should have: between its sources' majorities."""
    majority = target.hard.float()
    first, second, lam = (x.to(majority.device) for x in (draws.first, draws.second, draws.lam))
    return round_half_up(lam * majority[first] + (1 - lam) * majority[second])


def mixing_chance(target: OrdinalTarget, draws: PairDraws) -> float:
    """Return the mixing accuracy of pictures that are all read as one rank, the best such.

    Where most images have one grade, so have most mixes; an accuracy near this shows nothing.

    Example:
        >>> draws = PairDraws(torch.tensor([0, 1, 2, 2]), torch.tensor([1, 0, 0, 2]), torch.ones(4))
        >>> mixing_chance(OrdinalTarget.from_labels([0, 0, 2], 3), draws)
        0.5
    """
    return float(asked_ranks(target, draws).long().bincount().max()) / len(draws.lam)


@torch.no_grad()
def mixing_accuracy(
    model: Generator,
    reader: Callable[[Tensor], Tensor],
    images: Tensor,
    target: OrdinalTarget,
    draws: PairDraws,
    batch_size: int = 64,
) -> float:
    """Return the share of mixes whose rank, as read by a reader, is the asked one.

    Args:
        model: Generator in evaluation mode.
        reader: Images (B, channels, H, W) -> rank logits (B, C-1).
        images: (N, channels, H, W) in [-1, 1].
        target: Targets of the N images.
        draws: P pairs.
        batch_size: Pairs decoded at once.
    """
    levels, asked = target.levels, asked_ranks(target, draws).to(images.device)
    right = torch.zeros((), device=images.device)
    for start in range(0, len(draws.lam), batch_size):
        part = slice(start, start + batch_size)
        i, j = draws.first[part].to(images.device), draws.second[part].to(images.device)
        lam = draws.lam[part].to(images.device)
        first, second = model.encode(images[i], levels[i]), model.encode(images[j], levels[j])
        weight = lam[:, None, None, None]
        ordinal = weight * first.ordinal + (1 - weight) * second.ordinal
        logits = reader(model.decode(Codes(ordinal, first.nonordinal)))
        read = round_half_up(logits.float().sigmoid().sum(1))
        right += (read == asked[part]).sum()
    return float(right) / len(draws.lam)
