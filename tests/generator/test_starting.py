from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from dismix.generator.architectures import ARCHITECTURES
from dismix.generator.codes import Codes
from dismix.generator.config import GeneratorConfig
from dismix.generator.model import Generator
from dismix.generator.starting import (
    standardise,
    start_from_data,
    start_from_published,
    start_pretrained,
)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_standardise_gives_mean_zero_and_deviation_one() -> None:
    features = 3 + 0.01 * torch.randn(4, 6, 8, 8, generator=rng())
    projection = torch.nn.Conv2d(6, 3, 1)
    standardise(projection, features)
    output = projection(features)
    torch.testing.assert_close(output.mean((0, 2, 3)), torch.zeros(3), atol=2e-3, rtol=0.0)
    torch.testing.assert_close(output.std((0, 2, 3)), torch.ones(3), atol=1e-3, rtol=0.0)


@pytest.mark.parametrize("codebooks", ["dual", "single"])
def test_start_spreads_the_choices_and_keeps_the_mode(codebooks: str) -> None:
    config = GeneratorConfig(
        num_ranks=5, arch="tiny", nonordinal_codes=128, ordinal_codes=64, codebooks=codebooks
    )
    model = Generator.seeded(config, seed=0).train()
    images, levels = torch.rand(4, 1, 64, 64, generator=rng()) * 2 - 1, torch.rand(4, 4)
    before = model(images, levels).nonordinal.indices.unique().numel()
    filled = start_from_data(model, images, levels, rng(1))
    assert filled == {"quantize": 128} | ({"quantize_ordinal": 64} if codebooks == "dual" else {})
    assert model.training
    model(images, levels)
    assert before < 20
    assert model.quantize.usage.fraction() > 0.9
    if model.quantize_ordinal is not None:
        assert model.quantize_ordinal.usage.fraction() > 0.9


def test_a_published_nonordinal_branch_is_left_alone() -> None:
    model = Generator.seeded(GeneratorConfig(num_ranks=5, arch="tiny", nonordinal_codes=64), seed=0)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    start_from_data(model, torch.rand(2, 1, 64, 64, generator=rng()), None, rng(), nonordinal=False)
    changed = {name for name, t in model.state_dict().items() if not torch.equal(t, before[name])}
    assert changed == {
        "quant_conv_ordinal.weight",
        "quant_conv_ordinal.bias",
        "quantize_ordinal.embedding.weight",
    }


@pytest.mark.parametrize("ordinal_dim", [4, 6])
def test_published_tensors_decode_z_n_as_before_whatever_z_o_says(ordinal_dim: int) -> None:
    config = GeneratorConfig(num_ranks=5, arch="tiny", nonordinal_codes=64, ordinal_dim=ordinal_dim)
    source = Generator.seeded(config, seed=1)
    post = torch.nn.Conv2d(4, 16, 1)
    published = {
        name: tensor
        for name, tensor in source.state_dict().items()
        if name.startswith(("encoder.", "decoder.", "quant_conv.", "quantize."))
    }
    published |= {f"post_quant_conv.{n}": t.detach() for n, t in post.named_parameters()}
    model = Generator.seeded(config, seed=0)
    assert start_from_published(model, published | {"loss.other": torch.zeros(1)}) == ["loss.other"]

    images = torch.rand(2, 1, 64, 64, generator=rng()) * 2 - 1
    with torch.no_grad():
        codes = model.encode(images)
        assert torch.equal(codes.nonordinal, source.encode(images).nonordinal)
        expected = source.decoder(post(codes.nonordinal))
        torch.testing.assert_close(model.decode(codes), expected)
        other = Codes(torch.randn(codes.ordinal.shape, generator=rng()), codes.nonordinal)
        torch.testing.assert_close(model.decode(other), expected)
    copied = torch.equal(model.quant_conv_ordinal.bias[:4], model.quant_conv.bias)
    assert copied == (ordinal_dim == 4)


def test_a_codebook_of_another_size_is_reported() -> None:
    model = Generator.seeded(GeneratorConfig(num_ranks=5, arch="tiny", nonordinal_codes=64), seed=0)
    published = {"quantize.embedding.weight": torch.zeros(16384, 4)}
    assert start_from_published(model, published) == ["quantize.embedding.weight"]


@pytest.mark.parametrize(
    ("changes", "published"),
    [({}, True), ({"nonordinal_codes": 32}, False), ({"code_dim": 8}, False)],
)
def test_a_codebook_of_another_size_is_filled_from_data(
    changes: dict[str, int], published: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mini = replace(
        ARCHITECTURES["vq-f8"], image_size=32, ch=32, ch_mult=(1, 1), attn_resolutions=()
    )
    monkeypatch.setitem(ARCHITECTURES._entries, "vq-f8", mini)
    config = GeneratorConfig(num_ranks=5, arch="vq-f8", nonordinal_codes=64)
    source = Generator.seeded(config, seed=0)
    kept = ("encoder.", "decoder.", "quant_conv.", "quantize.embedding")
    file = {n: t.clone() for n, t in source.state_dict().items() if n.startswith(kept)}
    post = torch.nn.Conv2d(4, 4, 1)
    file |= {f"post_quant_conv.{n}": t.data for n, t in post.named_parameters()}
    save_file(file, tmp_path / "vq.safetensors")
    model = Generator.seeded(replace(config, **changes), seed=1)
    assert start_pretrained(model, tmp_path / "vq.safetensors") is published
    images = torch.rand(4, 3, 32, 32, generator=rng()) * 2 - 1
    start_from_data(model, images, None, rng(1), nonordinal=not published)
    if published:
        wanted = file["quantize.embedding.weight"]
        assert torch.equal(model.quantize.embedding.weight, wanted)
    else:
        # At their first values codes lie within 1/64 of zero, and features do not.
        assert model.quantize.embedding.weight.std() > 0.5
