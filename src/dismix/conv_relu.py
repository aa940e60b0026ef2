"""ReLU of a convolution as one kernel, to train and to use networks on a GPU.

Convolution, bias, residual and ReLU are four passes over whole pictures; in half precision on an
H200 the bias alone takes as long as the convolution of 64 channels (`results/mixing`). cuDNN does
all of it while the convolution's result is still at hand. It does not offer that for every card
and version, so it is tried once for each type (`cudnn_fuses`); otherwise, on a CPU, in full
precision and within torch.compile, which fuses by itself, plain operations do the same.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

HALF = (torch.bfloat16, torch.float16)


def conv_relu(x: Tensor, conv: nn.Conv2d, plus: Tensor | None = None) -> Tensor:
    """Return relu(conv(x) + plus), (B, C', H', W') of (B, C, H, W).

    Args:
        x: (B, C, H, W).
        conv: A convolution padded with zeros.
        plus: (B, C', H', W') to be added, or None.

    Example:
        >>> conv, x = nn.Conv2d(2, 3, 3, padding=1), torch.randn(1, 2, 4, 4)
        >>> torch.equal(conv_relu(x, conv), torch.relu(conv(x)))
        True
    """
    dtype = x.dtype
    if x.device.type == "cuda" and torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
    plain = isinstance(conv.padding, str) or conv.padding_mode != "zeros"
    if plain or torch.compiler.is_compiling() or not cudnn_fuses(x.device, dtype):
        # Not conv(x): a `ConvReLU` would come back here.
        made: Tensor = conv._conv_forward(x, conv.weight, conv.bias)
        return (made if plus is None else made + plus).relu_()
    assert not isinstance(conv.padding, str)
    weight, bias = conv.weight.to(dtype), None if conv.bias is None else conv.bias.to(dtype)
    plus = None if plus is None else plus.to(dtype)
    where = (conv.stride, conv.padding, conv.dilation, conv.groups)
    fused: Tensor = _ConvReLU.apply(x.to(dtype), weight, bias, plus, *where)  # type: ignore[no-untyped-call]
    return fused


class ConvReLU(nn.Conv2d):
    """A convolution and the ReLU after it; its weights are named as the convolution's are."""

    def forward(self, input: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, C', H', W')."""
        return conv_relu(input, self)


def join_relus(network: nn.Module) -> None:
    """Make each convolution of a sequence take the ReLU after it with it, in place.

    Keys of the state stay as they are, and so do results from the ReLU's place on.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 2, 3))
        >>> join_relus(net)
        >>> [type(layer).__name__ for layer in net]
        ['ConvReLU', 'Identity', 'Conv2d']
    """
    for sequence in [m for m in network.modules() if isinstance(m, nn.Sequential)]:
        for k in range(len(sequence) - 1):
            conv = sequence[k]
            if type(conv) is nn.Conv2d and isinstance(sequence[k + 1], nn.ReLU):
                sequence[k], sequence[k + 1] = _with_relu(conv), nn.Identity()


def _with_relu(conv: nn.Conv2d) -> ConvReLU:
    joined = ConvReLU(
        conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding,  # type: ignore[arg-type]
        conv.dilation, conv.groups, conv.bias is not None, conv.padding_mode, device="meta",  # type: ignore[arg-type]
    )  # fmt: skip
    joined.weight, joined.bias = conv.weight, conv.bias
    return joined.train(conv.training)


class _ConvReLU(torch.autograd.Function):
    """The fused operation with its gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        plus: Tensor | None,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        groups: int,
    ) -> Tensor:
        where = (stride, padding, dilation, groups)
        if x.device.type != "cuda":
            # For the tests of the gradients, which need no GPU.
            made = F.conv2d(x, weight, bias, *where)
            made = torch.relu(made if plus is None else made + plus)
        elif plus is None:
            made = torch.cudnn_convolution_relu(x, weight, bias, *where)
        else:
            made = torch.cudnn_convolution_add_relu(x, weight, plus, 1.0, bias, *where)
        ctx.save_for_backward(x, weight, made)
        ctx.where, ctx.biased, ctx.plussed = where, bias is not None, plus is not None
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        x, weight, made = ctx.saved_tensors
        stride, padding, dilation, groups = ctx.where
        grad = torch.ops.aten.threshold_backward(grad, made, 0)
        of_x, of_weight, of_bias = torch.ops.aten.convolution_backward(
            grad, x, weight, [weight.shape[0]] if ctx.biased else None, stride, padding, dilation,
            False, [0] * len(stride), groups, list(ctx.needs_input_grad[:3]),
        )  # fmt: skip
        of_plus = grad if ctx.plussed and ctx.needs_input_grad[3] else None
        return of_x, of_weight, of_bias, of_plus, None, None, None, None


@cache
def cudnn_fuses(device: torch.device, dtype: torch.dtype) -> bool:
    """Tell whether cuDNN's fused convolutions of a type work on a device, by trying them."""
    if device.type != "cuda" or dtype not in HALF:
        return False
    like = {"device": device, "dtype": torch.float32}
    x = torch.linspace(-1, 1, 2 * 16 * 8 * 8, **like).view(2, 16, 8, 8)  # type: ignore[call-overload]
    weight = torch.linspace(-0.1, 0.1, 16 * 16 * 9, **like).sin().view(16, 16, 3, 3)  # type: ignore[call-overload]
    bias = torch.linspace(-1, 1, 16, **like)  # type: ignore[call-overload]
    last = torch.channels_last
    x, weight = (t.to(dtype, memory_format=last) for t in (x, weight))
    bias = bias.to(dtype)
    where = ((1, 1), (1, 1), (1, 1), 1)
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        wanted = F.conv2d(x.float(), weight.float(), bias.float(), padding=1)
        try:
            alone = torch.cudnn_convolution_relu(x, weight, bias, *where)
            added = torch.cudnn_convolution_add_relu(x, weight, x, 1.0, bias, *where)
        except RuntimeError:
            return False
        close = [
            (made.float() - torch.relu(right)).abs().max() < 0.05
            for made, right in ((alone, wanted), (added, wanted + x.float()))
        ]
        return all(bool(c) for c in close)
