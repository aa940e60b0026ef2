"""ResizeMix (Qin et al., 2020): the whole partner, made small, pasted into the image.

CutMix may cut a lesion away and still count its grade; here the whole partner stays in the
picture, so its label is right. Ours keeps the box within the image (the openmixup version
clips it and squeezes the partner into the rest) and draws one for each pair.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.base import Draws, ModelAccess
from dismix.mixing.cutmix import BoxDraws, box_share, inside_boxes
from dismix.mixing.pairs import Blend, PairMixer
from dismix.transfer import onto


@dataclass(frozen=True)
class Scope:
    """Smallest and largest side of the pasted picture, as shares of the image's side."""

    low: float = 0.1
    high: float = 0.8

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high <= 1:
            raise DisMixError(
                f"scope must satisfy 0 < low <= high <= 1, got ({self.low}, {self.high})"
            )


def shrunk_nearest(images: Tensor, boxes: Tensor) -> Tensor:
    """Place each whole image into its box by nearest neighbour, all boxes at once.

    Args:
        images: (M, channels, H, W).
        boxes: (M, 4) top, bottom, left, right; what lies outside is meaningless.
    """
    height, width = images.shape[-2:]
    top, bottom, left, right = onto(boxes, images.device).unsqueeze(-1).unbind(1)
    y = torch.arange(height, device=images.device) - top
    x = torch.arange(width, device=images.device) - left
    y = (y * height).div((bottom - top).clamp_min(1), rounding_mode="floor").clamp(0, height - 1)
    x = (x * width).div((right - left).clamp_min(1), rounding_mode="floor").clamp(0, width - 1)
    tall = images.gather(2, y[:, None, :, None].expand_as(images))
    return tall.gather(3, x[:, None, None, :].expand_as(images))


def shrunk_smooth(images: Tensor, boxes: Tensor) -> Tensor:
    """Place each whole image into its box, bilinear with antialiasing, one by one."""
    out = torch.zeros_like(images)
    for i, (top, bottom, left, right) in enumerate(boxes.tolist()):
        small = F.interpolate(
            images[i : i + 1].float(), (bottom - top, right - left), mode="bilinear", antialias=True
        )
        out[i, :, top:bottom, left:right] = small[0].to(out.dtype)
    return out


class ResizeMix(PairMixer):
    """Paste a small copy of the whole partner.

    Args:
        num_ranks: C.
        scope: Range of the side of the copy, as a share of the image's side.
        interpolation: "nearest" (the authors') or "bilinear" with antialiasing.
        **options: See :class:`~dismix.mixing.base.Mixer`.
    """

    method = "resizemix"

    def __init__(
        self,
        num_ranks: int | None = None,
        *,
        scope: tuple[float, float] = (0.1, 0.8),
        interpolation: Literal["nearest", "bilinear"] = "nearest",
        **options: Any,
    ) -> None:
        super().__init__(num_ranks, **options)
        if interpolation not in ("nearest", "bilinear"):
            raise DisMixError(
                f"unknown interpolation '{interpolation}'", cure="choose nearest or bilinear"
            )
        self.scope, self.interpolation = Scope(*scope), interpolation

    def draw_lam(self, count: int) -> Tensor:
        """Draw the side of the copy; the ratio is what its area leaves."""
        side = torch.rand(count, dtype=torch.float32, generator=self.generator)
        side = self.scope.low + side * (self.scope.high - self.scope.low)
        return 1 - side**2

    def draw_more(self, images: Tensor, draws: Draws) -> Draws:
        """Draw the boxes."""
        size = torch.tensor(images.shape[-2:])
        side = (1 - draws.lam.double()).sqrt()
        extent = (side[:, None] * size).long().clamp_min(1)
        place = torch.rand(len(draws), 2, generator=self.generator, dtype=torch.float64)
        start = (place * (size - extent + 1)).long()
        end = start + extent
        boxes = torch.stack([start[:, 0], end[:, 0], start[:, 1], end[:, 1]], 1)
        return BoxDraws(**vars(draws), boxes=boxes)

    def blend(
        self, images: Tensor, target: OrdinalTarget, draws: Draws, access: ModelAccess
    ) -> Blend:
        """Take the small partner within the box and the image elsewhere."""
        assert isinstance(draws, BoxDraws)
        height, width = images.shape[-2:]
        rows, partner = draws.pair_on(images.device)
        shrink = shrunk_nearest if self.interpolation == "nearest" else shrunk_smooth
        inside = inside_boxes(onto(draws.boxes, images.device), height, width)
        mixes = torch.where(inside, shrink(images[partner], draws.boxes), images[rows])
        return Blend(mixes, 1 - box_share(draws.boxes, height, width), (~inside).float())
