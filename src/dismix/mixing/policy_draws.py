"""Random choices of DisMix's mixing, drawn before anything is decoded.

One row of uniform numbers makes one mix, so the first n mixes of a seed are the same however
many are drawn, and a draw written to a table replays the same picture.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from dismix.errors import DisMixError
from dismix.registry import near_names
from dismix.transfer import onto

POLICIES = ("ordinal_mix", "nonordinal_mix", "order_swap", "generate_and_mix")
ORDINAL_MIX, NONORDINAL_MIX, ORDER_SWAP, GENERATE_AND_MIX = range(4)
#: Names for several policies; "combined" is the paper's default.
GROUPS = {
    "combined": POLICIES,
    "preserving": ("nonordinal_mix", "order_swap"),
    "interpolating": ("ordinal_mix", "generate_and_mix"),
}
#: Uniform numbers that one mix takes: policy, lam, giver, partner, asked rank.
NUMBERS = 5
# lam lies strictly between the two pictures.
_EDGE = 1e-4


def named_policies(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return the policies that a name, a group or a list of both stands for.

    Example:
        >>> named_policies("preserving")
        ('nonordinal_mix', 'order_swap')
        >>> named_policies(["order_swap", "interpolating"])
        ('ordinal_mix', 'order_swap', 'generate_and_mix')
    """
    wanted: set[str] = set()
    for name in [names] if isinstance(names, str) else names:
        if name not in GROUPS and name not in POLICIES:
            raise DisMixError(
                f"unknown policy '{name}'", cure=near_names(name, [*POLICIES, *GROUPS])
            )
        wanted |= set(GROUPS.get(name, (name,)))
    if not wanted:
        raise DisMixError("no policy was given", cure="choose one of " + ", ".join(POLICIES))
    return tuple(name for name in POLICIES if name in wanted)


@dataclass(frozen=True)
class PolicyDraws:
    """How B mixes are made, all but their anchors.

    Attributes:
        policy: (B,) long, positions in `POLICIES`.
        lam: (B,) float32 within (0, 1), share of the anchor.
        from_partner: (B,) bool: what is not interpolated comes from the partner (from the
            generated picture for ``generate_and_mix``). For ``order_swap`` it is the ordinal
            code that comes from the partner; the non-ordinal one is then the anchor's.
        partner: (B,) long, rows of the latent store.
        asked: (B,) long, the neighbouring rank that ``generate_and_mix`` asks for, one that
            some image has.
        adjacent: (B,) bool, false where no image of a neighbouring rank was to be had.
    """

    policy: Tensor
    lam: Tensor
    from_partner: Tensor
    partner: Tensor
    asked: Tensor
    adjacent: Tensor

    def __len__(self) -> int:
        return len(self.policy)

    def __getitem__(self, index: Tensor | slice) -> "PolicyDraws":
        return PolicyDraws(*(getattr(self, field.name)[index] for field in fields(self)))

    def to(self, device: torch.device | str) -> "PolicyDraws":
        """Move all choices to a device."""
        return PolicyDraws(*(onto(getattr(self, field.name), device) for field in fields(self)))


class PartnerIndex:
    """Rows of a split sorted by rank, from which partners of neighbouring ranks are drawn.

    Args:
        ranks: (N,) whole ranks of the images that may be partners.
        num_ranks: C.

    Example:
        >>> index = PartnerIndex(torch.tensor([0, 0, 1, 3]), num_ranks=4)
        >>> index.choose(torch.tensor([0, 1, 3]), torch.tensor([0.0, 0.9, 0.0]))
        (tensor([2, 1, 3]), tensor([ True,  True, False]))
    """

    def __init__(self, ranks: Tensor, num_ranks: int) -> None:
        ranks = ranks.cpu().long()
        if len(ranks) and not bool(((ranks >= 0) & (ranks < num_ranks)).all()):
            wrong = ranks[(ranks < 0) | (ranks >= num_ranks)][0]
            raise DisMixError(
                f"rank {int(wrong)} is outside 0..{num_ranks - 1}",
                cure="use a manifest with the generator's ranks",
            )
        self.num_ranks, self.ranks = num_ranks, ranks
        self.order = torch.argsort(ranks, stable=True)
        self.counts = torch.bincount(ranks, minlength=num_ranks)
        # With an empty rank at either end, every rank has two neighbours.
        self._starts = torch.cat([torch.zeros(2, dtype=torch.long), self.counts.cumsum(0)])
        self._starts = torch.cat([self._starts, self._starts[-1:]])
        self._place = torch.empty_like(self.order)
        self._place[self.order] = torch.arange(len(ranks))

    def require_two_ranks(self, where: object = None) -> None:
        """Raise when all images have the same rank: there is nothing to mix across."""
        present = torch.nonzero(self.counts).flatten().tolist()
        if len(present) < 2:
            name = f"all images have rank {present[0]}" if present else "there are no images"
            raise DisMixError(
                f"{name} in the training split",
                file=None if where is None else str(where),
                cure="mixing needs images of two ranks: check the split and the votes",
            )

    def choose(
        self,
        ranks: Tensor,
        uniform: Tensor,
        rows: Tensor | None = None,
        *,
        balanced: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Choose a partner of a neighbouring rank for each anchor.

        Args:
            ranks: (B,) long, the anchors' ranks.
            uniform: (B,) numbers within [0, 1).
            rows: (B,) rows of the anchors, -1 where unknown; an anchor is never its own
                partner unless it is the only image of its rank and has no neighbour.
            balanced: Both neighbouring ranks are equally likely, however many images they have.

        Returns:
            Rows of the partners (B,), and whether they are of a neighbouring rank (B,).
        """
        ranks, uniform = ranks.cpu(), uniform.cpu().double()
        starts = self._starts
        low, high = starts[ranks + 1] - starts[ranks], starts[ranks + 3] - starts[ranks + 2]
        if balanced:
            take_low = torch.where((low > 0) & (high > 0), uniform < 0.5, low > 0)
            both = (low > 0) & (high > 0)
            uniform = torch.where(
                both, torch.where(take_low, 2 * uniform, 2 * uniform - 1), uniform
            )
            low, high = torch.where(take_low, low, 0), torch.where(take_low, 0, high)
        position = (uniform * (low + high)).long()
        neighbour = torch.where(
            position < low, starts[ranks] + position, starts[ranks + 2] + position - low
        )
        adjacent = low + high > 0
        # paper: silent on ranks without neighbours; a partner of the same rank stands in.
        same = self._same_rank(ranks, uniform, rows)
        return self.order[torch.where(adjacent, neighbour, same)], adjacent

    def _same_rank(self, ranks: Tensor, uniform: Tensor, rows: Tensor | None) -> Tensor:
        """Return positions in ``order`` of images of the same rank, other than the anchor."""
        first, count = self._starts[ranks + 1], self.counts[ranks]
        if bool((count == 0).any()) and not len(self.order):
            raise DisMixError("the latent store is empty", cure="encode the training split")
        own = torch.full_like(ranks, -1)
        if rows is not None:
            known = rows.cpu() >= 0
            own = torch.where(known, self._place[rows.cpu().clamp_min(0)] - first, own)
        inside = (own >= 0) & (own < count) & (count > 1)
        position = (uniform * (count - inside.long())).long()
        position = position + (inside & (position >= own)).long()
        # A rank that no image has borrows the nearest place in the order.
        return (first + position).clamp(max=len(self.order) - 1)

    def of_rank(self, rows: Tensor, shift: float) -> Tensor:
        """Return images (B,) of the ranks of given ones, so far along their rank, in a circle.

        Args:
            rows: (B,) rows to start from.
            shift: Share of the rank's images to go on by; 0 returns the rows themselves.

        Example:
            >>> index = PartnerIndex(torch.tensor([1, 0, 1, 1]), num_ranks=2)
            >>> index.of_rank(torch.tensor([0, 1, 3]), 0.5)
            tensor([2, 1, 0])
        """
        ranks = self.ranks[rows]
        first, count = self._starts[ranks + 1], self.counts[ranks]
        place = self._place[rows] - first + (shift * count).long()
        return self.order[first + place % count]

    def anchors(self, uniform: Tensor, *, balanced: bool = False) -> Tensor:
        """Choose anchors (B,) by numbers (B,) within [0, 1).

        Args:
            uniform: (B,).
            balanced: All ranks that have images are equally likely, so rare ones get more.
        """
        uniform = uniform.cpu().double()
        if not balanced:
            return self.order[(uniform * len(self.order)).long()]
        present = torch.nonzero(self.counts).flatten()
        scaled = uniform * len(present)
        which = scaled.long().clamp(max=len(present) - 1)
        rank = present[which]
        inside = ((scaled - which) * self.counts[rank]).long()
        return self.order[self._starts[rank + 1] + torch.minimum(inside, self.counts[rank] - 1)]


def draw_numbers(count: int, generator: torch.Generator, numbers: int = NUMBERS) -> Tensor:
    """Draw what ``count`` mixes take: (count, numbers) float64 within [0, 1), row by row."""
    return torch.rand(count, numbers, generator=generator, dtype=torch.float64)


def policy_draws(
    numbers: Tensor,
    ranks: Tensor,
    partners: PartnerIndex,
    policies: Sequence[str] = POLICIES,
    *,
    rows: Tensor | None = None,
    alpha: float = 1.0,
    balanced: bool = False,
    reach: float = 1.0,
) -> PolicyDraws:
    """Turn uniform numbers into choices.

    Where no image has a neighbouring rank, ``generate_and_mix`` has no rank to ask for and
    becomes ``ordinal_mix`` with the partner that stands in.

    # paper: lam may be anything, and what is not interpolated comes from either image. With
    # ``reach`` below 1 a mix stays near its anchor: lam is at least ``1 - reach``, and what is
    # not interpolated is the anchor's. MixMatch (Berthelot et al. 2019) takes max(lam, 1 - lam)
    # for the same reason; ``order_swap`` has no lam and stays as it is.

    Args:
        numbers: (B, 5) from `draw_numbers`.
        ranks: (B,) long, the anchors' ranks.
        partners: The images that may be partners.
        policies: One of them is drawn uniformly for each mix.
        rows: (B,) rows of the anchors, -1 where unknown.
        alpha: lam follows Beta(alpha, alpha); 1 is uniform.
        balanced: See `PartnerIndex.choose`.
        reach: Largest share of the partner, above 0; 1 is the paper's.

    Example:
        >>> partners = PartnerIndex(torch.tensor([0, 1, 2]), num_ranks=3)
        >>> numbers = draw_numbers(2, torch.Generator().manual_seed(0))
        >>> policy_draws(numbers, torch.tensor([0, 1]), partners).partner
        tensor([1, 2])
    """
    numbers, ranks = numbers.cpu(), ranks.cpu().long()
    known = torch.tensor([POLICIES.index(name) for name in policies])
    policy = known[(numbers[:, 0] * len(known)).long().clamp(max=len(known) - 1)]
    partner, adjacent = partners.choose(ranks, numbers[:, 3], rows, balanced=balanced)
    policy = torch.where((policy == GENERATE_AND_MIX) & ~adjacent, ORDINAL_MIX, policy)
    lam, from_partner = _beta(numbers[:, 1], alpha), numbers[:, 2] < 0.5
    if reach < 1:
        lam = 1 - reach * (1 - lam)
        from_partner &= policy == ORDER_SWAP
    return PolicyDraws(
        policy=policy,
        lam=lam.clamp(_EDGE, 1 - _EDGE).float(),
        from_partner=from_partner,
        partner=partner,
        asked=neighbouring_rank(ranks, numbers[:, 4], partners.counts),
        adjacent=adjacent,
    )


def neighbouring_rank(ranks: Tensor, uniform: Tensor, counts: Tensor) -> Tensor:
    """Choose one of the ranks (B,) next to the given ones among those that images have.

    Args:
        ranks: (B,) long.
        uniform: (B,) numbers within [0, 1).
        counts: (C,) images of each rank. Where neither neighbour has any, one on the scale is
            returned all the same.

    Example:
        >>> ranks, uniform = torch.tensor([0, 1, 2]), torch.tensor([0.1, 0.9, 0.1])
        >>> neighbouring_rank(ranks, uniform, torch.tensor([3, 3, 3, 3]))
        tensor([1, 2, 1])
        >>> neighbouring_rank(ranks, uniform, torch.tensor([3, 0, 3, 3]))
        tensor([1, 2, 3])
    """
    top = len(counts) - 1
    low = (ranks > 0) & (counts[(ranks - 1).clamp_min(0)] > 0)
    high = (ranks < top) & (counts[(ranks + 1).clamp(max=top)] > 0)
    down = torch.where(low == high, uniform < 0.5, low)
    down = torch.where(ranks == 0, False, torch.where(ranks == top, True, down))
    return ranks + torch.where(down, -1, 1)


def _beta(uniform: Tensor, alpha: float) -> Tensor:
    """Return quantiles of Beta(alpha, alpha)."""
    if not alpha > 0:
        raise DisMixError(f"alpha is {alpha:g}", cure="give a number above 0")
    if alpha == 1.0:
        return uniform
    from scipy.special import betaincinv

    return torch.from_numpy(betaincinv(alpha, alpha, uniform.numpy()))
