"""Who may be mixed with whom: the images of a split by rank, and the ranks next to a rank.

``adjacent``  a neighbouring rank, the paper's rule
``near``      a neighbouring rank or the anchor's own, whatever images there are

A rare rank between two common ones is the only neighbour that these have. By the paper's rule each
of its images then becomes a partner a dozen times as often as any other, and mixes have other
ranks than images have: of five votes on IDRiD 8 % are for grade 1, of those on mixes 23 %, of
those for grade 0 half are gone (`benchmarks/mix_ranks.py`). With ``near`` every image within one
rank is equally likely, so pairs go both ways alike and mixes have nearly the ranks of the images.
"""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from dismix.errors import DisMixError

#: Who may be a partner, see above.
DisMixPairing = Literal["adjacent", "near"]
#: From here on it is said that adjacent pairs take images of one rank too often.
SKEWED = 5.0


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
        near: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Choose a partner of a neighbouring rank for each anchor, or of a near one.

        Args:
            ranks: (B,) long, the anchors' ranks.
            uniform: (B,) numbers within [0, 1).
            rows: (B,) rows of the anchors, -1 where unknown; an anchor is never its own
                partner unless it is the only image of its rank and has no neighbour.
            balanced: All ranks that partners may have are equally likely, however many images
                they have.
            near: Partners may have the anchor's own rank too.

        Returns:
            Rows of the partners (B,), and whether a neighbouring rank has any image (B,).
        """
        ranks, uniform = ranks.cpu(), uniform.cpu().double()
        place = self._places_within(ranks, rows)
        first = torch.stack([self._starts[ranks + step] for step in range(3)], 1)
        counts = torch.stack([self._starts[ranks + step + 1] for step in range(3)], 1) - first
        adjacent = (counts[:, 0] > 0) | (counts[:, 2] > 0)
        counts[:, 1] -= (place >= 0).long()
        if not near:
            counts[:, 1] = 0
        group, offset = _drawn(uniform, (counts > 0).long() if balanced else counts)
        count = counts.gather(1, group[:, None])[:, 0]
        found_any = counts.sum(1) > 0
        position = ((offset * count) if balanced else offset).long()
        # The anchor itself is stepped over.
        position = position + ((group == 1) & (place >= 0) & (position >= place)).long()
        found = first.gather(1, group[:, None])[:, 0] + position
        # paper: silent on ranks without neighbours; a partner of the same rank stands in.
        same = self._same_rank(ranks, uniform, place)
        return self.order[torch.where(found_any, found, same)], adjacent

    def _places_within(self, ranks: Tensor, rows: Tensor | None) -> Tensor:
        """Return the places of anchors (B,) among the images of their rank, -1 where unknown."""
        if rows is None or not len(self.order):
            return torch.full_like(ranks, -1)
        rows = rows.cpu()
        place = self._place[rows.clamp_min(0)] - self._starts[ranks + 1]
        inside = (rows >= 0) & (place >= 0) & (place < self.counts[ranks])
        return torch.where(inside, place, -1)

    def _same_rank(self, ranks: Tensor, uniform: Tensor, place: Tensor) -> Tensor:
        """Return positions in ``order`` of images of the same rank, other than the anchor."""
        first, count = self._starts[ranks + 1], self.counts[ranks]
        if bool((count == 0).any()) and not len(self.order):
            raise DisMixError("the latent store is empty", cure="encode the training split")
        inside = (place >= 0) & (count > 1)
        position = (uniform * (count - inside.long())).long()
        position = position + (inside & (position >= place)).long()
        # A rank that no image has borrows the nearest place in the order.
        return (first + position).clamp(max=len(self.order) - 1)

    def busiest(self) -> tuple[int, float]:
        """Return the rank whose images are adjacent partners most often, and how often.

        Returns:
            The rank, and how many times more often than in equal shares.

        Example:
            >>> ranks = torch.arange(3).repeat_interleave(torch.tensor([8, 1, 8]))
            >>> rank, times = PartnerIndex(ranks, num_ranks=3).busiest()
            >>> rank, round(times, 1)
            (1, 16.0)
        """
        counts = self.counts.double()
        around = F.pad(counts, (1, 1))
        beside = around[:-2] + around[2:]
        # How often each partner of an anchor of this rank is taken.
        each = F.pad(torch.where(beside > 0, counts / beside, 0.0), (1, 1))
        times = torch.where(counts > 0, each[:-2] + each[2:], 0.0)
        return int(times.argmax()), float(times.max())

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


def skew_note(index: PartnerIndex, names: Sequence[str]) -> str:
    """Say where adjacent pairs would give mixes quite other ranks than the images have.

    Args:
        index: Of a training split.
        names: Of its ranks.

    Example:
        >>> ranks = torch.arange(3).repeat_interleave(torch.tensor([8, 1, 8]))
        >>> skew_note(PartnerIndex(ranks, 3), ["none", "mild", "severe"])[:64]
        "the image of rank 'mild' is a partner 16 times as often as its s"
        >>> skew_note(PartnerIndex(torch.arange(30) % 3, 3), ["none", "mild", "severe"])
        ''
    """
    rank, times = index.busiest()
    if times < SKEWED:
        return ""
    count = int(index.counts[rank])
    who = "the image" if count == 1 else f"the {count} images"
    are, their = ("is a partner", "its") if count == 1 else ("are partners", "their")
    return (
        f"{who} of rank '{names[rank]}' {are} {times:.0f} times as often as {their} share, so mixes"
        " have other ranks than the images; pairing=near keeps the ranks (docs/mixing.md)"
    )


def asked_rank(
    ranks: Tensor, uniform: Tensor, counts: Tensor, *, balanced: bool = False, near: bool = False
) -> Tensor:
    """Choose a rank (B,) that ``generate_and_mix`` asks for, among those that images have.

    # paper: silent on which; each neighbouring rank is equally likely, whatever images it has.

    Args:
        ranks: (B,) long, the anchors' ranks.
        uniform: (B,) numbers within [0, 1).
        counts: (C,) images of each rank. Where neither neighbour has any, one on the scale is
            returned all the same.
        near: The anchor's own rank may be asked for too, and each as often as it has images.
        balanced: With ``near``, each of the three equally often.

    Example:
        >>> ranks, uniform = torch.tensor([0, 1, 2]), torch.tensor([0.1, 0.9, 0.1])
        >>> asked_rank(ranks, uniform, torch.tensor([3, 3, 3, 3]))
        tensor([1, 2, 1])
        >>> asked_rank(ranks, uniform, torch.tensor([3, 0, 3, 3]))
        tensor([1, 2, 3])
        >>> asked_rank(ranks, uniform, torch.tensor([9, 1, 9, 9]), near=True)
        tensor([0, 2, 2])
    """
    top = len(counts) - 1
    low = (ranks > 0) & (counts[(ranks - 1).clamp_min(0)] > 0)
    high = (ranks < top) & (counts[(ranks + 1).clamp(max=top)] > 0)
    if near:
        around = F.pad(counts, (1, 1))
        images = torch.stack([around[ranks + step] for step in range(3)], 1)
        group, _ = _drawn(uniform.double(), (images > 0).long() if balanced else images)
        return torch.where(low | high, ranks + group - 1, ranks + torch.where(ranks < top, 1, -1))
    down = torch.where(low == high, uniform < 0.5, low)
    down = torch.where(ranks == 0, False, torch.where(ranks == top, True, down))
    return ranks + torch.where(down, -1, 1)


def _drawn(uniform: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Return which of three (B,) is drawn in proportion to shares (B, 3), and how far into it."""
    scaled, ends = uniform * shares.sum(1), shares.cumsum(1)
    group = (scaled[:, None] >= ends).sum(1).clamp(max=2)
    return group, scaled - (ends - shares).gather(1, group[:, None])[:, 0]
