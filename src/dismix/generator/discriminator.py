"""PatchGAN with two heads: realism of each patch, and the rank of the image.

The trunk is latent-diffusion's ``NLayerDiscriminator`` (Isola et al., 2017) with its key
names, so the discriminator of a published first stage can start this one.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

Norm = Literal["batch", "group", "instance", "spectral", "none"]


@dataclass(frozen=True)
class DiscriminatorOutput:
    """What the discriminator says.

    Attributes:
        realism: (B, 1, h', w'), towards 1 for real patches and 0 for made ones.
        rank_logits: (B, C-1).
    """

    realism: Tensor
    rank_logits: Tensor


class Discriminator(nn.Module):
    """Judges realism and rank.

    Args:
        num_ranks: C.
        in_channels: Image channels.
        width: Channels of the first convolution (``ndf``), at most eight times that later.
        num_layers: Strided convolutions (``n_layers``); vq-f8 was trained with 2.
        norm: "batch" is the original; it mixes the samples of a batch, so take another one
            for small batches or several processes.
        conditional: Judge whether a patch is real *for the rank* of its image (a projection
            on an embedding of the levels), which a tint does not satisfy.

    Example:
        >>> judge = Discriminator(num_ranks=5, in_channels=1, width=8)
        >>> output = judge(torch.zeros(2, 1, 64, 64))
        >>> output.realism.shape, output.rank_logits.shape
        (torch.Size([2, 1, 6, 6]), torch.Size([2, 4]))
    """

    def __init__(
        self,
        num_ranks: int,
        in_channels: int = 3,
        *,
        width: int = 64,
        num_layers: int = 3,
        norm: Norm = "batch",
        conditional: bool = False,
    ) -> None:
        super().__init__()
        widths = [width * min(2**i, 8) for i in range(num_layers + 1)]
        layers: list[nn.Module] = [_conv(in_channels, width, 2, norm), nn.LeakyReLU(0.2)]
        for i, (before, after) in enumerate(pairwise(widths)):
            stride = 2 if i < num_layers - 1 else 1
            layers += [_conv(before, after, stride, norm, bias=norm != "batch")]
            layers += [*_norm(after, norm), nn.LeakyReLU(0.2)]
        self.main = nn.Sequential(*layers, _conv(widths[-1], 1, 1, norm))
        self.rank_head = nn.Linear(widths[-1], num_ranks - 1)
        self.embed = nn.Linear(num_ranks - 1, widths[-1]) if conditional else None
        self._initialise()

    def features(self, images: Tensor) -> Tensor:
        """Return the shared features (B, F, h'', w'') before the realism convolution."""
        x = images
        for layer in list(self.main)[:-1]:
            x = layer(x)
        return x

    def forward(self, images: Tensor, levels: Tensor | None = None) -> DiscriminatorOutput:
        """Judge images.

        Args:
            images: (B, channels, H, W) in [-1, 1].
            levels: (B, C-1) the images should show; only a conditional one looks at them.
        """
        features = self.features(images)
        # paper: silent on what the linear classifier sees of the features; here their mean.
        # Pooled in float32: a mean over many patches loses bits in half precision.
        pooled = features.float().mean(dim=(2, 3)).to(self.rank_head.weight.dtype)
        realism = self.main[-1](features)
        if self.embed is not None and levels is not None:
            wanted = self.embed(levels.to(self.embed.weight.dtype)) * features.shape[1] ** -0.5
            match = (features * wanted[:, :, None, None]).sum(dim=1, keepdim=True)
            realism = realism + F.interpolate(match, size=realism.shape[-2:], mode="area")
        return DiscriminatorOutput(realism, self.rank_head(pooled))

    @torch.no_grad()
    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d) and not nn.utils.parametrize.is_parametrized(module):
                nn.init.normal_(module.weight, 0.0, 0.02)
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.weight, 1.0, 0.02)


def _conv(before: int, after: int, stride: int, norm: Norm, bias: bool = True) -> nn.Module:
    conv = nn.Conv2d(before, after, kernel_size=4, stride=stride, padding=1, bias=bias)
    return spectral_norm(conv) if norm == "spectral" else conv


def _norm(width: int, norm: Norm) -> list[nn.Module]:
    if norm == "batch":
        return [nn.BatchNorm2d(width)]
    if norm == "group":
        groups = next(g for g in (32, 16, 8, 4, 2, 1) if width % g == 0 and width >= 2 * g)
        return [nn.GroupNorm(groups, width)]
    if norm == "instance":
        return [nn.InstanceNorm2d(width, affine=True)]
    return []
