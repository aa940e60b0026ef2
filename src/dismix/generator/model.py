"""The generator: an autoencoder whose latent is split into ordinal and non-ordinal codes.

Readings of the paper that this file settles:

- Each branch has its own projection of the encoder's output; ``projections="shared"`` is
  the paper's single z.
- "One codebook" (the paper's ablation reports one figure for both latents): one nearest
  codebook of ``nonordinal_codes`` entries on one projection. Its code is both z_o and z_n,
  so the rank classifier and the reversed one pull at the same code, nothing is conditioned
  on the label, and there is no similarity term. The decoder still reads the code twice,
  which equals reading it once through the sum of the two halves of ``post_quant_conv``.
"""

from pathlib import Path
from typing import Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dismix.data.pixels import require_pixels
from dismix.data.transforms import to_unit
from dismix.errors import DisMixError
from dismix.generator.analysis import Analysis
from dismix.generator.architectures import ARCHITECTURES, Architecture, build_autoencoder
from dismix.generator.codes import Codes, Latents
from dismix.generator.config import GeneratorConfig, read_config, write_config
from dismix.generator.group_norm import GroupNorm
from dismix.generator.heads import Perturbation, RankClassifier, draw_perturbation
from dismix.generator.quantizers import NearestQuantizer, OrdinalQuantizer, Quantized
from dismix.generator.reversal import reverse_gradient
from dismix.generator.saving import fill, load_tensors, save_tensors
from dismix.generator.trunk import build_trunk

__all__ = ["Analysis", "Codes", "Generator", "Latents"]

WEIGHTS_FILE = "generator.safetensors"
CONFIG_FILE = "generator.json"


class Generator(nn.Module):
    """Encodes images to codes and decodes codes to images.

    Parameter names are those of the published vq-f8 file (``encoder``, ``decoder``,
    ``quant_conv``, ``post_quant_conv``, ``quantize.embedding.weight``); what the paper adds
    to it has names of its own.

    Args:
        config: Structure.
        autoencoder: A module with ``encoder`` and ``decoder`` to use instead of the
            configured one; ``architecture`` must then describe it.
        architecture: Shapes of ``autoencoder``.

    Example:
        >>> config = GeneratorConfig(num_ranks=5, arch="tiny", nonordinal_codes=64)
        >>> generator = Generator.seeded(config, seed=0).eval()
        >>> images = torch.zeros(2, generator.in_channels, *[generator.image_size] * 2)
        >>> codes = generator.encode(images)  # without labels: fit for evaluation
        >>> generator.decode(codes).shape == images.shape
        True
    """

    def __init__(
        self,
        config: GeneratorConfig,
        *,
        autoencoder: nn.Module | None = None,
        architecture: Architecture | None = None,
    ) -> None:
        super().__init__()
        if architecture is None:
            architecture = ARCHITECTURES[config.arch].resized(config.image_size, config.in_channels)
        if autoencoder is None:
            autoencoder = build_autoencoder(architecture)
        self.config, self.architecture = config, architecture
        self.in_channels, self.image_size = architecture.in_channels, architecture.image_size
        self.latent_size = architecture.latent_size
        self.encoder: nn.Module = cast(nn.Module, autoencoder.encoder)
        self.decoder: nn.Module = cast(nn.Module, autoencoder.decoder)
        self._add_quantizers()
        self._add_classifiers()

    def _add_quantizers(self) -> None:
        config, z_channels = self.config, self.architecture.z_channels
        dim, ordinal_dim = config.code_dim, config.ordinal_width
        self.quant_conv = nn.Conv2d(z_channels, dim, 1)
        # paper: one shared z. The reversed gradient then erases rank from the very features
        # that the ordinal branch reads.
        # A code of the rank alone, or of the whole image, has no use for small places.
        fine = not config.rank_only and config.ordinal_grid != 1
        self.ordinal_trunk = build_trunk(config.ordinal_trunk, self.in_channels, fine=fine)
        seen = z_channels if self.ordinal_trunk is None else self.ordinal_trunk.out_channels
        # Pretrained features come at any scale.
        self.ordinal_norm = GroupNorm(1, seen) if config.ordinal_trunk == "lite0" else None
        self.quant_conv_ordinal = None if config.single_latent else nn.Conv2d(seen, ordinal_dim, 1)
        self.post_quant_conv = nn.Conv2d(ordinal_dim + dim, z_channels, 1)
        self.quantize = NearestQuantizer(config.nonordinal_codes, dim)
        self.quantize_ordinal = None
        if config.codebooks == "dual":
            self.quantize_ordinal = OrdinalQuantizer(
                config.num_ranks,
                config.ordinal_codes,
                ordinal_dim,
                attention=config.attention,
                cosine=config.cosine,
                temperature=config.attention_temperature,
                learn_temperature=config.learn_temperature,
                conditioned=config.conditioned,
                null_label=config.null_label,
                rank_only=config.rank_only,
            )

    def _add_classifiers(self) -> None:
        ranks, kind, size = self.config.num_ranks, self.config.classifier_input, self.latent_size
        grid = self.config.ordinal_grid or size
        self.ordinal_classifier = RankClassifier(ranks, self.config.ordinal_width, grid, kind)
        self.nonordinal_classifier = RankClassifier(ranks, self.config.code_dim, size, kind)

    @classmethod
    def seeded(cls, config: GeneratorConfig, seed: int) -> Self:
        """Return a new generator whose start depends on ``seed`` alone.

        Args:
            config: Structure.
            seed: Seed of the first weights; the global random state is left as it was.
        """
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return cls(config)

    def latents(self, images: Tensor) -> Latents:
        """Return what the quantizers read.

        Args:
            images: (B, channels, H, W) in [-1, 1], H and W multiples of the factor.
        """
        self._check_images(images)
        features = self.encoder(images)
        nonordinal = self.quant_conv(features)
        if self.quant_conv_ordinal is None:
            return Latents(nonordinal, nonordinal)
        return Latents(self.quant_conv_ordinal(self.ordinal_features(images, features)), nonordinal)

    def ordinal_features(self, images: Tensor, features: Tensor) -> Tensor:
        """Return what the ordinal projection reads, at the resolution of the ordinal codes.

        Args:
            images: (B, channels, H, W).
            features: (B, z_channels, h, w) of the encoder.
        """
        if self.ordinal_trunk is not None:
            features = self.ordinal_trunk(images, features)
        if self.config.ordinal_grid is not None or self.ordinal_trunk is not None:
            size = self.config.ordinal_grid or self.latent_size
            if size >= features.shape[-1]:
                features = F.interpolate(features, size=(size, size), mode="nearest")
            else:
                features = F.adaptive_avg_pool2d(features, size)
        return features if self.ordinal_norm is None else self.ordinal_norm(features)

    def nonordinal_latent(self, images: Tensor) -> Tensor:
        """Return what the non-ordinal quantizer reads (B, D, h, w), without the other branch."""
        latent: Tensor = self.quant_conv(self.encoder(images))
        return latent

    def quantized(
        self, latents: Latents, levels: Tensor | None = None, uncond_mask: Tensor | None = None
    ) -> tuple[Quantized, Quantized]:
        """Return the ordinal and the non-ordinal branch; the same object with one codebook.

        Args:
            latents: From `latents`.
            levels: (B, C-1) to condition the ordinal branch on; None conditions on nothing.
            uncond_mask: (B,) bool, true where the label is to be ignored.
        """
        nonordinal: Quantized = self.quantize(latents.nonordinal)
        if self.quantize_ordinal is None:
            return nonordinal, nonordinal
        return self.quantized_ordinal(latents.ordinal, levels, uncond_mask), nonordinal

    def quantized_ordinal(
        self, z: Tensor, levels: Tensor | None = None, uncond_mask: Tensor | None = None
    ) -> Quantized:
        """Return the ordinal branch alone, to condition stored latents on another rank.

        Args:
            z: (B, D_o, h, w), ``Latents.ordinal``.
            levels: (B, C-1), or None.
            uncond_mask: (B,) bool, true where the label is to be ignored.
        """
        self._check_levels(levels)
        branch = self.quantize_ordinal
        quantized: Quantized = (
            self.quantize(z) if branch is None else branch(z, levels, uncond_mask)
        )
        return quantized

    def levels_read(self, z: Tensor) -> Tensor:
        """Return the levels (B, C-1) that the ordinal branch reads when it is told no label.

        Args:
            z: (B, D_o, h, w), ``Latents.ordinal``.
        """
        branch = self.quantize_ordinal
        gate = None if branch is None else branch.condition
        logits: Tensor | None = None if gate is None else gate.predicted_logits(z)
        if logits is None:
            logits = self.ordinal_classifier(self.quantized_ordinal(z).codes)
        return logits.float().sigmoid()

    def encode(self, images: Tensor, levels: Tensor | None = None) -> Codes:
        """Return the codes of images, with gradients unless the caller switches them off.

        With ``levels`` the ordinal codes have seen the label: right for mixing training
        images, wrong for anything measured on held-out ones. Call ``eval()`` first, else
        the usage counts take part.

        Args:
            images: (B, channels, H, W) in [-1, 1], or uint8.
            levels: (B, C-1) ordinal soft labels, or None.
        """
        require_pixels(images)
        return self.codes_of(to_unit(images).to(self.quant_conv.weight.dtype), levels)

    def codes_of(self, images: Tensor, levels: Tensor | None = None) -> Codes:
        """Return what `encode` does of images that the generator itself made, unchecked."""
        return self._codes(*self.quantized(self.latents(images), levels))

    def codes_from_indices(self, ordinal: Tensor, nonordinal: Tensor) -> Codes:
        """Return the codes of stored indices, equal bit for bit to those first encoded.

        Args:
            ordinal: (B, h, w) whole numbers of any type.
            nonordinal: (B, h, w) whole numbers of any type.
        """
        branch = self.quantize if self.quantize_ordinal is None else self.quantize_ordinal
        return Codes(branch.lookup(ordinal), self.quantize.lookup(nonordinal), ordinal, nonordinal)

    def decode(self, codes: Codes) -> Tensor:
        """Return images (B, channels, H, W), about in [-1, 1], of codes, mixed or not."""
        ordinal = codes.ordinal
        if ordinal.shape[-2:] != codes.nonordinal.shape[-2:]:
            ordinal = F.interpolate(ordinal, size=codes.nonordinal.shape[-2:], mode="nearest")
        joined = torch.cat([ordinal, codes.nonordinal], dim=1)
        images: Tensor = self.decoder(
            self.post_quant_conv(joined.to(self.post_quant_conv.weight.dtype))
        )
        return images

    def forward(
        self,
        images: Tensor,
        levels: Tensor | None = None,
        uncond_mask: Tensor | None = None,
        *,
        reversal: float | Tensor = 1.0,
    ) -> Analysis:
        """Encode and classify; what is decoded of it is the caller's choice.

        Args:
            images: (B, channels, H, W) in [-1, 1].
            levels: (B, C-1), or None.
            uncond_mask: (B,) bool from `draw_uncond`, true where the label is ignored.
            reversal: Strength of the gradient reversal.
        """
        latents = self.latents(images)
        ordinal, nonordinal = self.quantized(latents, levels, uncond_mask)
        return Analysis(
            ordinal=ordinal,
            nonordinal=nonordinal,
            ordinal_logits=self.ordinal_classifier(ordinal.codes),
            nonordinal_logits=self.nonordinal_classifier(
                reverse_gradient(nonordinal.codes, reversal)
            ),
            latents=latents,
        )

    def draw_uncond(self, batch: int, generator: torch.Generator) -> Tensor:
        """Draw which samples are encoded without their label: (B,) bool on its device."""
        drawn = torch.rand(batch, generator=generator, device=generator.device)
        return drawn < self.config.p_uncond

    def draw_perturbation(self, batch: int, generator: torch.Generator) -> Perturbation | None:
        """Draw the configured perturbation of a batch, or None when there is none."""
        dropout, noise = self.config.nonordinal_dropout, self.config.nonordinal_noise
        if not dropout and not noise:
            return None
        shape = (batch, self.config.code_dim, self.latent_size, self.latent_size)
        return draw_perturbation(shape, generator, dropout=dropout, noise=noise)

    def save(self, folder: str | Path, dtype: torch.dtype | None = None) -> None:
        """Write ``generator.safetensors`` and ``generator.json``, each atomically.

        Args:
            folder: Run folder, made when absent.
            dtype: Type to store the weights in, such as ``torch.float16``; None keeps theirs.
        """
        save_tensors(Path(folder) / WEIGHTS_FILE, self.state_dict(), dtype)
        write_config(Path(folder) / CONFIG_FILE, self.config)

    @classmethod
    def load(cls, folder: str | Path, device: torch.device | str = "cpu") -> Self:
        """Read a generator back, in float32 and evaluation mode.

        Args:
            folder: Run folder holding both files.
            device: Where to put it.
        """
        config = read_config(Path(folder) / CONFIG_FILE)
        weights = Path(folder) / WEIGHTS_FILE
        tensors = load_tensors(weights)
        generator = cls.seeded(config, seed=0)
        cure = f"take it from the run of {CONFIG_FILE}; if it is, train again, shapes have changed"
        fill(generator, tensors, weights, cure=cure)
        return generator.to(device, torch.float32).eval()

    def _codes(self, ordinal: Quantized, nonordinal: Quantized) -> Codes:
        soft = self.quantize_ordinal is not None and self.config.attention == "soft"
        return Codes(
            ordinal.codes,
            nonordinal.codes,
            None if soft else ordinal.indices,
            nonordinal.indices,
        )

    def _check_images(self, images: Tensor) -> None:
        factor = self.architecture.factor
        if images.dim() != 4 or images.shape[1] != self.in_channels:
            raise DisMixError(
                f"images of shape {tuple(images.shape)}",
                cure=f"this generator takes (B, {self.in_channels}, H, W)",
            )
        if images.shape[2] % factor or images.shape[3] % factor:
            raise DisMixError(
                f"images of {images.shape[2]} x {images.shape[3]} pixels",
                cure=f"resize to {self.image_size} pixels a side",
            )

    def _check_levels(self, levels: Tensor | None) -> None:
        wanted = self.config.num_ranks - 1
        if levels is not None and (levels.dim() != 2 or levels.shape[1] != wanted):
            raise DisMixError(
                f"levels of shape {tuple(levels.shape)}",
                cure=f"this generator grades {wanted + 1} ranks: give (B, {wanted})",
            )
