"""Mixers of two images: they only say how an image and its partner become one."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.base import Draws, Mixer, ModelAccess
from dismix.mixing.info import Mixed, MixInfo
from dismix.transfer import onto


@dataclass(frozen=True)
class Blend:
    """The mixes of M pairs.

    Attributes:
        images: (M, channels, H, W).
        lam: (M,) float32, the weight of the first image in the label.
        mask: (M, 1, H, W) its weight at each pixel, or None where there is none.
        clean_loss: See :class:`MixInfo`.
        partner: (M,) batch rows of partners, when the draws could not know them.
    """

    images: Tensor
    lam: Tensor
    mask: Tensor | None = None
    clean_loss: Tensor | None = None
    partner: Tensor | None = None


def draw_beta(alpha: float, count: int, generator: torch.Generator) -> Tensor:
    """Draw (M,) ratios from Beta(alpha, alpha).

    Example:
        >>> draw_beta(1.0, 2, torch.Generator().manual_seed(0)).shape
        torch.Size([2])
    """
    if not alpha > 0:
        raise DisMixError(f"alpha must be positive, got {alpha}")
    # Two gamma draws; torch's Beta takes no generator. Double, so that a small alpha does not
    # underflow to 0/0.
    shape = torch.full((2, count), float(alpha), dtype=torch.float64)
    first, second = torch._standard_gamma(shape, generator=generator).clamp_min(1e-300)
    lam: Tensor = first / (first + second)
    return lam.float()


class RowMixer(Mixer):
    """Base of mixers that replace rows one by one; sub-classes write :meth:`blend`."""

    def draw(self, images: Tensor, target: OrdinalTarget) -> Draws:
        """Draw rows, partners and ratios; :meth:`draw_more` adds what a method needs."""
        rows = self.draw_rows(len(images))
        partners = self.draw_partners(target, rows)
        draws = Draws(rows, partners.index, self.draw_lam(len(rows)), partners.fell_back)
        return self.draw_more(images, draws)

    @abstractmethod
    def draw_lam(self, count: int) -> Tensor:
        """Draw the ratios (M,)."""

    def draw_more(self, images: Tensor, draws: Draws) -> Draws:
        """Add the method's own choices to the draws."""
        return draws

    @abstractmethod
    def blend(
        self, images: Tensor, target: OrdinalTarget, draws: Draws, access: ModelAccess
    ) -> Blend:
        """Make the M mixes of the rows that were drawn, M >= 1."""

    def replay(
        self, images: Tensor, target: OrdinalTarget, draws: Draws, access: ModelAccess
    ) -> Mixed:
        """Put the mixes into a copy of the batch, with their targets."""
        if not len(draws):
            return Mixed(images, target, MixInfo.unchanged(self.method, target))
        blend = self.blend(images, target, draws, access)
        partner = draws.partner if blend.partner is None else blend.partner
        return assemble(self.method, images, target, draws, blend, partner)


class PairMixer(RowMixer):
    """Base of mixers that make one picture of two."""


def assemble(
    method: str,
    images: Tensor,
    target: OrdinalTarget,
    draws: Draws,
    blend: Blend,
    partner: Tensor,
) -> Mixed:
    """Return the batch in which the drawn rows are replaced by their mixes."""
    device, batch = images.device, len(images)
    rows, partner = onto(draws.rows, device), onto(partner, device)
    base = MixInfo.unchanged(method, target)
    lam = base.lam.index_copy(0, rows, onto(blend.lam.float(), device))
    index = base.index.index_copy(0, rows, partner)
    mixed = base.mixed.index_fill(0, rows, True)
    weight = lam.unsqueeze(1)
    probs = weight * target.probs + (1 - weight) * target.probs[index]
    out = OrdinalTarget(probs, target.clean & ~mixed)
    mask = None
    if blend.mask is not None:
        shown = blend.mask.float()
        mask = shown.new_ones(batch, *shown.shape[1:]).index_copy(0, rows, shown)
    fell_back = torch.zeros_like(mixed).index_copy(0, rows, onto(draws.fell_back, device))
    info = MixInfo(
        method, lam, index, mixed, target, out, mask,
        fell_back=fell_back, clean_loss=blend.clean_loss,
    )  # fmt: skip
    # A clone keeps the memory format, which index_copy itself does not.
    made = images.clone().index_copy_(0, rows, blend.images.to(images.dtype))
    return Mixed(made, out, info)
