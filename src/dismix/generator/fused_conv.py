"""Convolution, bias, residual and ReLU in one kernel of cuDNN, for frozen networks on a GPU.

Of the GPU time of a block of the pool with `light`, a third went into adding biases and a sixth
into ReLUs and residual sums, each a pass over whole pictures, and a third into the convolutions
themselves (`results/mixing`). cuDNN does all of it while the convolution's result is still at
hand. It does not offer that for every card, type and version, so it is tried on an example.
"""

import copy
import warnings

import torch
from torch import Tensor, nn

from dismix.generator.light import LightBlock


class FusedConv(nn.Module):
    """ReLU of a convolution, and of a convolution plus something.

    Args:
        conv: The convolution; its weights are shared.

    Example:
        >>> conv, x = nn.Conv2d(2, 3, 3, padding=1), torch.randn(1, 2, 4, 4)
        >>> torch.equal(FusedConv(conv)(x), torch.relu(conv(x)))
        True
    """

    no_bias: Tensor

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        if isinstance(conv.padding, str):
            raise TypeError(f"padding in pixels, not '{conv.padding}'")
        self.conv, self.padding = conv, conv.padding
        no_bias = torch.zeros_like(conv.weight[:, 0, 0, 0]).detach()
        self.register_buffer("no_bias", no_bias, persistent=False)

    def forward(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """Map (B, C, H, W) to (B, C', H', W'), with ``plus`` of the result's shape added."""
        conv = self.conv
        if x.device.type != "cuda":
            made = conv(x)
            return torch.relu(made if plus is None else made + plus)
        bias = self.no_bias if conv.bias is None else conv.bias
        where = (conv.stride, self.padding, conv.dilation)
        if plus is None:
            return torch.cudnn_convolution_relu(x, conv.weight, bias, *where, conv.groups)
        return torch.cudnn_convolution_add_relu(
            x, conv.weight, plus, 1.0, bias, *where, conv.groups
        )


class FusedLightBlock(nn.Module):
    """A `LightBlock` of fused convolutions.

    Args:
        block: The block; its weights are shared.
    """

    def __init__(self, block: LightBlock) -> None:
        super().__init__()
        self.pool = block.pool
        self.convs = nn.ModuleList(FusedConv(m) for m in block.conv if isinstance(m, nn.Conv2d))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape."""
        if self.pool is not None:
            x = x + self.pool(x)
        made, last = x, len(self.convs) - 1
        for k, conv in enumerate(self.convs):
            made = conv(made, x if k == last else None)
        return made


def fuse(module: nn.Module) -> nn.Module:
    """Return a copy of a network whose convolutions take the ReLU after them with them.

    Args:
        module: Any network; `LightBlock` and sequences of convolution and ReLU are known.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU())
        >>> type(fuse(net)[0]).__name__
        'FusedConv'
    """
    fused = copy.deepcopy(module)
    for parent in list(fused.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, LightBlock):
                setattr(parent, name, FusedLightBlock(child))
        if isinstance(parent, nn.Sequential):
            for k in range(len(parent) - 1):
                first = parent[k]
                if isinstance(first, nn.Conv2d) and isinstance(parent[k + 1], nn.ReLU):
                    parent[k], parent[k + 1] = FusedConv(first), nn.Identity()
    return fused


@torch.no_grad()
def fused_if_it_works(module: nn.Module, example: Tensor) -> nn.Module:
    """Return `fuse` of a frozen network if it gives the same on an example, else the network.

    Args:
        module: Network on the device of the example.
        example: (B, C, H, W) typical input.
    """
    wanted = module(example).float()
    try:
        fused = fuse(module)
        made = fused(example).float()
    except RuntimeError as error:
        warnings.warn(f"convolutions are not fused: {error}", stacklevel=2)
        return module
    # bfloat16 keeps 8 bits, and the two round at other places.
    if (made - wanted).abs().max() > 0.05 * wanted.abs().max().clamp_min(1.0):
        warnings.warn("convolutions are not fused: cuDNN's results differ", stacklevel=2)
        return module
    return fused
