"""PuzzleMix (Kim et al., ICML 2020): cut along what matters, then move it into view.

A grid of n x n blocks; each block takes image, partner or half of both, such that saliency is
kept, borders between blocks are smooth and the share of the image is near a drawn ratio. The
blocks are then moved so that what matters lies where the mask shows it.

How ours differs from the authors' release: the labelling is found exactly (one minimum cut
through scipy) or by batched message passing on a GPU, where they call a graph-cut library of
a research-only licence, image by image; any channels, any height and width; one ratio for each
pair instead of one for the batch; saliency is computed only for the images that are mixed. The
adversarial option is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.base import Draws, ModelAccess
from dismix.mixing.fitting import Normalisation
from dismix.mixing.graph_cut import solve_exactly
from dismix.mixing.grid_energy import GridEnergy
from dismix.mixing.message_passing import solve_nearly
from dismix.mixing.pairs import Blend, PairMixer, draw_beta
from dismix.mixing.saliency import pair_saliency, unit_sum
from dismix.mixing.transport import assign, move_blocks
from dismix.mixing.weights import weights_of
from dismix.transfer import onto

Solver = Literal["auto", "exact", "bp"]


@dataclass(frozen=True)
class PuzzleDraws(Draws):
    """Draws with the number of blocks on a side, one for the batch."""

    side: int


@dataclass(frozen=True)
class PuzzleWeights:
    """Weights of the energy, with the authors' defaults.

    Attributes:
        beta: Of equal labels on neighbouring blocks.
        gamma: Of smooth pixels across borders, relative to beta.
        eta: Of the drawn ratio.
        neigh_size: Pixels that are averaged along a border.
        labels: 2 (whole blocks only), 3 or more steps between the images.
    """

    beta: float = 1.2
    gamma: float = 0.5
    eta: float = 0.2
    neigh_size: int = 4
    labels: int = 3

    def __post_init__(self) -> None:
        if self.labels < 2 or self.neigh_size < 1:
            raise DisMixError(
                f"labels is {self.labels} and neigh_size {self.neigh_size}",
                cure="give at least 2 labels and 1 pixel",
            )


def border_costs(first: Tensor, second: Tensor, side: int, neigh: int) -> tuple[Tensor, Tensor]:
    """Return how unlike the pixels on both sides of block borders are.

    Args:
        first: Images (B, channels, H, W) in [0, 1], H and W multiples of n.
        second: Their partners.
        side: n.
        neigh: Pixels that are averaged along a border.

    Returns:
        ``down`` (B, 2, 2, n-1, n) and ``right`` (B, 2, 2, n, n-1): the cost when the upper or
        left block comes from p and the other from q, where 1 is the image, 0 the partner.
    """
    tall, wide = (max(1, size // side // neigh) for size in first.shape[-2:])
    # Adaptive: blocks that are no multiple of the averaged pixels still get whole cells.
    cells = [F.adaptive_avg_pool2d(x, (side * tall, side * wide)) for x in (second, first)]
    # (B, source, channels, n, tall, n, wide)
    grid = torch.stack(cells, 1).reshape(len(first), 2, -1, side, tall, side, wide)
    bottom, top = grid[:, :, :, :-1, -1], grid[:, :, :, 1:, 0]
    down = (bottom.unsqueeze(2) - top.unsqueeze(1)).abs().mean((3, 6))
    end, start = grid[:, :, :, :, :, :-1, -1], grid[:, :, :, :, :, 1:, 0]
    right = (end.unsqueeze(2) - start.unsqueeze(1)).abs().mean((3, 5))
    return down, right


def puzzle_energy(
    saliency: tuple[Tensor, Tensor],
    borders: tuple[Tensor, Tensor],
    lam: Tensor,
    weights: PuzzleWeights,
) -> GridEnergy:
    """Build the energy whose labels l give the image the weight ``1 - l / (L - 1)``.

    Args:
        saliency: Of image and partner, (B, n, n) each, sums of one.
        borders: From :func:`border_costs`.
        lam: (B,) drawn ratios.
        weights: Of the terms.
    """
    own, other = saliency
    side, steps = own.shape[-1], weights.labels - 1
    beta = weights.beta / (16 * side)
    down, right = (beta * weights.gamma * x for x in borders)
    take, leave = other.clone(), own.clone()
    for cost, dim in ((down, 1), (right, 2)):
        near, far = [0, 0, 0, 0], [0, 0, 0, 0]
        near[2 * (2 - dim) + 1] = far[2 * (2 - dim)] = 1
        take = take + F.pad((cost[:, 1, 0] + cost[:, 1, 1]) / 2, near)
        take = take + F.pad((cost[:, 0, 1] + cost[:, 1, 1]) / 2, far)
        leave = leave + F.pad((cost[:, 0, 1] + cost[:, 0, 0]) / 2, near)
        leave = leave + F.pad((cost[:, 1, 0] + cost[:, 0, 0]) / 2, far)
    edges = [(c[:, 1, 0] + c[:, 0, 1] - c[:, 1, 1] - c[:, 0, 0]) / 2 + beta for c in (down, right)]
    share = 1 - torch.arange(weights.labels, device=own.device, dtype=own.dtype) / steps
    choose = torch.tensor([comb(steps, k) for k in range(weights.labels)], device=own.device)
    part = lam[:, None].to(own)
    law = choose * part ** (share * steps) * (1 - part) ** ((1 - share) * steps)
    prior = -(law + 1e-8).log() * (weights.eta / side**2)
    keep = share.view(1, -1, 1, 1)
    unary = keep * take.unsqueeze(1) + (1 - keep) * leave.unsqueeze(1) + prior[:, :, None, None]
    return GridEnergy(unary, edges[0], edges[1])


class PuzzleMix(PairMixer):
    """Cut and move blocks by saliency.

    Args:
        num_ranks: C.
        alpha: Of Beta(alpha, alpha), from which ratios are drawn.
        blocks: Blocks on a side, one of these is drawn for each batch.
        transport: Whether blocks are moved.
        t_eps: Price of moving.
        mean: Of the images' normalisation, so that pixels can be put back into [0, 1].
        std: Likewise.
        solver: "exact", "bp" (message passing on the images' device), or "auto": bp on a GPU.
        clean_lam: When positive, ``info.clean_loss`` holds the loss of the clean images with
            its graph, to be added by the caller with this weight.
        weights: Of the energy's terms.
        **options: See :class:`~dismix.mixing.base.Mixer`; a ``model`` or a ``saliency_fn`` is
            needed here or at the call.
    """

    method = "puzzlemix"
    needs_saliency = True

    def __init__(
        self,
        num_ranks: int | None = None,
        *,
        alpha: float = 1.0,
        blocks: Sequence[int] = (2, 4, 8, 16),
        transport: bool = True,
        t_eps: float = 0.8,
        mean: float | Sequence[float] = 0.5,
        std: float | Sequence[float] = 0.5,
        solver: Solver = "auto",
        clean_lam: float = 0.0,
        weights: PuzzleWeights | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(num_ranks, **options)
        draw_beta(alpha, 0, torch.Generator())
        if solver not in ("auto", "exact", "bp"):
            raise DisMixError(f"unknown solver '{solver}'", cure="choose auto, exact or bp")
        if not blocks or min(blocks) < 2:
            raise DisMixError(f"is {tuple(blocks)}", column="blocks", cure="give numbers from 2 on")
        self.alpha, self.blocks, self.transport, self.t_eps = alpha, tuple(blocks), transport, t_eps
        self.norm, self.solver = Normalisation(mean, std), solver
        self.clean_lam, self.weights = clean_lam, weights_of(PuzzleWeights, weights)

    def draw_lam(self, count: int) -> Tensor:
        """Draw from the Beta law."""
        return draw_beta(self.alpha, count, self.generator)

    def draw_more(self, images: Tensor, draws: Draws) -> Draws:
        """Draw the number of blocks on a side; small images allow fewer."""
        fitting = [n for n in self.blocks if n <= min(images.shape[-2:])]
        if not fitting:
            raise DisMixError(
                f"images of {tuple(images.shape[-2:])} pixels hold no {min(self.blocks)} blocks",
                cure="give larger images, or fewer blocks",
            )
        chosen = int(torch.randint(len(fitting), (1,), generator=self.generator))
        return PuzzleDraws(**vars(draws), side=fitting[chosen])

    def blend(
        self, images: Tensor, target: OrdinalTarget, draws: Draws, access: ModelAccess
    ) -> Blend:
        """Find saliency, the best mask, move the blocks and blend."""
        assert isinstance(draws, PuzzleDraws)
        own, other, clean_loss = pair_saliency(
            access, images, target, draws, method=self.method, keep_loss=self.clean_lam > 0
        )
        rows, partner = draws.pair_on(images.device)
        height, width = images.shape[-2:]
        side = draws.side
        # Blocks must be equal: sizes that n does not divide grow at the far borders.
        pad = (0, -width % side, 0, -height % side)
        first, second = (_padded(images[i], pad) for i in (rows, partner))
        maps = tuple(_block_saliency(_padded(s, pad), side) for s in (own, other))
        mask = self.best_mask((maps[0], maps[1]), (first, second), draws)
        if self.transport:
            # Both at once: on a GPU the auction costs launches, not arithmetic.
            wanted = torch.cat([mask > 0, mask < 1])
            moved = self._moved(torch.cat([first, second]), torch.cat(maps), wanted)
            first, second = moved.chunk(2)
        tall, wide = first.shape[-2] // side, first.shape[-1] // side
        whole = mask.repeat_interleave(tall, 1).repeat_interleave(wide, 2).unsqueeze(1)
        weight = whole.to(images.dtype)
        mixes = weight * first + (1 - weight) * second
        whole = whole[..., :height, :width]
        lam = whole.mean((1, 2, 3))
        return Blend(mixes[..., :height, :width], lam, whole, clean_loss)

    def best_mask(
        self, saliency: tuple[Tensor, Tensor], pictures: tuple[Tensor, Tensor], draws: PuzzleDraws
    ) -> Tensor:
        """Return masks (M, n, n), the weight of the image in each block."""
        pixels = [self.norm.unit(x) for x in pictures]
        borders = border_costs(pixels[0], pixels[1], draws.side, self.weights.neigh_size)
        lam = onto(draws.lam, saliency[0].device)
        energy = puzzle_energy(saliency, borders, lam, self.weights)
        # Rounding may leave edges a little below 0, which no solver takes.
        energy = GridEnergy(energy.unary, energy.down.clamp_min(0), energy.right.clamp_min(0))
        gpu = energy.unary.device.type != "cpu"
        exact = self.solver == "exact" or (self.solver == "auto" and not gpu)
        labels = solve_exactly(energy) if exact else solve_nearly(energy)
        return 1 - labels.float() / (self.weights.labels - 1)

    def _moved(self, images: Tensor, saliency: Tensor, wanted: Tensor) -> Tensor:
        side = saliency.shape[-1]
        source = assign(saliency.flatten(1), wanted.flatten(1), side, self.t_eps)
        return move_blocks(images, source, side)


def _padded(x: Tensor, pad: tuple[int, int, int, int]) -> Tensor:
    return F.pad(x, pad, mode="replicate") if any(pad) else x


def _block_saliency(maps: Tensor, side: int) -> Tensor:
    return unit_sum(F.adaptive_avg_pool2d(maps.unsqueeze(1), side).squeeze(1))
