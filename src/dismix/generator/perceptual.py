"""The perceptual distance LPIPS v0.1 on VGG16 (Zhang et al. 2018).

An own forward pass instead of the `lpips` package's: it needs neither that package nor
torchvision where one weight file is at hand, computes the target's features once and without
gradients, leaves the features to autocast and keeps the distances in float32. Values equal the
package's to rounding. It cannot be built without trained weights, which are fetched only when
asked for: see `download`.
"""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from dismix import atomic
from dismix.errors import DisMixError
from dismix.generator.weights import find_weights, how_to_get, load_weights, weight_folders

WEIGHTS = "vgg16_imagenet_features_and_lpips_heads"
# Where torchvision, which the `lpips` package asks, keeps VGG16 once it has been downloaded.
_KEPT = "checkpoints/vgg16-397923af.pth"

_WIDTHS = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512)
_TAPS = {3: 64, 8: 128, 15: 256, 22: 512, 29: 512}
"""Positions of relu1_2, 2_2, 3_3, 4_3 and 5_3 in torchvision's VGG16, and their channels."""


def vgg16_features() -> nn.Sequential:
    """Build the convolutions of VGG16 at torchvision's positions; 0 marks a pooling."""
    layers: list[nn.Module] = []
    channels = 3
    for width in _WIDTHS:
        if width:
            # In place is safe: neither convolution nor ReLU needs its overwritten input again.
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        else:
            layers.append(nn.MaxPool2d(2, 2))
    return nn.Sequential(*layers)


def _unit(features: Tensor) -> Tensor:
    """Divide (B, C, H, W) by the norm over channels, in float32."""
    features = features.float()
    # The floor keeps the gradient finite where every channel is off.
    norm = features.square().sum(dim=1, keepdim=True).clamp_min(1e-20).sqrt()
    return features / (norm + 1e-10)


class LPIPS(nn.Module):
    """Frozen perceptual distance between images.

    Args:
        state: Tensors `features.N.weight`, `features.N.bias` of torchvision's VGG16 and the
            heads `lin0.weight` to `lin4.weight` (1, C, 1, 1).
        max_size: Larger images are first averaged down to this longer side.
        channels_last: Memory layout of the convolutions, faster on most GPUs.
    """

    shift: Tensor
    scale: Tensor

    def __init__(
        self,
        state: Mapping[str, Tensor],
        *,
        max_size: int | None = None,
        channels_last: bool = False,
    ) -> None:
        super().__init__()
        self.max_size = max_size
        self.features = vgg16_features()
        for position, channels in enumerate(_TAPS.values()):
            self.add_module(f"lin{position}", nn.Conv2d(channels, 1, 1, bias=False))
        try:
            self.load_state_dict(dict(state))
        except RuntimeError as error:
            problem = " ".join(str(error).split())[:200]
            raise DisMixError(
                f"not VGG16 with LPIPS heads ({problem})", cure=f"give the file {WEIGHTS}"
            ) from error
        self.register_buffer(
            "shift", torch.tensor([-0.030, -0.088, -0.188]).view(1, 3, 1, 1), False
        )
        self.register_buffer("scale", torch.tensor([0.458, 0.448, 0.450]).view(1, 3, 1, 1), False)
        self.layout = torch.channels_last if channels_last else torch.contiguous_format
        self.to(memory_format=self.layout)  # type: ignore[call-overload]
        self.requires_grad_(False)
        self.eval()

    @classmethod
    def pretrained(
        cls,
        path: str | Path | None = None,
        *,
        max_size: int | None = None,
        channels_last: bool = False,
    ) -> Self:
        """Build it from a file, else from what the `lpips` package has; nothing is downloaded.

        Args:
            path: The weight file; None searches the weight folders, then torch's own cache.
            max_size: See the class.
            channels_last: See the class.
        """
        if path is None:
            require_lpips()
        path = path or find_weights(WEIGHTS)
        state = _package_state() if path is None else load_weights(path)
        return cls(state, max_size=max_size, channels_last=channels_last)

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode: the distance is a fixed measure."""
        return super().train(False)

    def unit_features(self, images: Tensor) -> list[Tensor]:
        """Return the five unit-length feature maps of images (B, 1 or 3, H, W) in [-1, 1]."""
        x = images.expand(-1, 3, -1, -1)
        longer = max(x.shape[2:])
        if self.max_size is not None and longer > self.max_size:
            size = [round(side * self.max_size / longer) for side in x.shape[2:]]
            x = F.interpolate(x, size=size, mode="area")
        x = ((x - self.shift) / self.scale).contiguous(memory_format=self.layout)
        maps = []
        for position, layer in enumerate(self.features):
            x = layer(x)
            if position in _TAPS:
                maps.append(_unit(x))
        return maps

    @torch.no_grad()
    def target_features(self, images: Tensor) -> list[Tensor]:
        """Return features of fixed images, to be given to `forward` in place of the images."""
        return self.unit_features(images)

    def forward(self, images: Tensor, targets: Tensor | Sequence[Tensor]) -> Tensor:
        """Return the distance of each image to its target.

        Args:
            images: (B, 1 or 3, H, W) in [-1, 1]; gradients reach them.
            targets: The same shape, or what `target_features` returned for it; no gradients.

        Returns:
            (B,) float32.
        """
        known = self.target_features(targets) if isinstance(targets, Tensor) else targets
        total = images.new_zeros(len(images), dtype=torch.float32)
        for position, (found, wanted) in enumerate(
            zip(self.unit_features(images), known, strict=True)
        ):
            # A plain product and sum: autocast would run the 1x1 convolution in half precision.
            head = self.get_parameter(f"lin{position}.weight").float()
            total = total + ((found - wanted).square() * head).sum(dim=1).mean(dim=(1, 2))
        return total


def require_lpips(without: str = "") -> None:
    """Raise where there are no weights for LPIPS on this machine.

    Args:
        without: How to do without it, for the cure.
    """
    kept = (Path(torch.hub.get_dir()) / _KEPT).is_file() and find_spec("lpips") is not None
    if find_weights(WEIGHTS) is None and not kept:
        raise DisMixError(
            f"weights '{WEIGHTS}' (VGG16 for LPIPS) not found",
            cure=how_to_get(WEIGHTS) + (f", or {without}" if without else ""),
        )


def download() -> Path:
    """Fetch VGG16 by the `lpips` package and keep it with the heads where weights are looked for.

    Returns:
        The file that was written; judges and VGG16 graders start from it too.
    """
    path = weight_folders()[0] / f"{WEIGHTS}.safetensors"
    features = {key: tensor.contiguous() for key, tensor in _package_state().items()}
    with atomic.replacing(path) as temporary:
        save_file(features, temporary)
    return path


def _package_state() -> dict[str, Tensor]:
    """Return the tensors of the `lpips` package under the names used here; it may download."""
    cure = (
        f"put {WEIGHTS}.safetensors into {' or '.join(map(str, weight_folders()))}, or set "
        "DISMIX_WEIGHTS to its folder"
    )
    try:
        from dismix._compat import import_torchvision

        import_torchvision()
        import lpips

        network = lpips.LPIPS(net="vgg", verbose=False)
    except (ImportError, OSError, RuntimeError) as error:
        raise DisMixError(f"VGG16 for LPIPS cannot be had ({error})", cure=cure) from error
    state = {}
    for key, tensor in network.state_dict().items():
        parts = key.split(".")
        if parts[0] == "net":
            state[".".join(["features", *parts[2:]])] = tensor
        elif parts[0].startswith("lin") and parts[0] != "lins":
            state[f"{parts[0]}.weight"] = tensor
    return state
