"""The ordinal trunk: what the ordinal branch looks at before its projection.

The encoder's features are local, a grade is not: whether a knee is worse shows in the whole
picture. The paper reads the ordinal code from the same features as everything else
(``"none"``); a trunk gives the branch a view of its own.
"""

from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TrunkKind = Literal["none", "conv", "lite0"]
LITE0 = "tf_efficientnet_lite0"


class ConvTrunk(nn.Module):
    """Four convolutions on the image itself, its brightness and contrast taken away.

    Args:
        channels: Channels of the images.
        width: Channels of the result.

    Example:
        >>> ConvTrunk(1)(torch.zeros(2, 1, 64, 64), None).shape
        torch.Size([2, 64, 8, 8])
    """

    def __init__(self, channels: int, width: int = 64) -> None:
        super().__init__()
        self.out_channels = width
        self.layers = nn.Sequential(
            *_stage(channels, width // 4, 2),
            *_stage(width // 4, width // 2, 1),
            nn.MaxPool2d(2),
            *_stage(width // 2, width, 1),
            nn.MaxPool2d(2),
            *_stage(width, width, 1),
        )

    def forward(self, images: Tensor, features: Tensor | None) -> Tensor:
        """Return (B, width, H/8, W/8) of images (B, channels, H, W)."""
        result: Tensor = self.layers(without_colour(images))
        return result


def _stage(before: int, after: int, stride: int) -> list[nn.Module]:
    # Without normalisation the pooled features of different images hardly differ, and no
    # rank is learned from them; batch statistics would differ between processes.
    conv = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
    return [conv, nn.GroupNorm(8, after), nn.ReLU()]


def without_colour(images: Tensor) -> Tensor:
    """Take each channel's mean and spread out of each image.

    Args:
        images: (B, channels, H, W).

    Example:
        >>> x = torch.rand(2, 3, 8, 8)
        >>> bool((without_colour(x) - without_colour(0.5 * x + 0.2)).abs().max() < 1e-2)
        True
    """
    images = images.float()
    mean = images.mean(dim=(2, 3), keepdim=True)
    spread = (images - mean).square().mean(dim=(2, 3), keepdim=True).add(1e-4).sqrt()
    return (images - mean) / spread


class Lite0Trunk(nn.Module):
    """EfficientNet-Lite0 on the image itself: small, and pretrained where weights are at hand.

    Example:
        >>> Lite0Trunk()(torch.zeros(1, 1, 64, 64), None).shape
        torch.Size([1, 432, 4, 4])
    """

    def __init__(self) -> None:
        super().__init__()
        from dismix._compat import import_torchvision

        import_torchvision()
        import timm

        self.backbone = timm.create_model(LITE0, features_only=True, out_indices=(3, 4))
        self.out_channels = sum(self.backbone.feature_info.channels())

    def train(self, mode: bool = True) -> Self:
        """Follow the mode, but keep the batch statistics of the pretraining.

        Batches here are small, and half of what passes are decoded pictures.
        """
        super().train(mode)
        for module in self.backbone.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self

    def forward(self, images: Tensor, features: Tensor | None) -> Tensor:
        """Return (B, F, H/16, W/16) of images (B, 1 or 3, H, W) in [-1, 1]."""
        # Its statistics are ours: pretrained on RGB in [-1, 1].
        middle, deep = self.backbone(images.expand(-1, 3, -1, -1))
        deep = F.interpolate(deep, size=middle.shape[-2:], mode="nearest")
        return torch.cat([middle, deep], dim=1)


def build_trunk(kind: TrunkKind, channels: int) -> ConvTrunk | Lite0Trunk | None:
    """Return a trunk, or None for the paper's form.

    Args:
        kind: "none", "conv" or "lite0".
        channels: Channels of the images.
    """
    if kind == "conv":
        return ConvTrunk(channels)
    return Lite0Trunk() if kind == "lite0" else None
