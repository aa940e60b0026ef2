"""Encoder and decoder of latent diffusion's VQ autoencoder (Rombach et al. 2022, `vq-f8`).

Written anew with the key names of CompVis' published checkpoint, so that file loads without a
map. Differences: dropout (0 in the published configuration) and the time embedding (unused by
autoencoders) are left out, and some operations are written so that they compile well (same
values). `quant_conv`, `post_quant_conv` and the codebook belong to the
model built on this trunk.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dismix.generator.architectures import Architecture
from dismix.generator.group_norm import GroupNorm

#: Up to this many positions attention keeps its weights for the backward pass.
FEW_POSITIONS = 2048


def _norm(channels: int) -> GroupNorm:
    return GroupNorm(32, channels, eps=1e-6)


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return softmax(query key^T / sqrt(C)) value for (B, N, C), one head.

    Fused kernels are made for narrow heads; with the 512 channels here their backward pass takes
    5.4 ms for 32 pictures of 1024 positions on an H200, more than the products it consists of
    (``results/generator/records/vq_f8_train_compiled_before_profile.txt``).
    They are left to pictures whose weights would be too much to keep.

    Example:
        >>> q, k, v = torch.randn(3, 2, 5, 4).unbind(0)
        >>> bool((attend(q, k, v) - F.scaled_dot_product_attention(q, k, v)).abs().max() < 1e-5)
        True
    """
    if query.shape[1] > FEW_POSITIONS:
        return F.scaled_dot_product_attention(query[:, None], key[:, None], value[:, None])[:, 0]
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(1, 2)
    return torch.bmm(scores.float().softmax(-1).to(value.dtype), value)


def doubled(x: Tensor) -> Tensor:
    """Repeat every place of (B, C, H, W) twice along both sides.

    Compiled, the backward pass of `F.interpolate` adds places up one by one (7 ms for the last
    doubling of 32 pictures on an H200, in the same record); that of a repeated view is a plain sum.

    Example:
        >>> doubled(torch.tensor([[[[1.0, 2.0]]]])).tolist()
        [[[[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0]]]]
    """
    if not torch.compiler.is_compiling():
        return F.interpolate(x, scale_factor=2.0, mode="nearest")
    batch, channels, height, width = x.shape
    # Channels last, as the convolution after it wants them.
    places = x.permute(0, 2, 3, 1)[:, :, None, :, None].expand(-1, -1, 2, -1, 2, -1)
    return places.reshape(batch, 2 * height, 2 * width, channels).permute(0, 3, 1, 2)


class ResBlock(nn.Module):
    """Two normalised 3x3 convolutions added to the input.

    Args:
        c_in: Channels coming in, a multiple of 32.
        c_out: Channels going out, a multiple of 32.
    """

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        self.norm1 = _norm(c_in)
        self.conv1 = nn.Conv2d(c_in, c_out, 3, padding=1)
        self.norm2 = _norm(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1)
        self.nin_shortcut: nn.Module = nn.Conv2d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, c_in, H, W) to (B, c_out, H, W)."""
        hidden = self.conv1(F.silu(self.norm1(x)))
        hidden = self.conv2(F.silu(self.norm2(hidden)))
        out: Tensor = self.nin_shortcut(x) + hidden
        return out


class AttnBlock(nn.Module):
    """Single-head self-attention over all positions, added to the input.

    Args:
        channels: Channels, a multiple of 32.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = _norm(channels)
        self.q = nn.Conv2d(channels, channels, 1)
        self.k = nn.Conv2d(channels, channels, 1)
        self.v = nn.Conv2d(channels, channels, 1)
        self.proj_out = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape."""
        hidden = self.norm(x)
        query, key, value = (
            layer(hidden).flatten(2).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        mixed = attend(query, key, value).transpose(1, 2).reshape(x.shape)
        projected: Tensor = self.proj_out(mixed)
        return x + projected


class Downsample(nn.Module):
    """Halves the resolution; pads right and below only, as the published weights expect."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, C, H/2, W/2)."""
        halved: Tensor = self.conv(F.pad(x, (0, 1, 0, 1)))
        return halved


class Upsample(nn.Module):
    """Doubles the resolution: nearest neighbour, then a convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, C, 2H, 2W)."""
        out: Tensor = self.conv(doubled(x))
        return out


class Middle(nn.Module):
    """Block, attention, block at the lowest resolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.block_1 = ResBlock(channels, channels)
        self.attn_1 = AttnBlock(channels)
        self.block_2 = ResBlock(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape."""
        out: Tensor = self.block_2(self.attn_1(self.block_1(x)))
        return out


class Level(nn.Module):
    """All blocks of one resolution, with the change of resolution that follows.

    Args:
        c_in: Channels coming in.
        c_out: Channels going out.
        blocks: Number of residual blocks.
        attention: Whether attention follows each block.
        resample: `downsample`, `upsample` or None at the end of the chain.
    """

    def __init__(
        self, c_in: int, c_out: int, blocks: int, attention: bool, resample: str | None
    ) -> None:
        super().__init__()
        self.block = nn.ModuleList(
            ResBlock(c_in if j == 0 else c_out, c_out) for j in range(blocks)
        )
        self.attn = nn.ModuleList(AttnBlock(c_out) for _ in range(blocks if attention else 0))
        # Keys differ between the halves, hence two names of which one exists.
        if resample == "downsample":
            self.downsample = Downsample(c_out)
        elif resample == "upsample":
            self.upsample = Upsample(c_out)
        self.resample = resample

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, c_in, H, W) to (B, c_out, H', W')."""
        for j, block in enumerate(self.block):
            x = block(x)
            if len(self.attn):
                x = self.attn[j](x)
        if self.resample == "downsample":
            x = self.downsample(x)
        elif self.resample == "upsample":
            x = self.upsample(x)
        return x


class VQEncoder(nn.Module):
    """Images to features, before `quant_conv`."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        widths = [arch.ch * m for m in arch.ch_mult]
        last = len(widths) - 1
        self.conv_in = nn.Conv2d(arch.in_channels, arch.ch, 3, padding=1)
        self.down = nn.ModuleList(
            Level(
                c_in,
                c_out,
                arch.num_res_blocks,
                arch.resolutions[i] in arch.attn_resolutions,
                "downsample" if i < last else None,
            )
            for i, (c_in, c_out) in enumerate(zip([arch.ch, *widths], widths, strict=False))
        )
        self.mid = Middle(widths[-1])
        self.norm_out = _norm(widths[-1])
        self.conv_out = nn.Conv2d(widths[-1], arch.z_channels, 3, padding=1)

    def downward(self, x: Tensor) -> Tensor:
        """Run the part that is frozen when pretrained: (B, in_channels, H, W) to (B, C, h, w)."""
        x = self.conv_in(x)
        for level in self.down:
            x = level(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, in_channels, H, W) in [-1, 1] to (B, z_channels, h, w)."""
        hidden = self.mid(self.downward(x))
        out: Tensor = self.conv_out(F.silu(self.norm_out(hidden)))
        return out


class VQDecoder(nn.Module):
    """Features, after `post_quant_conv`, to images."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        widths = [arch.ch * m for m in arch.ch_mult]
        last = len(widths) - 1
        self.conv_in = nn.Conv2d(arch.z_channels, widths[-1], 3, padding=1)
        self.mid = Middle(widths[-1])
        self.up = nn.ModuleList(
            Level(
                widths[min(i + 1, last)],
                widths[i],
                arch.num_res_blocks + 1,
                arch.resolutions[i] in arch.attn_resolutions,
                "upsample" if i > 0 else None,
            )
            for i in range(len(widths))
        )
        self.norm_out = _norm(widths[0])
        self.conv_out = nn.Conv2d(widths[0], arch.in_channels, 3, padding=1)

    def forward(self, z: Tensor) -> Tensor:
        """Map (B, z_channels, h, w) to images (B, in_channels, H, W) in about [-1, 1]."""
        hidden = self.mid(self.conv_in(z))
        # Levels are numbered from the full resolution, as in the published file.
        for i in reversed(range(len(self.up))):
            hidden = self.up[i](hidden)
        out: Tensor = self.conv_out(F.silu(self.norm_out(hidden)))
        return out


class Autoencoder(nn.Module):
    """An encoder and a decoder of one architecture.

    Args:
        arch: The shape both follow.
        encoder: (B, in_channels, H, W) in [-1, 1] to (B, z_channels, h, w).
        decoder: (B, z_channels, h, w) to (B, in_channels, H, W) in about [-1, 1].
    """

    def __init__(self, arch: Architecture, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.arch = arch
        self.encoder = encoder
        self.decoder = decoder

    def forward(self, x: Tensor) -> Tensor:
        """Reconstruct images without quantization: (B, in_channels, H, W) to the same shape."""
        out: Tensor = self.decoder(self.encoder(x))
        return out


def freeze_down(model: nn.Module, arch: Architecture) -> list[str]:
    """Freeze the encoder's downsampling path, in an `Autoencoder` or a model that holds one.

    The frozen layers come first and their weights need no gradient, so autograd stores none of
    their activations; images that need a gradient themselves (such as decoded ones that are
    encoded again) still get it.

    Args:
        model: Module with the trunk at `encoder`.
        arch: Its architecture.

    Returns:
        Names of the frozen parameters.

    Example:
        >>> from dismix.generator.architectures import ARCHITECTURES, build_autoencoder
        >>> arch = ARCHITECTURES["tiny"]
        >>> freeze_down(build_autoencoder(arch), arch)[-1]
        'encoder.5.weight'
    """
    frozen = []
    for name, parameter in model.named_parameters():
        if name.startswith(arch.frozen_prefixes):
            parameter.requires_grad_(False)
            frozen.append(name)
    return frozen
