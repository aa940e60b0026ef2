"""Co-Mixup (Kim et al., ICLR 2021): a set of images becomes a set of mixes of 1 to 3 each.

The mixed images of a batch are divided into partitions of at most 20; within a partition every
output is put together from blocks of all its images, such that saliency is kept, blocks hang
together, and outputs differ from each other.

How ours differs from the authors' release: own solver, batched over partitions, whose steps
are taken only if they lower the cost, in place of a graph-cut library of a research-only
licence in processes of their own; partitions of equal size, so that the last batch of an epoch
works; any channels, height and width. A mix has no "own" image, so with ``p_mode="sample"`` the
drawn images form the partitions among themselves. Without ``clean_lam`` the authors ask for a
smaller alpha and give none: ours is then 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.base import Draws, Mixer, ModelAccess
from dismix.mixing.comix_solver import CoMixProblem, CoMixSolver, CoMixWeights
from dismix.mixing.info import Mixed, MixInfo
from dismix.mixing.saliency import find_saliency, unit_sum
from dismix.mixing.uncompiled import uncompiled
from dismix.mixing.weights import weights_of
from dismix.transfer import onto


@dataclass(frozen=True)
class CoDraws(Draws):
    """Draws of partitions.

    Attributes:
        parts: (P, m) long, positions within ``needed``; -1 fills up.
        needed: (S,) long, the batch rows that serve as sources; the first M are ``rows``.
        start: (P, m, N) uniform numbers, from which the first sources come.
        shares: (P, m) drawn shares of the sources, sums of one.
    """

    parts: Tensor
    needed: Tensor
    start: Tensor
    shares: Tensor


class CoMixup(Mixer):
    """Put outputs together from the blocks of a whole set of images.

    Args:
        num_ranks: C.
        blocks: Blocks on a side.
        part: Most images in a partition.
        alpha: Of the Dirichlet law of the sources' shares; by default 2 with ``clean_lam``,
            1 without.
        clean_lam: See :class:`~dismix.mixing.puzzlemix.PuzzleMix`; the authors use 1.
        weights: Of the objective.
        **options: See :class:`~dismix.mixing.base.Mixer`; a ``model`` or a ``saliency_fn`` is
            needed here or at the call. Partner rules have no meaning here.
    """

    method = "comixup"
    needs_saliency = True

    def __init__(
        self,
        num_ranks: int | None = None,
        *,
        blocks: int = 4,
        part: int = 20,
        alpha: float | None = None,
        clean_lam: float = 0.0,
        weights: CoMixWeights | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(num_ranks, **options)
        if self.pairing != "random":
            raise DisMixError(
                "comixup has no partners, so a pairing rule has no effect", cure="leave pairing out"
            )
        if blocks < 2 or part < 2:
            raise DisMixError(f"blocks and part must be at least 2, got {blocks} and {part}")
        self.blocks, self.part, self.clean_lam = blocks, part, clean_lam
        self.alpha = alpha if alpha is not None else (2.0 if clean_lam > 0 else 1.0)
        if not self.alpha > 0:
            raise DisMixError(f"alpha must be positive, got {alpha}")
        self.weights = weights_of(CoMixWeights, weights)

    def draw(self, images: Tensor, target: OrdinalTarget) -> CoDraws:
        """Draw rows, partitions, first labellings and shares."""
        rows = self.draw_rows(len(images))
        needed = rows
        if len(rows) == 1:
            # One image alone would stay as it is: any other one serves as a second source.
            other = int(torch.randint(len(images) - 1, (1,), generator=self.generator))
            needed = torch.cat([rows, torch.tensor([other + (other >= int(rows[0]))])])
        count = -(-len(needed) // self.part) if len(rows) else 0
        parts = self._partition(len(needed), count)
        size = parts.shape[1] if count else 0
        cells = count, size, self.blocks**2
        start = torch.rand(cells, dtype=torch.float32, generator=self.generator)
        shape = torch.full((count, size), self.alpha, dtype=torch.float64)
        shares = torch._standard_gamma(shape, generator=self.generator).clamp_min(1e-30)
        shares = shares.masked_fill(parts < 0, 1e-30)
        shares = shares / shares.sum(1, keepdim=True)
        nothing = torch.zeros(len(rows), dtype=torch.bool)
        lam = torch.ones(len(rows), dtype=torch.float32)
        return CoDraws(rows, rows, lam, nothing, parts, needed, start, shares)

    def _partition(self, sources: int, count: int) -> Tensor:
        """Divide sources at random into partitions of nearly equal size."""
        if not count:
            return torch.zeros(0, 0, dtype=torch.long)
        size = -(-sources // count)
        order = torch.randperm(sources, generator=self.generator)
        return F.pad(order, (0, size * count - sources), value=-1).view(size, count).T.contiguous()

    def replay(
        self, images: Tensor, target: OrdinalTarget, draws: Draws, access: ModelAccess
    ) -> Mixed:
        """Find saliency, solve the labelling, put the outputs together."""
        assert isinstance(draws, CoDraws)
        if not len(draws):
            return Mixed(images, target, MixInfo.unchanged(self.method, target))
        needed = onto(draws.needed, images.device)
        found = find_saliency(
            access, images[needed], target[needed], method=self.method, keep_loss=self.clean_lam > 0
        )
        cells = self.solve(found.maps, draws)
        fresh, weights, mask = self.assemble(images[needed], cells[: len(draws)])
        return self._result(images, target, draws, fresh, weights, mask, found.clean_loss)

    @uncompiled
    def solve(self, maps: Tensor, draws: CoDraws) -> Tensor:
        """Return the two sources (S, N, 2) of each block, positions within ``needed``."""
        saliency = unit_sum(F.adaptive_avg_pool2d(maps.unsqueeze(1), self.blocks)).flatten(1)
        # One transfer: whatever waits for the GPU waits once.
        table = torch.cat([saliency, salient_places(maps)], 1).double().cpu().numpy()
        parts = draws.parts.numpy()
        problem = comix_problem(table, parts, draws.shares.numpy(), self.blocks, self.weights)
        real = parts >= 0
        start = (draws.start.numpy() * real.sum(1)[:, None, None]).astype(np.int64)
        solved = CoMixSolver(problem, start).run()
        cells = np.zeros((len(table), self.blocks**2, 2), dtype=np.int64)
        source = parts[np.arange(len(parts))[:, None, None, None], solved]
        cells[parts[real]] = source[real]
        return torch.from_numpy(cells)

    def assemble(self, images: Tensor, cells: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return outputs (M, ...), the sources' shares (M, S), and own weights (M, 1, H, W)."""
        side, (height, width) = self.blocks, images.shape[-2:]
        tall, wide = -(-height // side), -(-width // side)
        outputs, there = len(cells), onto(cells, images.device)
        own = (cells == torch.arange(outputs)[:, None, None]).float().mean(2)
        own = onto(own, images.device)
        fresh = torch.zeros_like(images[:outputs])
        mask = own.new_ones(outputs, 1, height, width)
        for cell in range(side * side):
            top, left = cell // side * tall, cell % side * wide
            where = (..., slice(top, top + tall), slice(left, left + wide))
            part, (first, second) = images[where], there[:, cell].unbind(1)
            # Exact where both are the same source.
            fresh[where] = (part[first] + part[second]) / 2
            mask[where] = own[:, cell, None, None, None]
        return fresh, cell_shares(cells, len(images), side, (height, width)), mask

    def _result(
        self,
        images: Tensor,
        target: OrdinalTarget,
        draws: CoDraws,
        fresh: Tensor,
        shares: Tensor,
        own: Tensor,
        clean_loss: Tensor | None,
    ) -> Mixed:
        batch, device = len(images), images.device
        weights = torch.eye(batch, dtype=shares.dtype)
        weights[draws.rows] = 0.0
        weights[draws.rows[:, None], draws.needed] = shares
        others = weights.clone().fill_diagonal_(-1.0)
        index = torch.where(others.amax(1) > 0, others.argmax(1), torch.arange(batch))
        mixed = torch.zeros(batch, dtype=torch.bool)
        mixed[draws.rows] = True
        weights, index, mixed = (onto(x, device) for x in (weights, index, mixed))
        rows = onto(draws.rows, device)
        # Not a matrix product: autocast would round labels to bfloat16.
        probs = (weights.unsqueeze(2) * target.probs).sum(1)
        out = OrdinalTarget(probs, target.clean & ~mixed)
        mask = own.new_ones(batch, *own.shape[1:]).index_copy(0, rows, own)
        info = MixInfo(
            self.method, weights.diagonal().clone(), index, mixed, target, out, mask, weights,
            torch.zeros_like(mixed), clean_loss,
        )  # fmt: skip
        # A clone keeps the memory format, which index_copy itself does not.
        made = images.clone().index_copy_(0, rows, fresh.to(images.dtype))
        return Mixed(made, out, info)


def salient_places(maps: Tensor) -> Tensor:
    """Return row and column (S, 2) of the most salient window of maps (S, H, W)."""
    size = min(8, *maps.shape[-2:])
    # The authors slide over small images and step over large ones.
    stride = 1 if min(maps.shape[-2:]) <= 64 else size
    pooled = F.avg_pool2d(maps.unsqueeze(1), size, stride).squeeze(1)
    best = pooled.flatten(1).argmax(1)
    across = pooled.shape[-1]
    return torch.stack([best // across, best % across], 1).to(maps.dtype)


def comix_problem(
    table: np.ndarray[Any, np.dtype[np.float64]],
    parts: np.ndarray[Any, np.dtype[np.int64]],
    shares: np.ndarray[Any, np.dtype[np.float64]],
    side: int,
    weights: CoMixWeights,
) -> CoMixProblem:
    """Build the problem of all partitions.

    Args:
        table: (S, N + 2) saliency of the blocks, then row and column of the most salient place.
        parts: (P, m) positions in the table, -1 fills up.
        shares: (P, m) drawn shares of the sources.
        side: Blocks on a side.
        weights: Of the objective.
    """
    real = parts >= 0
    rows = table[np.maximum(parts, 0)]
    saliency, places = rows[..., :-2], rows[..., -2:]
    cost = -saliency - (weights.eta / side**2) * np.log(np.maximum(shares, 1e-30))[..., None]
    cost = np.where(real[..., None], cost, 1e3)
    gap = np.abs(places[:, :, None] - places[:, None]).sum(-1)
    gap = gap * (real[:, :, None] & real[:, None])
    total = np.maximum(gap.sum((1, 2), keepdims=True), 1e-12)
    gap = gap / total * real.sum(1)[:, None, None]
    compat = (1 - weights.omega) * np.eye(parts.shape[1]) + weights.omega * gap
    return CoMixProblem(cost, compat, real, side, weights)


def cell_shares(cells: Tensor, sources: int, side: int, size: tuple[int, int]) -> Tensor:
    """Return the area share (M, S) of each source; blocks cut at the border count less."""
    extent = []
    for length in size:
        block = -(-length // side)
        edges = (torch.arange(side + 1) * block).clamp_max(length)
        extent.append(edges.diff().float() / length)
    area = (extent[0][:, None] * extent[1]).flatten()
    shares = area.new_zeros(len(cells), sources)
    for half in cells.unbind(-1):
        shares.scatter_add_(1, half, (area / 2).expand(len(cells), -1))
    return shares
