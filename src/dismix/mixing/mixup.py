"""Mixup (Zhang et al., ICLR 2018): the weighted mean of two images and of their labels.

Ours draws a ratio for each pair by default (the authors': one for the batch), which has a
lower gradient variance; ``lam_mode="batch"`` is theirs. For small medical sets ratios
nearer the ends (alpha 0.2 to 0.4) are the gentler choice.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.base import Draws, ModelAccess
from dismix.mixing.pairs import Blend, PairMixer, draw_beta
from dismix.transfer import onto


class Mixup(PairMixer):
    """Blend whole images.

    Args:
        num_ranks: C.
        alpha: Of Beta(alpha, alpha), from which ratios are drawn.
        lam_mode: One ratio for each "sample" or for the "batch".
        **options: See :class:`~dismix.mixing.base.Mixer`.

    Example:
        >>> mix = Mixup(num_ranks=3, p=1.0, seed=1)
        >>> images, targets = mix(torch.arange(2.0).view(2, 1, 1, 1), torch.tensor([0, 2]))
        >>> bool(torch.isclose(images.flatten() * 2, targets @ torch.arange(3.0)).all())
        True
    """

    method = "mixup"

    def __init__(
        self,
        num_ranks: int | None = None,
        *,
        alpha: float = 1.0,
        lam_mode: Literal["sample", "batch"] = "sample",
        **options: Any,
    ) -> None:
        super().__init__(num_ranks, **options)
        if lam_mode not in ("sample", "batch"):
            raise DisMixError(f"unknown lam_mode '{lam_mode}'", cure="choose sample or batch")
        draw_beta(alpha, 0, torch.Generator())
        self.alpha, self.lam_mode = alpha, lam_mode

    def draw_lam(self, count: int) -> Tensor:
        """Draw from the Beta law."""
        if self.lam_mode == "sample":
            return draw_beta(self.alpha, count, self.generator)
        return draw_beta(self.alpha, 1, self.generator).expand(count)

    def blend(
        self, images: Tensor, target: OrdinalTarget, draws: Draws, access: ModelAccess
    ) -> Blend:
        """Return ``lam x + (1 - lam) x'``."""
        rows, partner = draws.pair_on(images.device)
        lam = onto(draws.lam, images.device).view(-1, 1, 1, 1)
        weight = lam.to(images.dtype)
        mixes = weight * images[rows] + (1 - weight) * images[partner]
        return Blend(mixes, draws.lam, lam.expand(-1, 1, *images.shape[-2:]))
