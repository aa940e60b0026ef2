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
    """Three convolutions over the encoder's features, at a quarter of their resolution.

    Args:
        channels: Channels of the encoder's features.
        width: Channels of the result.

    Example:
        >>> ConvTrunk(16)(None, torch.zeros(2, 16, 16, 16)).shape
        torch.Size([2, 64, 4, 4])
    """

    def __init__(self, channels: int, width: int = 64) -> None:
        super().__init__()
        self.out_channels = width
        self.layers = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
            nn.ReLU(),
        )

    def forward(self, images: Tensor | None, features: Tensor) -> Tensor:
        """Return (B, width, h/4, w/4) of features (B, channels, h, w)."""
        result: Tensor = self.layers(features)
        return result


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
        channels: Channels of the encoder's features.
    """
    if kind == "conv":
        return ConvTrunk(channels)
    return Lite0Trunk() if kind == "lite0" else None
