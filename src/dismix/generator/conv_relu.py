"""ReLU of a convolution as one kernel, for decoding on a GPU.

Convolution, bias, residual and ReLU are four passes over whole pictures; in half precision on an
H200 the biases alone take as long as the convolutions of 64 channels (`results/mixing`). cuDNN
does all of it while the convolution's result is still at hand. It does not offer that for every
card and version, so it is tried once for each type (`cudnn_fuses`). Where gradients are wanted, on
a CPU, in full precision and within torch.compile, which fuses by itself, plain operations do it.
"""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HALF = (torch.bfloat16, torch.float16)
# Fused kernels in channels_last read whole groups of so many channels.
ALIGNED = 8


def conv_relu(x: Tensor, conv: nn.Conv2d, plus: Tensor | None = None) -> Tensor:
    """Return relu(conv(x) + plus), (B, C', H', W') of (B, C, H, W).

    Args:
        x: (B, C, H, W).
        conv: The convolution.
        plus: (B, C', H', W') to be added, or None.

    Example:
        >>> conv, x = nn.Conv2d(2, 3, 3, padding=1), torch.randn(1, 2, 4, 4)
        >>> torch.equal(conv_relu(x, conv), torch.relu(conv(x)))
        True
    """
    on_gpu = x.device.type == "cuda" and not torch.compiler.is_compiling()
    if not on_gpu or torch.is_grad_enabled() or conv.in_channels % ALIGNED:
        return _plain(x, conv, plus)
    auto = torch.is_autocast_enabled("cuda")
    dtype = torch.get_autocast_dtype("cuda") if auto else x.dtype
    if conv.out_channels % ALIGNED or not cudnn_fuses(x.device, dtype):
        return _plain(x, conv, plus)
    bias = None if conv.bias is None else conv.bias.to(dtype)
    assert not isinstance(conv.padding, str)
    where = (conv.stride, conv.padding, conv.dilation, conv.groups)
    if plus is None:
        return torch.cudnn_convolution_relu(x.to(dtype), conv.weight.to(dtype), bias, *where)
    return torch.cudnn_convolution_add_relu(
        x.to(dtype), conv.weight.to(dtype), plus.to(dtype), 1.0, bias, *where
    )


def _plain(x: Tensor, conv: nn.Conv2d, plus: Tensor | None) -> Tensor:
    made: Tensor = conv(x)
    return torch.relu(made if plus is None else made + plus)


@cache
def cudnn_fuses(device: torch.device, dtype: torch.dtype) -> bool:
    """Tell whether cuDNN's fused convolutions of a type work on a device, by trying them."""
    if device.type != "cuda" or dtype not in HALF:
        return False
    rng = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(*s, generator=rng) for s in ((2, 16, 8, 8), (16, 16, 3, 3)))
    bias = torch.randn(16, generator=rng).to(device, dtype)
    last = torch.channels_last
    x, weight = (t.to(device, dtype, memory_format=last) for t in (x, 0.1 * weight))
    where = ((1, 1), (1, 1), (1, 1), 1)
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        wanted = F.conv2d(x.float(), weight.float(), bias.float(), padding=1)
        try:
            alone = torch.cudnn_convolution_relu(x, weight, bias, *where)
            added = torch.cudnn_convolution_add_relu(x, weight, x, 1.0, bias, *where)
        except RuntimeError:
            return False
        pairs = ((alone, wanted), (added, wanted + x.float()))
        return all(bool((a.float() - torch.relu(b)).abs().max() < 0.05) for a, b in pairs)
