import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dismix.errors import DisMixError
from dismix.generator.config import GeneratorConfig
from dismix.generator.losses import combine
from dismix.generator.model import Codes, Generator
from dismix.generator.starting import start_from_data

TINY = GeneratorConfig(num_ranks=5, arch="tiny", nonordinal_codes=64, ordinal_codes=32)
VARIANTS = {
    "default": {},
    "paper": {"cosine": False, "projections": "shared", "p_uncond": 0.0},
    "soft": {"attention": "soft"},
    "single": {"codebooks": "single"},
    "unconditioned": {"conditioned": False},
    "no_null": {"null_label": "none"},
    "pool": {"classifier_input": "pool"},
    "conv": {"classifier_input": "conv"},
    "wide_ordinal": {"ordinal_dim": 9},
    "colour": {"in_channels": 3, "image_size": 32},
}


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(variant: str = "default", **changes: object) -> Generator:
    generator = Generator.seeded(replace(TINY, **{**VARIANTS[variant], **changes}), seed=0)
    # Otherwise all positions of all images share one code and most tests would prove nothing.
    start_from_data(generator, images(generator), LEVELS, rng(2))
    return generator


def images(generator: Generator, batch: int = 2) -> torch.Tensor:
    shape = (batch, generator.in_channels, generator.image_size, generator.image_size)
    return torch.rand(shape, generator=rng(1)) * 2 - 1


LEVELS = torch.tensor([[1.0, 1.0, 0.5, 0.0], [0.75, 0.5, 0.0, 0.0]])


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_trains_decodes_and_reloads(variant: str, tmp_path: Path) -> None:
    generator = make(variant)
    x, config = images(generator), generator.config
    output = generator(x, LEVELS, generator.draw_uncond(2, rng()))
    size = generator.latent_size
    rebuilt = generator.decode(output.codes)
    assert rebuilt.shape == x.shape
    assert output.ordinal.codes.shape == (2, config.ordinal_width, size, size)
    assert output.nonordinal.codes.shape == (2, config.code_dim, size, size)
    assert output.ordinal_logits.shape == output.nonordinal_logits.shape == (2, 4)
    assert len(output.ordinal.indices.unique()) > 10
    assert len(output.nonordinal.indices.unique()) > 10

    terms = output.terms(LEVELS) | {"reconstruction": (rebuilt - x).square().mean()}
    combine(terms)["loss"].backward()
    unused = [n for n, p in generator.named_parameters() if p.grad is None]
    # A batch may happen to hold no masked sample; nothing else may go without a gradient.
    assert set(unused) <= {"quantize_ordinal.condition.null"}

    generator.eval().save(tmp_path)
    loaded = Generator.load(tmp_path)
    assert loaded.config == config
    with torch.no_grad():
        codes, again = generator.encode(x, LEVELS), loaded.encode(x, LEVELS)
        assert torch.equal(codes.ordinal, again.ordinal)
        assert torch.equal(generator.decode(codes), loaded.decode(again))


def test_terms_are_those_of_the_paper() -> None:
    generator = make()
    output = generator(images(generator), LEVELS)
    terms = output.terms(LEVELS)
    assert list(terms) == [
        "quantize_ordinal",
        "quantize_nonordinal",
        "rank_ordinal",
        "rank_nonordinal",
        "similarity",
    ]
    bce = torch.nn.functional.binary_cross_entropy_with_logits
    torch.testing.assert_close(terms["rank_ordinal"], bce(output.ordinal_logits, LEVELS))
    torch.testing.assert_close(terms["rank_nonordinal"], bce(output.nonordinal_logits, LEVELS))
    assert output.terms(LEVELS, signed=True)["similarity"] < terms["similarity"]


def test_one_codebook_feeds_both_heads() -> None:
    generator = make("single")
    output = generator(images(generator), LEVELS)
    assert output.ordinal is output.nonordinal
    assert list(output.terms(LEVELS)) == ["quantize", "rank_ordinal", "rank_nonordinal"]
    assert generator.quantize_ordinal is None
    codes = generator.encode(images(generator), LEVELS)
    assert torch.equal(codes.ordinal_indices, codes.nonordinal_indices)


def test_encoding_without_labels_knows_none_and_with_labels_depends_on_them() -> None:
    generator = make().eval()
    x = images(generator)
    free, low, high = (
        generator.encode(x, levels) for levels in (None, torch.zeros(2, 4), torch.ones(2, 4))
    )
    assert not torch.equal(low.ordinal, high.ordinal)
    assert torch.equal(low.nonordinal, high.nonordinal)
    assert torch.equal(free.nonordinal, high.nonordinal)
    # No path: what maps labels may be anything at all without a change in label-free codes.
    generator.quantize_ordinal.condition.h1.weight.data.fill_(float("nan"))
    assert torch.equal(generator.encode(x).ordinal, free.ordinal)
    masked = generator(x, torch.zeros(2, 4), torch.tensor([True, True]))
    assert torch.equal(masked.ordinal.codes.detach(), free.ordinal)


def test_indices_say_all_about_hard_codes() -> None:
    generator = make().eval()
    codes = generator.encode(images(generator), LEVELS)
    again = generator.codes_from_indices(
        codes.ordinal_indices.to(torch.int32), codes.nonordinal_indices.to(torch.uint8)
    )
    assert torch.equal(codes.ordinal, again.ordinal)
    assert torch.equal(codes.nonordinal, again.nonordinal)
    assert torch.equal(generator.decode(codes), generator.decode(again))
    assert make("soft").encode(images(generator)).ordinal_indices is None


def test_stored_latents_can_be_conditioned_on_another_rank() -> None:
    generator = make().eval()
    x, other = images(generator), torch.ones(2, 4)
    latents = generator.latents(x)
    codes = generator.quantized_ordinal(latents.ordinal, other).codes
    assert torch.equal(codes, generator.encode(x, other).ordinal)


def test_decoder_reads_ordinal_codes_first() -> None:
    generator = make("wide_ordinal").eval()
    codes = generator.encode(images(generator))
    weight = generator.post_quant_conv.weight
    assert weight.shape == (16, 9 + 4, 1, 1)
    with torch.no_grad():
        weight[:, :9] = 0
    moved = Codes(codes.ordinal + 1, codes.nonordinal)
    assert torch.equal(generator.decode(codes), generator.decode(moved))


def test_two_projections_separate_what_one_shared_z_does_not() -> None:
    for variant, reached in (("default", False), ("paper", True)):
        generator = make(variant)
        output = generator(images(generator), LEVELS)
        ordinal = generator.quant_conv_ordinal or generator.quant_conv
        gradient = torch.autograd.grad(
            output.terms(LEVELS)["rank_nonordinal"], ordinal.weight, allow_unused=True
        )[0]
        assert (gradient is not None and bool(gradient.abs().sum() > 0)) == reached


def test_reversal_turns_the_gradient_of_the_nonordinal_rank_only() -> None:
    generator = make()
    gradients = []
    for strength in (1.0, -1.0, 0.0, torch.tensor(0.5)):
        output = generator(images(generator), LEVELS, reversal=strength)
        loss = output.terms(LEVELS)["rank_nonordinal"]
        wanted = [generator.quant_conv.weight, next(generator.nonordinal_classifier.parameters())]
        gradients.append(torch.autograd.grad(loss, wanted))
    (with_grl, head), (without, same_head), (blocked, _), (half, _) = gradients
    torch.testing.assert_close(with_grl, -without)
    torch.testing.assert_close(half, 0.5 * with_grl)
    assert with_grl.abs().sum() > 0
    assert blocked.abs().sum() == 0
    assert torch.equal(head, same_head)


def test_perturbation_is_drawn_only_when_configured() -> None:
    generator = make(nonordinal_dropout=0.5, nonordinal_noise=0.5)
    drawn = generator.draw_perturbation(2, rng())
    codes = generator(images(generator), LEVELS).nonordinal.codes
    assert drawn is not None
    assert not torch.equal(drawn(codes), codes)
    assert make().draw_perturbation(2, rng()) is None


def test_uncond_share_and_seed() -> None:
    generator = make()
    mask = generator.draw_uncond(10_000, rng(3))
    assert 0.18 < mask.float().mean() < 0.22
    assert torch.equal(mask, generator.draw_uncond(10_000, rng(3)))


@pytest.mark.parametrize(("arch", "z_channels"), [("vq-f8", 4), ("light", 32)])
def test_full_size_shapes_on_the_meta_device(arch: str, z_channels: int) -> None:
    with torch.device("meta"):
        generator = Generator(GeneratorConfig(num_ranks=5, arch=arch))
        output = generator(torch.zeros(2, 3, 256, 256), torch.zeros(2, 4))
        assert generator.decode(output.codes).shape == (2, 3, 256, 256)
    assert output.ordinal.codes.shape == output.nonordinal.codes.shape == (2, 4, 32, 32)
    shapes = {name: tuple(tensor.shape) for name, tensor in generator.state_dict().items()}
    assert shapes["quant_conv.weight"] == (4, z_channels, 1, 1)
    assert shapes["quant_conv_ordinal.weight"] == (4, z_channels, 1, 1)
    assert shapes["post_quant_conv.weight"] == (z_channels, 8, 1, 1)
    assert shapes["quantize.embedding.weight"] == (16384, 4)
    assert shapes["quantize_ordinal.embedding.weight"] == (512, 4)
    assert any(name.startswith("encoder.") for name in shapes)
    assert any(name.startswith("decoder.") for name in shapes)


def test_autocast_and_pure_bfloat16() -> None:
    generator = make()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = generator(images(generator), LEVELS)
        terms = output.terms(LEVELS)
    assert all(torch.isfinite(term) and term.dtype == torch.float32 for term in terms.values())
    half = make().bfloat16().eval()
    codes = half.encode(images(half).bfloat16(), LEVELS)
    assert half.decode(codes).dtype == torch.bfloat16
    output = half(images(half).bfloat16(), LEVELS)
    assert torch.isfinite(output.ordinal_logits).all()


@pytest.mark.slow
def test_compiles_as_one_graph_and_counts_while_training() -> None:
    generator = make().train()
    x, mask = images(generator), torch.tensor([True, False])
    compiled = torch.compile(generator, backend="eager", fullgraph=True)
    output = compiled(x, LEVELS, mask, reversal=torch.tensor(0.5))
    assert int(generator.quantize.usage.counts.sum()) == 2 * generator.latent_size**2
    expected = generator(x, LEVELS, mask, reversal=torch.tensor(0.5))
    assert torch.equal(output.codes.ordinal, expected.codes.ordinal)
    assert torch.equal(output.ordinal.indices, expected.ordinal.indices)


def test_seeded_start_leaves_the_global_state_alone() -> None:
    state = torch.get_rng_state()
    a, b, c = (Generator.seeded(TINY, seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["quant_conv.weight"], c["quant_conv.weight"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_file(tmp_path: Path, dtype: torch.dtype) -> None:
    generator = make()
    generator.save(tmp_path / "whole")
    generator.save(tmp_path / "half", dtype)
    sizes = [(tmp_path / f / "generator.safetensors").stat().st_size for f in ("whole", "half")]
    assert sizes[1] < 0.6 * sizes[0]
    weights = Generator.load(tmp_path / "half").state_dict()
    for name, tensor in generator.state_dict().items():
        assert torch.equal(weights[name], tensor.to(dtype).float())


def test_wrong_inputs_say_what_fits() -> None:
    generator = make()
    with pytest.raises(DisMixError, match=r"takes \(B, 1, H, W\)"):
        generator.encode(torch.zeros(1, 3, 64, 64))
    with pytest.raises(DisMixError, match="resize to 64"):
        generator.encode(torch.zeros(1, 1, 63, 64))
    with pytest.raises(DisMixError, match="grades 5 ranks"):
        generator.encode(images(generator), torch.zeros(2, 3))
    with pytest.raises(DisMixError, match="did you mean 'tiny'"):
        Generator(replace(TINY, arch="tinny"))


def test_loading_problems_name_the_file_and_the_cure(tmp_path: Path) -> None:
    with pytest.raises(DisMixError, match=r"generator\.json: no such file; give the folder"):
        Generator.load(tmp_path / "nowhere")
    make().save(tmp_path)
    weights, config = tmp_path / "generator.safetensors", tmp_path / "generator.json"
    whole = weights.read_bytes()

    tampered = bytearray(whole)
    tampered[-3] ^= 1
    weights.write_bytes(tampered)
    with pytest.raises(DisMixError, match=r"generator\.safetensors: contents do not match"):
        Generator.load(tmp_path)
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DisMixError, match=r"generator\.safetensors: not a whole safetensors"):
        Generator.load(tmp_path)

    weights.write_bytes(whole)
    values = json.loads(config.read_text())
    config.write_text(json.dumps(values | {"ordinal_codes": 33}))
    with pytest.raises(DisMixError, match=r"another shape, first 'quantize_ordinal\.embedding"):
        Generator.load(tmp_path)
    weights.unlink()
    with pytest.raises(DisMixError, match=r"generator\.safetensors: no such file"):
        Generator.load(tmp_path)


def test_images_of_any_kind_are_read_alike_or_refused() -> None:
    generator = make().eval()
    bytes_ = (torch.rand(2, 1, 64, 64, generator=rng(3)) * 255).byte()
    wanted = generator.encode(bytes_ / 127.5 - 1).nonordinal_indices
    assert torch.equal(generator.encode(bytes_).nonordinal_indices, wanted)
    again = generator.encode(bytes_.double() / 127.5 - 1).nonordinal_indices
    # A pixel of another rounding may tip a code over.
    assert (again == wanted).float().mean() > 0.99
    for images_, message in (
        (bytes_.float(), "images have pixels of 25[0-5], and must be uint8"),
        (bytes_.numpy(), "images are no tensor but of type ndarray"),
        (bytes_.to(torch.int16), r"got torch.int16; 8 bits are .to\(torch.uint8\), 16 bits"),
    ):
        with pytest.raises(DisMixError, match=message):
            generator.encode(images_)
