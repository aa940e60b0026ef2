"""Batches in which neighbours in order are neighbours in rank: partners from the whole set.

C-Mixup and DisMix look for partners in the whole training split; a transform sees only its
batch, in which a rare grade may be missing. This sampler puts an image's partner beside it,
and ``pairing="consecutive"`` mixes them.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from dismix.errors import DisMixError
from dismix.given_numbers import given_numbers
from dismix.labels import OrdinalTarget
from dismix.mixing.base import Targets
from dismix.mixing.streams import process_count, process_number
from dismix.seeds import rng_of


class OrdinalPairSampler(torch.utils.data.Sampler[list[int]]):
    """Yield batches whose position 2k+1 is the partner of position 2k.

    Every image is an anchor once in an epoch; partners are drawn rank first, then uniformly
    within the rank, which costs O(C^2) tables instead of C-Mixup's N x N matrix. Processes of one
    training share the batches out; where these do not come out even some are met twice.

    Args:
        target: Targets of the whole training split: an ``OrdinalTarget``, whole numbers (N,) or
            probabilities (N, C).
        batch_size: Even.
        sigma: C-Mixup's kernel in ranks; None pairs adjacent ranks only.
        seed: With the epoch it fixes the order, see :meth:`set_epoch`. The same in all processes.
        rank: Which process this is; what torch.distributed or the launcher says by default.
        world_size: How many share the batches, likewise. Give 1 where a framework shares out
            the batches of any sampler, as accelerate does.

    Example:
        >>> target = OrdinalTarget.from_labels([0, 0, 1, 1, 2], num_ranks=3)
        >>> batches = list(OrdinalPairSampler(target, 4, sigma=None))
        >>> gaps = [abs(int(target.hard[b[0]] - target.hard[b[1]])) for b in batches]
        >>> len(batches), gaps
        (3, [1, 1, 1])
    """

    def __init__(
        self,
        target: Targets,
        batch_size: int,
        *,
        sigma: float | None = 1.0,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        if batch_size < 2 or batch_size % 2:
            raise DisMixError(f"batch_size is {batch_size}", cure="give an even number")
        target = _coerced(target)
        self.hard, self.batch_size, self.seed, self.epoch = target.hard.cpu(), batch_size, seed, 0
        self.rank, self.world_size = rank, world_size
        if rank is not None and world_size is not None:
            self._share()
        self.table = rank_table(self.hard.bincount(minlength=target.num_ranks), sigma)
        self.members = [(self.hard == k).nonzero().squeeze(1) for k in range(target.num_ranks)]

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        count = self._share()[1]
        return (self._batches() + count - 1) // count

    def __iter__(self) -> Iterator[list[int]]:
        generator = rng_of(self.seed, self.epoch)
        order = torch.randperm(len(self.hard), generator=generator)
        partners = self._partners(order, generator)
        flat = torch.stack([order, partners], 1).flatten().tolist()
        (number, count), batches = self._share(), self._batches()
        for turn in range(len(self)):
            # As many for every process, or some would wait for the others' gradients for ever.
            start = (turn * count + number) % batches * self.batch_size
            yield flat[start : start + self.batch_size]

    def _batches(self) -> int:
        """Return how many batches all processes have together."""
        pairs = self.batch_size // 2
        return (len(self.hard) + pairs - 1) // pairs

    def _share(self) -> tuple[int, int]:
        """Return which process this is of how many; asked late, when processes know."""
        count = process_count() if self.world_size is None else self.world_size
        number = self.rank
        if number is None:
            number = process_number() if count > 1 else 0
        if not 0 <= number < count:
            raise DisMixError(
                f"this is process {number} of {count}",
                cure="give rank=, counted from 0, together with world_size=",
            )
        return number, count

    def _partners(self, anchors: Tensor, generator: torch.Generator) -> Tensor:
        ranks = torch.multinomial(self.table[self.hard[anchors]], 1, generator=generator)
        place = torch.rand(len(anchors), generator=generator, dtype=torch.float64)
        partners = torch.empty_like(anchors)
        for i, (rank, at) in enumerate(zip(ranks.flatten().tolist(), place.tolist(), strict=True)):
            members = self.members[rank]
            chosen = int(at * len(members))
            if members[chosen] == anchors[i]:
                chosen = (chosen + 1) % len(members)
            partners[i] = members[chosen]
        return partners


def _coerced(target: Targets) -> OrdinalTarget:
    """Return targets up to the highest rank there is; nobody is paired with higher ones."""
    if isinstance(target, OrdinalTarget):
        return target
    given = given_numbers(target, "targets")
    ranks = given.shape[1] if given.ndim == 2 else max([1, *given.flatten().long().tolist()]) + 1
    return OrdinalTarget.coerce(given, ranks)


def rank_table(counts: Tensor, sigma: float | None) -> Tensor:
    """Return the law (C, C) of a partner's rank given the anchor's.

    Args:
        counts: (C,) images of each rank.
        sigma: Deviation of the kernel in ranks; None: the nearest ranks that have images, one
            step away where there are some.

    Example:
        >>> rank_table(torch.tensor([2, 1, 0]), 1.0)[0]
        tensor([0.6225, 0.3775, 0.0000], dtype=torch.float64)
    """
    ranks = torch.arange(len(counts), dtype=torch.float64)
    gap = (ranks[:, None] - ranks).abs()
    there = counts > 0
    if sigma is None:
        other = torch.where(there & (gap > 0), gap, torch.inf)
        # A split of one rank has no neighbours: it pairs with itself.
        nearest = other.amin(1, keepdim=True)
        weight = torch.where(nearest.isinf(), (gap == 0) & there, other == nearest) * counts
    else:
        # One image less of the own rank: nobody is paired with itself.
        weight = (counts - (gap == 0).long()).clamp_min(0) * torch.exp(-(gap**2) / (2 * sigma**2))
        weight = torch.where(weight.sum(1, keepdim=True) > 0, weight, (gap == 0) * 1.0)
    total = weight.double().sum(1, keepdim=True)
    return torch.where(total > 0, weight / total.clamp_min(1e-300), 1.0 / len(counts))
