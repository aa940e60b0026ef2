"""CutMix (Yun et al., ICCV 2019): a box of the partner pasted into the image.

The label's ratio is the area that is left of the image after the box was clipped at the
border; ``correct_lam=False`` keeps the ratio that was drawn, which some have found better.
The authors draw one box for a batch, ours draws one for each pair; the half sides are
rounded down on both sides of the centre, as torchvision does.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dismix.labels import OrdinalTarget
from dismix.mixing.base import Draws, ModelAccess
from dismix.mixing.pairs import Blend, PairMixer, draw_beta
from dismix.transfer import onto


@dataclass(frozen=True)
class BoxDraws(Draws):
    """Draws with a box for each mix.

    Attributes:
        boxes: (M, 4) long: top, bottom, left, right of the part that the partner fills.
    """

    boxes: Tensor


def centred_boxes(lam: Tensor, centres: Tensor, height: int, width: int) -> Tensor:
    """Return boxes (M, 4) of the share ``1 - lam`` round centres (M, 2), clipped.

    Example:
        >>> centred_boxes(torch.tensor([0.75]), torch.tensor([[1, 4]]), 8, 8)
        tensor([[0, 3, 2, 6]])
    """
    # Double, as torchvision computes them: a half side may lie on a whole number.
    half = 0.5 * (1.0 - lam.double()).sqrt()
    tall, wide = (half * height).long(), (half * width).long()
    y, x = centres.unbind(1)
    return torch.stack(
        [
            (y - tall).clamp_min(0),
            (y + tall).clamp_max(height),
            (x - wide).clamp_min(0),
            (x + wide).clamp_max(width),
        ],
        1,
    )


def inside_boxes(boxes: Tensor, height: int, width: int) -> Tensor:
    """Return (M, 1, H, W) bool, True within the boxes (M, 4)."""
    y = torch.arange(height, device=boxes.device)
    x = torch.arange(width, device=boxes.device)
    top, bottom, left, right = boxes.unsqueeze(-1).unbind(1)
    tall, wide = (y >= top) & (y < bottom), (x >= left) & (x < right)
    return (tall.unsqueeze(2) & wide.unsqueeze(1)).unsqueeze(1)


def box_share(boxes: Tensor, height: int, width: int) -> Tensor:
    """Return the share (M,) of the image that boxes (M, 4) cover."""
    top, bottom, left, right = boxes.double().unbind(1)
    return ((bottom - top) * (right - left) / (height * width)).float()


class CutMix(PairMixer):
    """Paste a box of the partner.

    Args:
        num_ranks: C.
        alpha: Of Beta(alpha, alpha), from which the shares are drawn.
        correct_lam: Label by the area that was really pasted.
        **options: See :class:`~dismix.mixing.base.Mixer`.

    Example:
        >>> mix = CutMix(num_ranks=3, p=1.0, seed=1)
        >>> images = torch.arange(2.0).view(2, 1, 1, 1).expand(2, 1, 8, 8)
        >>> images, targets = mix(images, torch.tensor([0, 2]))
        >>> bool(torch.isclose(images.mean((1, 2, 3)) * 2, targets @ torch.arange(3.0)).all())
        True
    """

    method = "cutmix"

    def __init__(
        self,
        num_ranks: int | None = None,
        *,
        alpha: float = 1.0,
        correct_lam: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(num_ranks, **options)
        draw_beta(alpha, 0, torch.Generator())
        self.alpha, self.correct_lam = alpha, correct_lam

    def draw_lam(self, count: int) -> Tensor:
        """Draw from the Beta law."""
        return draw_beta(self.alpha, count, self.generator)

    def draw_more(self, images: Tensor, draws: Draws) -> Draws:
        """Draw the boxes."""
        height, width = images.shape[-2:]
        place = torch.rand(len(draws), 2, generator=self.generator, dtype=torch.float64)
        centres = (place * torch.tensor([height, width])).long()
        boxes = centred_boxes(draws.lam, centres, height, width)
        return BoxDraws(**vars(draws), boxes=boxes)

    def blend(
        self, images: Tensor, target: OrdinalTarget, draws: Draws, access: ModelAccess
    ) -> Blend:
        """Take the partner within the box and the image elsewhere."""
        assert isinstance(draws, BoxDraws)
        height, width = images.shape[-2:]
        rows, partner = draws.pair_on(images.device)
        inside = inside_boxes(onto(draws.boxes, images.device), height, width)
        lam = 1 - box_share(draws.boxes, height, width) if self.correct_lam else draws.lam
        return Blend(torch.where(inside, images[partner], images[rows]), lam, (~inside).float())
