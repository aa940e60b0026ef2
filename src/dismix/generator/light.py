"""The light autoencoder: plain residual convolutions, no attention (after TAESD, O. Boer Bohan).

With the `light` shape the key names are those of the published f8 autoencoder with 32 latent
channels (`taef2`), in one file with the prefixes `encoder.` and `decoder.`. That one works on
colour in [0, 1]; the two classes here convert from and to [-1, 1]. Widths may differ by level,
which the published family does not use; `tiny` does, to be quick on one core.
"""

import torch
from torch import Tensor, nn

from dismix.generator.architectures import Architecture
from dismix.generator.conv_relu import conv_relu

# Of the neck: channels, and residual blocks a level. On a coarse grid they cost little.
NECK_WIDTH = 96
NECK_BLOCKS = 2


def _conv(c_in: int, c_out: int, stride: int = 1, bias: bool = True) -> nn.Conv2d:
    return nn.Conv2d(c_in, c_out, 3, stride=stride, padding=1, bias=bias)


class SoftClamp(nn.Module):
    """Smoothly limits values to (-3, 3), so that no latent leaves the range seen in training."""

    def forward(self, x: Tensor) -> Tensor:
        """Map any shape to the same shape."""
        return torch.tanh(x / 3) * 3


class LightBlock(nn.Module):
    """Three 3x3 convolutions added to the input, then ReLU.

    Args:
        channels: Channels in and out.
        mid_norm: Whether a normalised 1x1 side path is added to the input first.

    Example:
        >>> LightBlock(8, mid_norm=False)(torch.zeros(1, 8, 4, 4)).shape
        torch.Size([1, 8, 4, 4])
    """

    def __init__(self, channels: int, mid_norm: bool) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            _conv(channels, channels),
            nn.ReLU(),
            _conv(channels, channels),
            nn.ReLU(),
            _conv(channels, channels),
        )
        self.pool: nn.Sequential | None = None
        if mid_norm:
            wide = channels * 4
            self.pool = nn.Sequential(
                nn.Conv2d(channels, wide, 1, bias=False),
                nn.GroupNorm(4, wide),
                nn.ReLU(),
                nn.Conv2d(wide, channels, 1, bias=False),
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape."""
        if self.pool is not None:
            x = x + self.pool(x)
        first, _, second, _, third = self.conv
        assert isinstance(first, nn.Conv2d)
        assert isinstance(second, nn.Conv2d)
        assert isinstance(third, nn.Conv2d)
        return conv_relu(conv_relu(conv_relu(x, first), second), third, plus=x)


def _encoder_steps(arch: Architecture) -> list[nn.Module]:
    widths = [arch.ch * m for m in arch.ch_mult]
    steps: list[nn.Module] = [nn.PixelUnshuffle(arch.patch)] if arch.patch > 1 else []
    steps += [_conv(arch.in_channels * arch.patch**2, widths[0]), LightBlock(widths[0], False)]
    for level in range(1, len(widths)):
        lowest = level == len(widths) - 1
        steps.append(_conv(widths[level - 1], widths[level], stride=2, bias=False))
        steps += [
            LightBlock(widths[level], arch.mid_norm and lowest) for _ in range(arch.num_res_blocks)
        ]
    return [*steps, _conv(widths[-1], arch.z_channels)]


def _decoder_steps(arch: Architecture) -> list[nn.Module]:
    widths = [arch.ch * m for m in arch.ch_mult]
    steps: list[nn.Module] = [SoftClamp(), _conv(arch.z_channels, widths[-1]), nn.ReLU()]
    for level in reversed(range(1, len(widths))):
        lowest = level == len(widths) - 1
        steps += [
            LightBlock(widths[level], arch.mid_norm and lowest) for _ in range(arch.num_res_blocks)
        ]
        steps += [
            nn.Upsample(scale_factor=2.0),
            _conv(widths[level], widths[level - 1], bias=False),
        ]
    steps += [LightBlock(widths[0], False), _conv(widths[0], arch.in_channels * arch.patch**2)]
    return [*steps, nn.PixelShuffle(arch.patch)] if arch.patch > 1 else steps


def _neck_down(arch: Architecture) -> nn.Sequential:
    steps: list[nn.Module] = []
    for level in range(arch.neck):
        steps.append(_conv(NECK_WIDTH if level else arch.z_channels, NECK_WIDTH, stride=2))
        steps += [LightBlock(NECK_WIDTH, False) for _ in range(NECK_BLOCKS)]
    return nn.Sequential(*steps, _conv(NECK_WIDTH, arch.z_channels))


def _neck_up(arch: Architecture) -> nn.Sequential:
    steps: list[nn.Module] = [_conv(arch.z_channels, NECK_WIDTH), nn.ReLU()]
    for level in reversed(range(arch.neck)):
        steps += [LightBlock(NECK_WIDTH, False) for _ in range(NECK_BLOCKS)]
        steps.append(nn.Upsample(scale_factor=2.0))
        steps.append(_conv(NECK_WIDTH, NECK_WIDTH if level else arch.z_channels))
    return nn.Sequential(*steps)


class LightEncoder(nn.Sequential):
    """Images to features; a flat sequence, so that keys are positions, and the neck, if any."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__(*_encoder_steps(arch))
        if arch.neck:
            self.add_module("neck", _neck_down(arch))
        self.frozen_steps = arch.light_frozen_steps

    def downward(self, x: Tensor) -> Tensor:
        """Run the part that is frozen when pretrained: (B, in_channels, H, W) to (B, C, h, w)."""
        x = x * 0.5 + 0.5
        for step in list(self)[: self.frozen_steps]:
            x = step(x)
        return x

    def forward(self, input: Tensor) -> Tensor:
        """Map images (B, in_channels, H, W) in [-1, 1] to (B, z_channels, h, w)."""
        x = self.downward(input)
        for step in list(self)[self.frozen_steps :]:
            x = step(x)
        return x


class LightDecoder(nn.Sequential):
    """Features to images; a flat sequence, so that keys are positions, after the neck, if any."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        if arch.neck:
            self.add_module("neck", _neck_up(arch))
        for position, step in enumerate(_decoder_steps(arch)):
            self.add_module(str(position), step)

    def forward(self, input: Tensor) -> Tensor:
        """Map (B, z_channels, h, w) to images (B, in_channels, H, W) in about [-1, 1]."""
        x = input
        for step in self:
            x = step(x)
        return x * 2 - 1
