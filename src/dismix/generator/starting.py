"""First values that depend on data: latents of unit scale, codebooks that cover them.

At random first weights the features of different images differ by a hundredth of their
offset, all positions then share one code, and training has to escape from that.
"""

import torch
from torch import Tensor, nn

from dismix.generator.codebook import Codebook
from dismix.generator.model import Generator


@torch.no_grad()
def standardise(projection: nn.Conv2d, features: Tensor) -> None:
    """Rescale a projection so that its output on ``features`` has mean 0 and deviation 1.

    Args:
        projection: Convolution with a bias.
        features: (B, channels, h, w) a typical input.

    Example:
        >>> projection, features = nn.Conv2d(3, 2, 1), 5 + torch.randn(4, 3, 8, 8)
        >>> standardise(projection, features)
        >>> projection(features).detach().std(dim=(0, 2, 3)).round(decimals=3)
        tensor([1., 1.])
    """
    output = projection(features).float()
    mean, deviation = output.mean(dim=(0, 2, 3)), output.std(dim=(0, 2, 3)).clamp_min(1e-6)
    assert projection.bias is not None
    projection.weight.div_(deviation[:, None, None, None])
    projection.bias.sub_(mean).div_(deviation)


@torch.no_grad()
def start_from_data(
    model: Generator,
    images: Tensor,
    levels: Tensor | None,
    rng: torch.Generator,
    *,
    nonordinal: bool = True,
) -> dict[str, int]:
    """Standardise the projections and fill the codebooks with queries; return codes filled.

    To fill a codebook of K codes the images must have at least K latent positions (16 images
    for 16384 codes at 32 x 32); codes beyond that keep their first values.

    Args:
        model: A generator at its first weights.
        images: (B, channels, H, W) in [-1, 1].
        levels: (B, C-1) to condition on, or None.
        rng: Source of the choice of queries.
        nonordinal: False leaves the non-ordinal projection and codebook alone, for when they
            come from a published file. One codebook or one shared projection is left then too.

    Example:
        >>> from dismix.generator.config import GeneratorConfig
        >>> config = GeneratorConfig(num_ranks=5, arch="tiny", nonordinal_codes=64)
        >>> model = Generator.seeded(config, seed=0)
        >>> images = torch.rand(2, 1, 64, 64, generator=torch.Generator().manual_seed(0))
        >>> start_from_data(model, images, None, torch.Generator().manual_seed(0))
        {'quantize': 64, 'quantize_ordinal': 512}
    """
    was_training = model.training
    model.eval()
    features = model.encoder(images)
    if nonordinal:
        standardise(model.quant_conv, features)
    if model.quant_conv_ordinal is not None:
        standardise(model.quant_conv_ordinal, features)
    ordinal, other = model.quantized(model.latents(images), levels)
    filled: dict[str, int] = {}
    branches: list[tuple[str, Codebook | None, Tensor, bool]] = [
        ("quantize", model.quantize, other.query, nonordinal),
        ("quantize_ordinal", model.quantize_ordinal, ordinal.query, True),
    ]
    for name, codebook, queries, wanted in branches:
        if codebook is not None and wanted:
            codebook.usage.reset()
            filled[name] = codebook.revive(queries, rng)
    model.train(was_training)
    return filled
