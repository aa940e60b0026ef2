"""Who is mixed with whom: rules for partners, usable by every mixer.

``random``       any other image of the batch, each used exactly once as a partner
``adjacent``     an image one majority rank away, as DisMix pairs
``kernel``       C-Mixup (Yao et al., NeurIPS 2022): near ranks are likelier, Gaussian kernel
``near``         an image at most one majority rank away, the same rank included
``same_rank``    an image of the same majority rank
``consecutive``  rows 2k and 2k+1, for batches made by :class:`~dismix.mixing.OrdinalPairSampler`

C-Mixup draws partners from the whole training set; a transform sees only a batch, so ours
draws within it (``OrdinalPairSampler`` gives the whole-set form).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.registry import Registry


@dataclass(frozen=True)
class Partners:
    """Partners of a batch.

    Attributes:
        index: (B,) long on the CPU, never the row itself unless it is alone.
        fell_back: (B,) bool, True where the rule found nobody and another was taken.
    """

    index: Tensor
    fell_back: Tensor


PairingRule = Callable[[OrdinalTarget, torch.Generator], Partners | Tensor]

PAIRINGS: Registry[Callable[..., PairingRule]] = Registry("pairing")


def derangement(batch: int, generator: torch.Generator) -> Tensor:
    """Return a random cyclic permutation (B,): no fixed point when B >= 2.

    Example:
        >>> index = derangement(5, torch.Generator().manual_seed(0))
        >>> bool((index != torch.arange(5)).all()), sorted(index.tolist())
        (True, [0, 1, 2, 3, 4])
    """
    order = torch.randperm(batch, generator=generator)
    index = torch.empty_like(order)
    index[order] = order.roll(-1)
    return index


def draw_weighted(weights: Tensor, generator: torch.Generator) -> Partners:
    """Draw one column for each row in proportion to weights (B, B), never the diagonal.

    Rows whose weights are all zero fall back to any other row.
    """
    batch = len(weights)
    if batch < 2:
        return Partners(torch.zeros(batch, dtype=torch.long), torch.zeros(batch, dtype=torch.bool))
    weights = weights.double().clone().fill_diagonal_(0.0)
    empty = weights.sum(1) <= 0
    anyone = torch.ones_like(weights).fill_diagonal_(0.0)
    weights = torch.where(empty[:, None], anyone, weights)
    return Partners(torch.multinomial(weights, 1, generator=generator).squeeze(1), empty)


@PAIRINGS.register("random")
@dataclass(frozen=True)
class RandomPairing:
    """Pair by a random derangement."""

    def __call__(self, target: OrdinalTarget, generator: torch.Generator) -> Partners:
        """Return the partners of a batch."""
        index = derangement(len(target), generator)
        return Partners(index, torch.zeros(len(target), dtype=torch.bool))


@PAIRINGS.register("consecutive")
@dataclass(frozen=True)
class ConsecutivePairing:
    """Pair rows 2k and 2k+1; an odd last row takes the row before it."""

    def __call__(self, target: OrdinalTarget, generator: torch.Generator) -> Partners:
        """Return the partners of a batch."""
        batch = len(target)
        index = torch.arange(batch) ^ 1
        alone = index >= batch
        return Partners(index.masked_fill(alone, max(batch - 2, 0)), alone)


@PAIRINGS.register("adjacent")
@dataclass(frozen=True)
class AdjacentPairing:
    """Pair with a majority rank ``1..max_gap`` away; else the same rank, else anyone.

    Args:
        max_gap: Largest distance of majority ranks.

    Example:
        >>> target = OrdinalTarget.from_labels([0, 1, 4], num_ranks=5)
        >>> found = AdjacentPairing()(target, torch.Generator().manual_seed(0))
        >>> found.index[:2].tolist(), found.fell_back.tolist()
        ([1, 0], [False, False, True])
    """

    max_gap: int = 1

    def __post_init__(self) -> None:
        if self.max_gap < 1:
            raise DisMixError(f"max_gap must be at least 1, got {self.max_gap}")

    def __call__(self, target: OrdinalTarget, generator: torch.Generator) -> Partners:
        """Return the partners of a batch."""
        hard = target.hard.cpu()
        gap = (hard[:, None] - hard).abs()
        near = (gap >= 1) & (gap <= self.max_gap)
        lonely = ~near.any(1)
        found = draw_weighted(torch.where(lonely[:, None], gap == 0, near), generator)
        return Partners(found.index, lonely)


@PAIRINGS.register("near")
@dataclass(frozen=True)
class NearPairing:
    """Pair with a majority rank at most ``max_gap`` away, the same rank included; else anyone."""

    max_gap: int = 1

    def __post_init__(self) -> None:
        if self.max_gap < 0:
            raise DisMixError(f"max_gap is {self.max_gap}", cure="give 0 or more")

    def __call__(self, target: OrdinalTarget, generator: torch.Generator) -> Partners:
        """Return the partners of a batch."""
        hard = target.hard.cpu()
        return draw_weighted(((hard[:, None] - hard).abs() <= self.max_gap).float(), generator)


@PAIRINGS.register("same_rank")
@dataclass(frozen=True)
class SameRankPairing:
    """Pair within the majority rank; else anyone."""

    def __call__(self, target: OrdinalTarget, generator: torch.Generator) -> Partners:
        """Return the partners of a batch."""
        hard = target.hard.cpu()
        return draw_weighted((hard[:, None] == hard).float(), generator)


@PAIRINGS.register("kernel")
@dataclass(frozen=True)
class KernelPairing:
    """Pair with probability proportional to ``exp(-(r_i - r_j)^2 / (2 sigma^2))``.

    Args:
        sigma: Deviation in ranks; small ones pair within a rank, large ones at random.
            Soft labels enter by their expected rank.
    """

    sigma: float = 1.0

    def __post_init__(self) -> None:
        if not self.sigma > 0:
            raise DisMixError(f"sigma must be positive, got {self.sigma}")

    def __call__(self, target: OrdinalTarget, generator: torch.Generator) -> Partners:
        """Return the partners of a batch."""
        rank = target.rank.double().cpu()
        exponent = -((rank[:, None] - rank) ** 2) / (2 * self.sigma**2)
        exponent.fill_diagonal_(-torch.inf)
        # Relative to the nearest partner, so that a small sigma cannot underflow to nobody.
        weights = (
            torch.exp(exponent - exponent.amax(1, keepdim=True)) if len(rank) > 1 else exponent
        )
        return draw_weighted(weights, generator)


def pairing_rule(pairing: str | PairingRule) -> PairingRule:
    """Return the rule that a name stands for; a function is taken as it is.

    Names take one option after a colon: ``kernel:0.5`` (sigma), ``adjacent:2`` (max_gap).
    """
    if not isinstance(pairing, str):
        return pairing
    name, _, option = pairing.partition(":")
    make = PAIRINGS[name]
    if not option:
        return make()
    if name not in ("kernel", "adjacent", "near"):
        raise DisMixError(f"pairing '{name}' takes no option", cure=f"write '{name}'")
    try:
        return make(float(option) if name == "kernel" else int(option))
    except ValueError:
        raise DisMixError(
            f"'{option}' is not a number", cure="write for example kernel:0.5 or adjacent:2"
        ) from None


def find_partners(rule: PairingRule, target: OrdinalTarget, generator: torch.Generator) -> Partners:
    """Apply a rule and check what it returns, which may come from a user's function."""
    found = rule(target, generator)
    if not isinstance(found, Partners):
        index = torch.as_tensor(found).long().cpu()
        found = Partners(index, torch.zeros(len(index), dtype=torch.bool))
    inside = (found.index >= 0) & (found.index < max(len(target), 1))
    if found.index.shape != (len(target),) or not bool(inside.all()):
        raise DisMixError(
            f"the pairing rule must return one row number for each of {len(target)} images",
            cure="return a tensor (B,) of whole numbers in 0..B-1",
        )
    return found
