"""GuidedMixup (Kang and Kim, AAAI 2023): every pixel by the saliency of both images.

Partners are those whose evidence lies elsewhere: one cycle through the mixed images, from each
to the farthest that is left. The weight of a pixel is its share of saliency, and the label's
ratio the mean weight; there is no random ratio, so mixes are always strong.

How ours differs from the authors' release: partners really are chosen greedily (theirs asks for
a name that its pairing does not know and pairs at random in the CIFAR script); distances are
taken on maps of at most 64 x 64 (a gigabyte less); equal shares where both maps are empty;
images of one channel. With ``p_mode="sample"`` the cycle goes through the drawn images.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.base import Draws, ModelAccess
from dismix.mixing.pairing import PairingRule
from dismix.mixing.pairs import Blend, PairMixer
from dismix.mixing.saliency import find_saliency, gaussian_blur, spectral_saliency, unit_sum
from dismix.transfer import onto


@dataclass(frozen=True)
class GuidedDraws(Draws):
    """Draws whose partners are chosen by the maps; the drawn one is for a lone image."""


def greedy_cycle(distances: Tensor) -> Tensor:
    """Return partners (M,): from the farthest pair on, each goes to the farthest one left.

    Args:
        distances: (M, M), M >= 2.

    Example:
        >>> greedy_cycle(torch.tensor([[0., 1., 9.], [1., 0., 2.], [9., 2., 0.]]))
        tensor([2, 0, 1])
    """
    table = distances.double().cpu().clone().fill_diagonal_(-torch.inf)
    count = len(table)
    start = int(table.argmax()) // count
    partner = torch.empty(count, dtype=torch.long)
    # Nobody goes back to the start before all have been visited.
    table[:, start] = -torch.inf
    here = start
    for _ in range(count - 1):
        there = int(table[here].argmax())
        partner[here] = there
        table[:, there] = -torch.inf
        here = there
    partner[here] = start
    return partner


def map_distances(maps: Tensor, size: int) -> Tensor:
    """Return L2 distances (M, M) of maps (M, H, W) pooled to at most ``size`` on a side."""
    height, width = (min(size, side) for side in maps.shape[-2:])
    small = F.adaptive_avg_pool2d(maps.unsqueeze(1), (height, width)).flatten(1)
    return torch.cdist(small, small, compute_mode="donot_use_mm_for_euclid_dist")


class GuidedMixup(PairMixer):
    """Weigh pixels by saliency.

    Args:
        num_ranks: C.
        saliency: "sr" (spectral residual, no model), or "grad" (gradient of the loss). A
            ``saliency_fn`` goes before both.
        blur: Side of the Gaussian window that smooths the maps.
        sigma: Its deviation.
        pairing: "saliency_greedy", or a rule as for other mixers.
        distance_size: Side to which maps are pooled for the distances.
        clean_lam: See :class:`~dismix.mixing.puzzlemix.PuzzleMix`; "grad" only.
        **options: See :class:`~dismix.mixing.base.Mixer`.

    Example:
        >>> mix = GuidedMixup(num_ranks=3, p=1.0)
        >>> images, targets = mix(torch.rand(4, 1, 32, 32), torch.tensor([0, 1, 2, 2]))
        >>> images.shape, targets.shape
        (torch.Size([4, 1, 32, 32]), torch.Size([4, 3]))
    """

    method = "guidedmixup"
    needs_saliency = True

    def __init__(
        self,
        num_ranks: int | None = None,
        *,
        saliency: Literal["sr", "grad"] = "sr",
        blur: int = 7,
        sigma: float = 3.0,
        pairing: str | PairingRule = "saliency_greedy",
        distance_size: int = 64,
        clean_lam: float = 0.0,
        **options: Any,
    ) -> None:
        greedy = pairing == "saliency_greedy"
        super().__init__(num_ranks, pairing="random" if greedy else pairing, **options)
        self.greedy = greedy
        if saliency not in ("sr", "grad"):
            raise DisMixError(f"unknown saliency '{saliency}'", cure="choose sr or grad")
        if blur < 1 or blur % 2 == 0 or distance_size < 1:
            raise DisMixError(
                f"blur is {blur} and distance_size {distance_size}",
                cure="give an odd blur and a distance_size above 0",
            )
        if clean_lam > 0 and saliency == "sr":
            raise DisMixError(
                "the spectral residual looks at no loss", column="clean_lam",
                cure="give saliency='grad', or leave clean_lam at 0",
            )  # fmt: skip
        self.saliency, self.blur, self.sigma = saliency, blur, sigma
        self.distance_size, self.clean_lam = distance_size, clean_lam

    def draw(self, images: Tensor, target: OrdinalTarget) -> Draws:
        """Draw rows; partners too, for when the maps do not choose them."""
        draws = super().draw(images, target)
        return GuidedDraws(**vars(draws)) if self.greedy else draws

    def draw_lam(self, count: int) -> Tensor:
        """Return a half for all: the pictures decide."""
        return torch.full((count,), 0.5, dtype=torch.float32)

    def maps(
        self, images: Tensor, target: OrdinalTarget, access: ModelAccess
    ) -> tuple[Tensor, Tensor | None]:
        """Return smooth maps (M, H, W) of sum one, and the clean loss if asked for."""
        clean_loss = None
        if self.saliency == "sr" and access.saliency_fn is None:
            raw = spectral_saliency(images)
        else:
            found = find_saliency(
                access, images, target, method=self.method, keep_loss=self.clean_lam > 0
            )
            raw, clean_loss = found.maps, found.clean_loss
        with torch.autocast(images.device.type, enabled=False):
            return unit_sum(gaussian_blur(unit_sum(raw), self.blur, self.sigma)), clean_loss

    def blend(
        self, images: Tensor, target: OrdinalTarget, draws: Draws, access: ModelAccess
    ) -> Blend:
        """Find maps and partners, and weigh the pixels."""
        needed, place = torch.unique(torch.cat([draws.rows, draws.partner]), return_inverse=True)
        there = onto(needed, images.device)
        with torch.no_grad():
            maps, clean_loss = self.maps(images[there], target[there], access)
        partner = draws.partner
        first, second = place.chunk(2)
        if isinstance(draws, GuidedDraws) and len(draws) > 1:
            with torch.autocast(images.device.type, enabled=False):
                apart = map_distances(maps, self.distance_size)
            second = greedy_cycle(apart)
            partner = needed[second]
        first, second = onto(first, images.device), onto(second, images.device)
        own, other = maps[first], maps[second]
        mask = (own / (own + other)).unsqueeze(1)
        weight = mask.to(images.dtype)
        rows, beside = onto(draws.rows, images.device), onto(partner, images.device)
        mixes = weight * images[rows] + (1 - weight) * images[beside]
        return Blend(mixes, mask.mean((1, 2, 3)), mask, clean_loss, partner)
