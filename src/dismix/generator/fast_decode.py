"""Decoding as fast as the card allows: for mixing, where the generator is frozen.

Four things, none of which changes what is decoded beyond rounding:

- weights in bfloat16 and channels_last, so that nothing is cast again and again;
- nearest-neighbour doubling followed by a 3 x 3 convolution is one transposed convolution of the
  small picture, 4 x 4 with stride 2: 16 multiplications instead of 36, and the doubled picture is
  never written;
- torch.compile on a GPU, which fuses GroupNorm and SiLU, the slow part of eager decoding;
- without it, biases, residuals and ReLUs go with their convolutions (`conv_relu`).
"""

import copy
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dismix.generator.autoencoder import Upsample
from dismix.generator.codes import Codes
from dismix.generator.model import Generator


class FoldedUpsample(nn.Module):
    """Doubling and a 3 x 3 convolution in one transposed convolution.

    Args:
        conv: The convolution (padding 1) that follows the doubling.

    Example:
        >>> conv, x = nn.Conv2d(3, 2, 3, padding=1), torch.randn(1, 3, 5, 4)
        >>> slow = conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        >>> bool((FoldedUpsample(conv)(x) - slow).abs().max() < 1e-5)
        True
    """

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        weight = _four_taps(_four_taps(conv.weight.detach(), 2), 3).transpose(0, 1)
        self.weight = nn.Parameter(weight.contiguous(), requires_grad=False)
        bias = None if conv.bias is None else conv.bias.detach().clone()
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, C', 2H, 2W)."""
        return F.conv_transpose2d(x, self.weight, self.bias, stride=2, padding=1)


def _four_taps(weight: Tensor, dim: int) -> Tensor:
    """Return the taps along one side that a row of the small picture has in the doubled one.

    Row i of the small picture is rows 2i and 2i + 1 of the doubled one, which output rows
    2i - 1 to 2i + 2 see: the first by its last tap, the last by its first, those between by two.
    """
    first, middle, last = weight.unbind(dim)
    return torch.stack([last, middle + last, first + middle, first], dim)


def fold_upsampling(module: nn.Module) -> nn.Module:
    """Return a copy of a decoder whose doublings and the convolutions after them are folded.

    Args:
        module: A `VQDecoder` or a `LightDecoder`.
    """
    folded = copy.deepcopy(module)
    for parent in list(folded.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Upsample):
                setattr(parent, name, FoldedUpsample(child.conv))
        if isinstance(parent, nn.Sequential):
            _fold_sequence(parent)
    return folded


def _fold_sequence(sequence: nn.Sequential) -> None:
    """Fold each doubling of a plain sequence into the convolution after it."""
    for k in range(len(sequence) - 1):
        after = sequence[k + 1]
        if isinstance(sequence[k], nn.Upsample) and isinstance(after, nn.Conv2d):
            sequence[k], sequence[k + 1] = FoldedUpsample(after), nn.Identity()


class FastDecoder(nn.Module):
    """Decodes codes with a frozen copy of a generator's decoder.

    Args:
        generator: A trained generator; later changes to it are not seen.
        dtype: Type of the weights; None is bfloat16 on a GPU, else float32.
        compiled: Compile; None does so on a GPU.

    Example:
        >>> from dismix.generator.config import GeneratorConfig
        >>> config = GeneratorConfig(num_ranks=5, arch="tiny", nonordinal_codes=64)
        >>> generator = Generator.seeded(config, seed=0).eval()
        >>> codes = generator.encode(torch.zeros(2, 1, 64, 64))
        >>> fast = FastDecoder(generator)
        >>> bool((fast(codes) - generator.decode(codes)).abs().max() < 1e-4)
        True
    """

    def __init__(
        self,
        generator: Generator,
        dtype: torch.dtype | None = None,
        compiled: bool | None = None,
    ) -> None:
        super().__init__()
        device = next(generator.parameters()).device
        on_gpu = device.type == "cuda"
        self.dtype = dtype or (torch.bfloat16 if on_gpu else torch.float32)
        self.post_quant_conv = copy.deepcopy(generator.post_quant_conv)
        self.decoder = fold_upsampling(generator.decoder)
        self.requires_grad_(False).eval().to(self.dtype)
        if on_gpu:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if on_gpu if compiled is None else compiled:
            self.compile(dynamic=False)

    @torch.no_grad()
    def __call__(self, codes: Codes) -> Tensor:
        """Return float32 images (B, channels, H, W) of codes, mixed or not."""
        ordinal = codes.ordinal
        if ordinal.shape[-2:] != codes.nonordinal.shape[-2:]:
            ordinal = F.interpolate(ordinal, size=codes.nonordinal.shape[-2:], mode="nearest")
        joined = torch.cat([ordinal, codes.nonordinal], dim=1).to(self.dtype)
        # Weights are of the right type already; a caller's autocast would only cast again.
        with torch.autocast(joined.device.type, enabled=False):
            return cast(Tensor, super().__call__(joined)).float()

    def forward(self, joined: Tensor) -> Tensor:
        """Map joined codes (B, D_o + D, h, w) to images."""
        images: Tensor = self.decoder(self.post_quant_conv(joined))
        return images
