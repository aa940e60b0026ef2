"""Named autoencoder shapes, kept apart from the training recipes.

| name | trunk | at | latent | for |
|---|---|---|---|---|
| `vq-f8` | latent diffusion's VQ encoder and decoder (67.7 M) | 256 px | 4 x 32 x 32 | the paper |
| `light` | 64-channel autoencoder without attention (2.7 M) | 256 px | 32 x 32 x 32 | one GPU |
| `light-f16` | that with a neck to half its grid (3.8 M) | 256 px | 32 x 16 x 16 | shapes |
| `tiny` | the same family, 16 and 32 channels (0.16 M) | 64 px | 16 x 8 x 8 | CPU, tests |

This module imports no torch until an autoencoder is built, so settings can be checked fast.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from dismix.errors import DisMixError
from dismix.registry import Registry

if TYPE_CHECKING:
    from dismix.generator.autoencoder import Autoencoder


@dataclass(frozen=True)
class Architecture:
    """The shape of an encoder and decoder; the weights and the training are elsewhere.

    Args:
        name: Name shown in messages and stored in checkpoints.
        kind: `vq` (latent diffusion's blocks) or `light` (plain residual convolutions).
        image_size: Side of the square images in pixels; a multiple of `factor`.
        in_channels: 3 for colour, 1 for grey.
        ch: Base number of channels.
        ch_mult: Multiple of `ch` at each level, from the full resolution down.
        num_res_blocks: Residual blocks a level (the `vq` decoder has one more; `light` has
            a single block at full resolution).
        attn_resolutions: Resolutions with self-attention, at `image_size` (`vq` only).
        z_channels: Channels between the trunk and the projections of the quantizers.
        embed_dim: Length of a code.
        mid_norm: Whether the lowest level has the normalised side path (`light` only).
        patch: Pixels of patch x patch blocks become channels before the first convolution and
            again pixels after the last, which saves the costly full resolution (`light` only).
        neck: Halvings of the grid below the trunk, which keeps its published weights (`light`
            only). Codes of a coarser grid say what is where less literally: mixes of two shapes
            then show one, not both (measured on phantoms, see `results/generator`).

    Example:
        >>> arch = ARCHITECTURES["vq-f8"]
        >>> arch.factor, arch.latent_size, arch.resolutions
        (8, 32, (256, 128, 64, 32))
    """

    name: str
    kind: Literal["vq", "light"]
    image_size: int
    in_channels: int
    ch: int
    ch_mult: tuple[int, ...]
    num_res_blocks: int
    attn_resolutions: tuple[int, ...]
    z_channels: int
    embed_dim: int = 4
    mid_norm: bool = False
    patch: int = 1
    neck: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("vq", "light"):
            raise DisMixError(f"{self.name}: unknown kind '{self.kind}'", cure="use vq or light")
        if self.in_channels not in (1, 3):
            raise DisMixError(
                f"{self.name}: {self.in_channels} image channels", cure="use 3 (colour) or 1 (grey)"
            )
        if self.image_size <= 0 or self.image_size % self.factor:
            raise DisMixError(
                f"{self.name}: image size {self.image_size} is not a multiple of {self.factor}",
                cure=f"use {max(1, round(self.image_size / self.factor)) * self.factor}",
            )
        if self.kind == "vq" and (self.patch != 1 or self.mid_norm or self.neck):
            raise DisMixError(
                f"{self.name}: patch, mid_norm and neck need the kind light",
                cure="leave them out, or use kind light",
            )
        strange = sorted(set(self.attn_resolutions) - set(self.resolutions))
        if strange:
            # CompVis would silently build no attention here; published weights then fail to load.
            raise DisMixError(
                f"{self.name}: no level has the attention resolution {strange[0]}",
                cure=f"choose among {self.resolutions}, or use resized()",
            )

    @property
    def factor(self) -> int:
        """Downsampling between pixels and latent positions."""
        return int(self.patch * 2 ** (len(self.ch_mult) - 1 + self.neck))

    @property
    def resolutions(self) -> tuple[int, ...]:
        """Side of the feature maps at each level, from the full resolution down."""
        return tuple(
            self.image_size // (self.patch * 2**level) for level in range(len(self.ch_mult))
        )

    @property
    def latent_size(self) -> int:
        """Side h = w of the latent."""
        return self.image_size // self.factor

    @property
    def frozen_prefixes(self) -> tuple[str, ...]:
        """Key prefixes of what the paper keeps frozen when the trunk is pretrained.

        Example:
            >>> ARCHITECTURES["vq-f8"].frozen_prefixes
            ('encoder.conv_in.', 'encoder.down.')
        """
        if self.kind == "vq":
            return ("encoder.conv_in.", "encoder.down.")
        return tuple(f"encoder.{position}." for position in range(self.light_frozen_steps))

    @property
    def light_frozen_steps(self) -> int:
        """Steps of the `light` encoder up to and with the last halving of the resolution."""
        # paper: the vq encoder has middle blocks that stay trainable; the light one has none,
        # so its lowest level takes their place.
        halvings = len(self.ch_mult) - 1
        return 2 + (self.patch > 1) + halvings + (halvings - 1) * self.num_res_blocks

    def resized(
        self, image_size: int | None = None, in_channels: int | None = None
    ) -> "Architecture":
        """Return the same network for other images: levels keep their attention and their keys.

        Args:
            image_size: New side in pixels.
            in_channels: New number of image channels.

        Example:
            >>> ARCHITECTURES["vq-f8"].resized(224).attn_resolutions
            (28,)
        """
        size = self.image_size if image_size is None else image_size
        levels = [self.resolutions.index(r) for r in self.attn_resolutions]
        return replace(
            self,
            image_size=size,
            in_channels=self.in_channels if in_channels is None else in_channels,
            attn_resolutions=tuple(size // (self.patch * 2**level) for level in levels),
        )


ARCHITECTURES: Registry[Architecture] = Registry("architecture")

ARCHITECTURES.register("vq-f8")(
    Architecture(
        name="vq-f8",
        kind="vq",
        image_size=256,
        in_channels=3,
        ch=128,
        ch_mult=(1, 2, 2, 4),
        num_res_blocks=2,
        attn_resolutions=(32,),
        z_channels=4,
    )
)
ARCHITECTURES.register("light")(
    Architecture(
        name="light",
        kind="light",
        image_size=256,
        in_channels=3,
        ch=64,
        ch_mult=(1, 1, 1, 1),
        num_res_blocks=3,
        attn_resolutions=(),
        z_channels=32,
        mid_norm=True,
    )
)
ARCHITECTURES.register("light-f16")(replace(ARCHITECTURES["light"], name="light-f16", neck=1))
ARCHITECTURES.register("tiny")(
    Architecture(
        name="tiny",
        kind="light",
        image_size=64,
        in_channels=1,
        ch=16,
        ch_mult=(1, 2, 2),
        num_res_blocks=1,
        attn_resolutions=(),
        z_channels=16,
        patch=2,
    )
)


def build_autoencoder(arch: Architecture) -> "Autoencoder":
    """Build an untrained encoder and decoder of the given shape.

    Weights are drawn from torch's global generator, as every torch module's are: seed it first
    (`torch.manual_seed`) or load a file over them.

    Example:
        >>> import torch
        >>> trunk = build_autoencoder(ARCHITECTURES["tiny"])
        >>> z = trunk.encoder(torch.zeros(2, 1, 64, 64))
        >>> tuple(z.shape), tuple(trunk.decoder(z).shape)
        ((2, 16, 8, 8), (2, 1, 64, 64))
    """
    from dismix.generator.autoencoder import Autoencoder, VQDecoder, VQEncoder
    from dismix.generator.light import LightDecoder, LightEncoder

    if arch.kind == "vq":
        return Autoencoder(arch, VQEncoder(arch), VQDecoder(arch))
    return Autoencoder(arch, LightEncoder(arch), LightDecoder(arch))
