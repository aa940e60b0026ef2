"""Group normalisation (Wu and He 2018) that leaves pictures in channels_last.

Compiled, PyTorch's own writes its input out again in the other layout, and every convolution after
it copies it back. Here statistics
of channels, which lie next to each other, are put together to those of groups. Outside of
torch.compile PyTorch's kernel is used, but never where it ends the process: on a CPU its backward
for channels_last writes the gradient of an input that has none (seen with torch 2.13).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def by_channels(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Normalise (B, C, H, W) within groups of channels, in float32.

    Mean and variance of a group follow from those of its channels: no difference of large
    numbers, as the mean square less the squared mean would be.

    Example:
        >>> x, weight, bias = torch.randn(2, 6, 4, 4) + 100, torch.rand(6), torch.rand(6)
        >>> slow = F.group_norm(x.double(), 3, weight.double(), bias.double(), 1e-6)
        >>> bool((by_channels(x, 3, weight, bias, 1e-6) - slow).abs().max() < 1e-4)
        True
    """
    x = x.float()
    variance, mean = torch.var_mean(x, dim=(2, 3), correction=0)
    shape = (len(x), groups, -1)
    variance, mean = variance.view(shape), mean.view(shape)
    middle = mean.mean(2, keepdim=True)
    spread = (variance + (mean - middle).square()).mean(2, keepdim=True)
    scale = (weight.float().view(1, groups, -1) * (spread + eps).rsqrt()).flatten(1)
    shift = bias.float() - middle.expand_as(mean).flatten(1) * scale
    made: Tensor = x * scale[..., None, None] + shift[..., None, None]
    return made


class GroupNorm(nn.GroupNorm):
    """`torch.nn.GroupNorm` with scale and shift that compiles well and may follow frozen layers.

    Example:
        >>> tuple(GroupNorm(2, 4)(torch.randn(1, 4, 3, 3)).shape)
        (1, 4, 3, 3)
    """

    def forward(self, input: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape."""
        if not torch.compiler.is_compiling():
            learns = torch.is_grad_enabled() and self.weight.requires_grad
            if learns and input.device.type == "cpu" and not input.requires_grad:
                input = input.contiguous()
            return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)
        kind = input.dtype
        made = by_channels(input, self.num_groups, self.weight, self.bias, self.eps)
        # Under autocast PyTorch's answers in float32, without it in the type of its input.
        return made if torch.is_autocast_enabled(input.device.type) else made.to(kind)
