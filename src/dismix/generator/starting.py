"""First values: from a published first stage, or from data.

A published vq-f8 file fills what it can, and the decoder starts by reading z_n alone. From
data come latents of unit scale and codebooks that cover them: at random first weights the
features of different images differ by a hundredth of their offset, all positions then
share one code, and training has to escape from that.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from dismix.generator.autoencoder import freeze_down
from dismix.generator.codebook import Codebook
from dismix.generator.guide import Guide
from dismix.generator.model import Generator
from dismix.generator.pretrained import load_pretrained, widen_post_quant
from dismix.generator.trunk import ConvTrunk, Lite0Trunk, start_lite0
from dismix.modes import evaluating


@torch.no_grad()
def standardise(projection: nn.Conv2d, features: Tensor, most: float = 1e6) -> None:
    """Rescale a projection so that its output on ``features`` has mean 0 and deviation 1.

    Args:
        projection: Convolution with a bias.
        features: (B, channels, h, w) a typical input.
        most: Largest factor; features that hardly differ stay nearly equal.

    Example:
        >>> projection, features = nn.Conv2d(3, 2, 1), 5 + torch.randn(4, 3, 8, 8)
        >>> standardise(projection, features)
        >>> projection(features).detach().std(dim=(0, 2, 3)).round(decimals=3)
        tensor([1., 1.])
    """
    output = projection(features).float()
    mean, deviation = output.mean(dim=(0, 2, 3)), output.std(dim=(0, 2, 3)).clamp_min(1.0 / most)
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
        {'quantize': 64, 'quantize_ordinal': 128}
    """
    with evaluating(model):
        return _started(model, images, levels, rng, nonordinal=nonordinal)


def _started(
    model: Generator,
    images: Tensor,
    levels: Tensor | None,
    rng: torch.Generator,
    *,
    nonordinal: bool,
) -> dict[str, int]:
    features = model.encoder(images)
    if nonordinal:
        standardise(model.quant_conv, features)
    if model.quant_conv_ordinal is not None:
        # A trunk's output is normalised already, and amplifying what little differs at
        # first would amplify every later change with it.
        most = 1e6 if model.ordinal_trunk is None else 4.0
        standardise(model.quant_conv_ordinal, model.ordinal_features(images, features), most)
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
    return filled


@torch.no_grad()
def start_from_published(model: Generator, tensors: Mapping[str, Tensor]) -> list[str]:
    """Copy the tensors of a published first stage; return the names that found no place.

    ``post_quant_conv`` starts as [0 | published], so that the first step decodes z_n as the
    published model does; the ordinal projection starts as a copy of ``quant_conv``.

    Args:
        model: Generator to start.
        tensors: Published tensors by their own names, such as those that
            `dismix.generator.pretrained.load_pretrained` leaves to its caller.

    Example:
        >>> from dismix.generator.config import GeneratorConfig
        >>> model = Generator.seeded(GeneratorConfig(num_ranks=5, arch="tiny"), seed=0)
        >>> published = nn.Conv2d(4, 16, 1)
        >>> _ = nn.init.ones_(published.weight)
        >>> start_from_published(
        ...     model, {f"post_quant_conv.{k}": v for k, v in published.state_dict().items()}
        ... )
        []
        >>> model.post_quant_conv.weight[0].flatten().detach()
        tensor([0., 0., 0., 0., 1., 1., 1., 1.])
    """
    given = dict(tensors)
    weight, bias = given.get("post_quant_conv.weight"), given.get("post_quant_conv.bias")
    if weight is not None and bias is not None and weight.shape[1] == model.config.code_dim:
        wide, _ = widen_post_quant(weight, bias, ordinal_dim=model.config.ordinal_width)
        given["post_quant_conv.weight"] = wide
    for part in ("weight", "bias"):
        if f"quant_conv.{part}" in given:
            given[f"quant_conv_ordinal.{part}"] = given[f"quant_conv.{part}"]
    state = model.state_dict()
    placed = {n for n, t in given.items() if n in state and state[n].shape == t.shape}
    for name in placed:
        state[name].copy_(given[name])
    return sorted(set(tensors) - placed)


def start_pretrained(model: Generator, path: str | Path, *, freeze: bool = True) -> bool:
    """Start the autoencoder from a published file and freeze what the paper freezes.

    Args:
        model: Generator at its first weights.
        path: File of the model's architecture.
        freeze: Keep the encoder's way down as published.

    Returns:
        Whether the file also gave the non-ordinal projection and codebook (vq-f8). Those of
        another size than the file's are left to `start_from_data`.
    """
    rest = load_pretrained(model, model.architecture, path)
    left = start_from_published(model, rest)
    if freeze:
        freeze_down(model, model.architecture)
    wanted = {"quant_conv.weight", "quant_conv.bias", "quantize.embedding.weight"}
    return wanted <= rest.keys() - set(left)


def start_trunk(model: Generator, guide: Guide | None) -> None:
    """Let the ordinal trunk begin as a trained grader's, else, for Lite0, as ImageNet's.

    Args:
        model: Generator with or without a trunk.
        guide: Grader that sees what the trunk sees, or None.
    """
    if not start_from_guide(model, guide) and isinstance(model.ordinal_trunk, Lite0Trunk):
        start_lite0(model.ordinal_trunk.backbone)


def start_from_guide(model: Generator, guide: Guide | None) -> bool:
    """Let the ordinal trunk begin as the guide's; return whether they see the same.

    Args:
        model: Generator with or without a trunk.
        guide: Trained grader, or None.
    """
    trunk = model.ordinal_trunk
    if guide is None:
        return False
    if isinstance(trunk, ConvTrunk) and guide.trunk is not None:
        trunk.load_state_dict(guide.trunk.state_dict())
        return True
    if isinstance(trunk, Lite0Trunk) and guide.backbone is not None and guide.whole:
        wanted = trunk.backbone.state_dict()
        given = guide.backbone.state_dict()
        trunk.backbone.load_state_dict({name: t for name, t in given.items() if name in wanted})
        return True
    return False
