"""The ordinal trunk: what the ordinal branch looks at before its projection.

The encoder's features are local, a grade is not: whether a knee is worse shows in the whole
picture. The paper reads the ordinal code from the same features as everything else
(``"none"``); a trunk gives the branch a view of its own.
"""

import math
from pathlib import Path
from typing import Literal, Self

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from dismix import atomic
from dismix.errors import DisMixError
from dismix.generator.weights import load_weights, require_weights, weight_folders

TrunkKind = Literal["none", "conv", "lite0"]
LITE0 = "tf_efficientnet_lite0"
LITE0_WEIGHTS = "tf_efficientnet_lite0_imagenet"


class _KeepsStatistics(nn.Module):
    """A module whose batch statistics can be held at those of its pretraining.

    Batches here are small, half of what passes are decoded pictures, and processes that
    share a batch would disagree.
    """

    frozen_statistics = False

    def train(self, mode: bool = True) -> Self:
        """Follow the mode; frozen batch statistics stay as they are."""
        super().train(mode)
        for module in self.modules():
            if self.frozen_statistics and isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self


class ConvTrunk(_KeepsStatistics):
    """Four convolutions on the image itself, its brightness and contrast taken away.

    Args:
        channels: Channels of the images.
        width: Channels of the result.

    Example:
        >>> ConvTrunk(1)(torch.zeros(2, 1, 64, 64), None).shape
        torch.Size([2, 32, 8, 8])
    """

    def __init__(self, channels: int, width: int = 32) -> None:
        super().__init__()
        self.out_channels = width
        self.layers = nn.Sequential(
            *_stage(channels, width // 4),
            nn.MaxPool2d(2),
            *_stage(width // 4, width // 2),
            nn.MaxPool2d(2),
            *_stage(width // 2, width),
            nn.MaxPool2d(2),
            *_stage(width, width),
        )

    def forward(self, images: Tensor, features: Tensor | None) -> Tensor:
        """Return (B, width, H/8, W/8) of images (B, channels, H, W)."""
        result: Tensor = self.layers(without_colour(images))
        return result


def _stage(before: int, after: int) -> list[nn.Module]:
    # Batch normalisation, since group normalisation learned the phantom's rank much
    # more slowly.
    conv = nn.Conv2d(before, after, 3, padding=1, bias=False)
    return [conv, nn.BatchNorm2d(after), nn.ReLU()]


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


def details(images: Tensor, cells: int = 16) -> Tensor:
    """Take the local mean of each channel away and give each image the same contrast.

    A tint, a shade and a bright patch are gone; lesions, vessels and edges remain (the usual
    preparation of fundus photographs for grading: B. Graham, Kaggle diabetic retinopathy 2015).

    Args:
        images: (B, channels, H, W).
        cells: Cells a side over which the local mean is taken.

    Example:
        >>> x = torch.rand(2, 3, 32, 32)
        >>> bool((details(x) - details(0.5 * x + 0.2)).abs().max() < 1e-2)
        True
    """
    images = images.float()
    small = F.adaptive_avg_pool2d(images, (cells, cells))
    local = F.interpolate(small, size=images.shape[-2:], mode="bilinear", align_corners=False)
    left = images - local
    return left / left.square().mean(dim=(1, 2, 3), keepdim=True).add(1e-5).sqrt()


def blurred(images: Tensor, sigma: float) -> Tensor:
    """Return images (B, channels, H, W) behind a Gaussian blur, mirrored at their edges.

    Args:
        images: Images.
        sigma: Its deviation in pixels; 0 leaves them as they are.

    Example:
        >>> stripes = torch.arange(32).remainder(2).float().expand(1, 1, 32, 32)
        >>> bool((blurred(stripes, 1.5) - 0.5).abs().max() < 1e-4)
        True
    """
    if sigma == 0:
        return images
    images = images.float()
    reach = math.ceil(3 * sigma)
    if reach >= min(images.shape[2:]):
        raise DisMixError(
            f"a blur of {sigma:g} pixels leaves nothing of pictures of {min(images.shape[2:])}",
            column="guide_blur",
            cure="give 1 or 2",
        )
    at = torch.arange(-reach, reach + 1, dtype=torch.float32, device=images.device)
    weights = (-0.5 * (at / sigma).square()).exp()
    weights = (weights / weights.sum()).expand(images.shape[1], 1, 1, -1)
    groups = images.shape[1]
    wide = F.conv2d(F.pad(images, (reach, reach, 0, 0), "reflect"), weights, groups=groups)
    tall = F.pad(wide, (0, 0, reach, reach), "reflect")
    return F.conv2d(tall, weights.transpose(2, 3), groups=groups)


class Lite0Trunk(_KeepsStatistics):
    """EfficientNet-Lite0 on the image itself: small, and pretrained where weights are at hand.

    Args:
        fine: Also give its maps of an eighth of the image's side, on which small lesions still
            have a place.

    Example:
        >>> Lite0Trunk()(torch.zeros(1, 1, 64, 64), None).shape
        torch.Size([1, 432, 4, 4])
    """

    def __init__(self, *, fine: bool = False) -> None:
        super().__init__()
        from dismix._compat import import_torchvision

        import_torchvision()
        import timm

        depths = (2, 3, 4) if fine else (3, 4)
        self.backbone = timm.create_model(LITE0, features_only=True, out_indices=depths)
        self.out_channels = sum(self.backbone.feature_info.channels())

    def forward(self, images: Tensor, features: Tensor | None) -> Tensor:
        """Return (B, F, H/16, W/16) of images (B, 1 or 3, H, W) in [-1, 1]; H/8 if fine."""
        # Its statistics are ours: pretrained on RGB in [-1, 1].
        first, *deeper = self.backbone(images.expand(-1, 3, -1, -1))
        size = first.shape[-2:]
        wide = [F.interpolate(x, size=size, mode="nearest") for x in deeper]
        return torch.cat([first, *wide], dim=1)


def start_lite0(backbone: nn.Module) -> None:
    """Give an EfficientNet-Lite0 its ImageNet weights, from the weight folders.

    Args:
        backbone: timm's model, whole or features only.

    Raises:
        DisMixError: They are not there: from random weights a guide would guide nowhere.
    """
    given = load_weights(require_weights(LITE0_WEIGHTS))
    wanted = backbone.state_dict()
    backbone.load_state_dict({name: t for name, t in given.items() if name in wanted})


def download() -> Path:
    """Fetch EfficientNet-Lite0 by timm and keep it where weights are looked for.

    Returns:
        The file that was written; graders of that backbone start from it too.
    """
    from dismix._compat import import_torchvision

    import_torchvision()
    import timm

    path = weight_folders()[0] / f"{LITE0_WEIGHTS}.safetensors"
    try:
        state = timm.create_model(LITE0, pretrained=True).state_dict()
    # Whatever the hub's client raises without a connection; it has no common base.
    except Exception as error:
        reason = str(error).strip().split("\n", 1)[0]
        raise DisMixError(
            f"EfficientNet-Lite0 cannot be had ({reason})",
            cure=f"put {path.name} into {path.parent} by hand",
        ) from error
    with atomic.replacing(path) as temporary:
        save_file({key: tensor.contiguous() for key, tensor in state.items()}, temporary)
    return path


def build_trunk(
    kind: TrunkKind, channels: int, *, fine: bool = False
) -> ConvTrunk | Lite0Trunk | None:
    """Return a trunk, or None for the paper's form.

    Args:
        kind: "none", "conv" or "lite0".
        channels: Channels of the images.
        fine: See `Lite0Trunk`; the small trunk's maps are fine already.
    """
    if kind == "none":
        return None
    trunk = ConvTrunk(channels) if kind == "conv" else Lite0Trunk(fine=fine)
    trunk.frozen_statistics = True
    return trunk
