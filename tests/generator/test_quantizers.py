import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dismix.generator import quantizers
from dismix.generator.codebook import positions
from dismix.generator.config import GeneratorConfig
from dismix.generator.model import Generator
from dismix.generator.quantizers import LabelGate, NearestQuantizer, OrdinalQuantizer


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def nearest(codes: int = 37, dim: int = 4) -> NearestQuantizer:
    quantize = NearestQuantizer(codes, dim)
    quantize.embedding.weight.data.normal_(generator=rng(7))
    return quantize


def ordinal(**options: object) -> OrdinalQuantizer:
    quantize = OrdinalQuantizer(5, 37, 4, **options)
    for i, parameter in enumerate(quantize.parameters()):
        parameter.data.normal_(std=0.7, generator=rng(20 + i))
    return quantize


# --- nearest ---------------------------------------------------------------------------------


def test_nearest_matches_cdist() -> None:
    quantize, z = nearest(), torch.randn(2, 4, 5, 6, generator=rng())
    out = quantize(z)
    expected = torch.cdist(positions(z).double(), quantize.embedding.weight.double()).argmin(1)
    assert torch.equal(out.indices, expected.reshape(2, 5, 6))
    assert torch.equal(out.codes, quantize.lookup(out.indices))
    assert out.codes.shape == (2, 4, 5, 6)
    assert (
        out.codes[1, :, 2, 3].tolist() == quantize.embedding.weight[out.indices[1, 2, 3]].tolist()
    )


def test_nearest_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    quantize, z = nearest(), torch.randn(2, 4, 5, 6, generator=rng())
    whole = quantize(z).indices
    for limit in (1, 37 * 7, 37 * 60):
        monkeypatch.setattr(quantizers, "MAX_DISTANCES", limit)
        assert torch.equal(quantize(z).indices, whole)


def test_nearest_keeps_no_distances_for_the_backward_pass() -> None:
    quantize, z = nearest(codes=500), torch.randn(2, 4, 8, 8, generator=rng(), requires_grad=True)
    kept: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        quantize(z).loss.backward()
    assert kept
    assert max(kept) <= max(z.numel(), 500 * 4)


def test_nearest_gradient_goes_straight_through() -> None:
    quantize, z = nearest(), torch.randn(2, 4, 5, 6, generator=rng(), requires_grad=True)
    upstream = torch.randn(2, 4, 5, 6, generator=rng(1))
    (quantize(z).codes * upstream).sum().backward()
    assert torch.equal(z.grad, upstream)
    assert quantize.embedding.weight.grad is None


def test_nearest_losses_move_codebook_and_features_with_weight_one() -> None:
    quantize, z = nearest(), torch.randn(2, 4, 5, 6, generator=rng(), requires_grad=True)
    out = quantize(z)
    out.loss.backward()
    flat, indices = positions(z.detach()), out.indices.flatten()
    codes = quantize.embedding.weight.detach()[indices]
    total = sum(float(((a - b) ** 2).sum()) for a, b in zip(flat, codes, strict=True))
    assert out.loss.item() == pytest.approx(2 * total / z.numel(), rel=1e-5)
    torch.testing.assert_close(positions(z.grad), 2 * (flat - codes) / z.numel())
    expected = torch.zeros_like(quantize.embedding.weight)
    for row, code, index in zip(flat, codes, indices.tolist(), strict=True):
        expected[index] += 2 * (code - row) / z.numel()
    torch.testing.assert_close(quantize.embedding.weight.grad, expected)


def test_published_name_of_the_codebook() -> None:
    assert list(NearestQuantizer(8, 4).state_dict()) == ["embedding.weight"]


# --- label gate ------------------------------------------------------------------------------


def test_gate_matches_a_loop_over_positions() -> None:
    quantize, z = ordinal(), torch.randn(3, 4, 2, 2, generator=rng())
    gate, levels = quantize.condition, torch.rand(3, 4, generator=rng(3))
    out = gate(z, levels)
    for b in range(3):
        shift = gate.h1.weight @ levels[b] + gate.h1.bias
        scale = 1 / (1 + torch.exp(-(gate.h2.weight @ shift + gate.h2.bias)))
        for i in range(2):
            for j in range(2):
                torch.testing.assert_close(out[b, :, i, j], (z[b, :, i, j] + shift) * scale)


@pytest.mark.parametrize("null_label", ["learned", "none"])
def test_masked_samples_equal_those_without_a_label(null_label: str) -> None:
    quantize = ordinal(null_label=null_label)
    z, levels = torch.randn(4, 4, 3, 3, generator=rng()), torch.rand(4, 4, generator=rng(3))
    mask = torch.tensor([True, False, True, False])
    mixed, free, given = quantize(z, levels, mask), quantize(z), quantize(z, levels)
    torch.testing.assert_close(mixed.query[mask], free.query[mask])
    torch.testing.assert_close(mixed.query[~mask], given.query[~mask])
    assert not torch.allclose(free.query, given.query)
    assert torch.equal(free.query, z) == (null_label == "none")


@pytest.mark.parametrize("rank_only", [False, True])
@torch.no_grad()
def test_a_predicted_label_conditions_as_a_given_one(rank_only: bool) -> None:
    gate = ordinal(null_label="predicted", rank_only=rank_only).condition
    z = torch.randn(3, 4, 5, 5, generator=rng())
    levels = torch.zeros(3, 4)
    for image in range(3):
        mean = [float(z[image, channel].mean()) for channel in range(4)]
        for k in range(4):
            logit = float(gate.predict.weight[k] @ torch.tensor(mean) + gate.predict.bias[k])
            levels[image, k] = 1 / (1 + math.exp(-logit))
    torch.testing.assert_close(gate(z), gate(z, levels))


def test_learned_null_label_keeps_the_gates_scale() -> None:
    z = torch.randn(8, 4, 8, 8, generator=rng())
    torch.manual_seed(0)
    learned, none = LabelGate(5, 4), LabelGate(5, 4, "none")
    levels = torch.zeros(8, 4)
    ratio = learned(z).std() / learned(z, levels).std()
    assert 0.8 < ratio < 1.25
    assert none(z).std() / none(z, levels).std() > 1.5


def test_unconditioned_quantizer_ignores_labels() -> None:
    quantize = ordinal(conditioned=False)
    z = torch.randn(2, 4, 3, 3, generator=rng())
    assert torch.equal(quantize(z, torch.ones(2, 4)).codes, quantize(z).codes)
    assert not any("condition" in name for name in quantize.state_dict())


# --- ordinal attention -----------------------------------------------------------------------


def literal(quantize: OrdinalQuantizer, z: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes and l_Q by the formulas of the paper, one position at a time."""
    gate, table = quantize.condition, quantize.embedding.weight
    codes, loss = torch.zeros_like(z), torch.zeros(())
    batch, _, height, width = z.shape
    for b in range(batch):
        shift = gate.h1(levels[b])
        for i in range(height):
            for j in range(width):
                query = (z[b, :, i, j] + shift) * torch.sigmoid(gate.h2(shift))
                if quantize.cosine:
                    logits = F.cosine_similarity(query[None], table, dim=1)
                else:
                    logits = (query[None] * table).sum(1)
                soft = torch.softmax(logits / quantize.log_temperature.exp(), 0)
                onehot = F.one_hot(soft.argmax(), len(table)).float()
                if quantize.attention == "soft":
                    code = hard = soft @ table
                else:
                    code = (onehot - soft.detach() + soft) @ table
                    hard = onehot @ table
                codes[b, :, i, j] = code
                loss = loss + (query.detach() - hard).square().sum()
                loss = loss + (query - hard.detach()).square().sum()
    return codes, loss / z.numel()


@pytest.mark.parametrize("attention", ["hard", "soft"])
@pytest.mark.parametrize("cosine", [False, True])
def test_ordinal_matches_the_literal_formula_and_all_its_gradients(
    attention: str, cosine: bool
) -> None:
    quantize = ordinal(attention=attention, cosine=cosine, learn_temperature=True)
    z = torch.randn(2, 4, 3, 2, generator=rng(), requires_grad=True)
    levels = torch.rand(2, 4, generator=rng(3))
    upstream = torch.randn(2, 4, 3, 2, generator=rng(1))
    wanted = [z, *(p for n, p in quantize.named_parameters() if n != "condition.null")]

    out = quantize(z, levels)
    got = torch.autograd.grad((out.codes * upstream).sum() + out.loss, wanted)
    codes, loss = literal(quantize, z, levels)
    expected = torch.autograd.grad((codes * upstream).sum() + loss, wanted)

    torch.testing.assert_close(out.codes, codes, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(out.loss, loss)
    for a, b in zip(got, expected, strict=True):
        assert b.abs().max() > 0
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_hard_codes_are_rows_of_the_codebook_to_the_last_bit() -> None:
    quantize, z = ordinal(), torch.randn(2, 4, 6, 6, generator=rng())
    out = quantize(z, torch.rand(2, 4, generator=rng(3)))
    assert torch.equal(out.codes, quantize.lookup(out.indices))
    assert torch.equal(out.codes, quantize.lookup(out.indices.to(torch.int32)))


def test_soft_codes_are_not_rows_of_the_codebook() -> None:
    quantize, z = ordinal(attention="soft"), torch.randn(2, 4, 6, 6, generator=rng())
    out = quantize(z)
    assert not torch.allclose(out.codes, quantize.lookup(out.indices), atol=1e-3)


def test_dot_product_reaches_only_the_convex_hull() -> None:
    spatial = pytest.importorskip("scipy.spatial")
    quantize = OrdinalQuantizer(5, 512, 4, conditioned=False)
    quantize.embedding.weight.data.normal_(generator=rng(5))
    hull = set(spatial.ConvexHull(quantize.embedding.weight.detach().numpy()).vertices.tolist())
    z = torch.randn(8, 4, 64, 64, generator=rng())
    chosen = set(quantize(z).indices.flatten().tolist())
    assert chosen <= hull
    quantize.cosine = True
    assert len(set(quantize(z).indices.flatten().tolist())) > 2 * len(hull)


def test_temperature_is_fixed_unless_learned() -> None:
    assert not any("temperature" in n for n, _ in ordinal(temperature=0.1).named_parameters())
    names = [n for n, _ in ordinal(learn_temperature=True).named_parameters()]
    assert "log_temperature" in names
    assert OrdinalQuantizer(5, temperature=0.1).log_temperature.exp().item() == pytest.approx(0.1)


# --- both ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "quantize", [nearest(), ordinal(), ordinal(cosine=True)], ids=["nearest", "dot", "cosine"]
)
def test_autocast_does_not_touch_the_arithmetic(quantize: torch.nn.Module) -> None:
    z = torch.randn(2, 4, 6, 6, generator=rng()).bfloat16()
    expected = quantize(z.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = quantize(z)
    assert out.codes.dtype == out.loss.dtype == out.query.dtype == torch.float32
    assert torch.equal(out.indices, expected.indices)
    assert torch.equal(out.codes, expected.codes)
    assert torch.equal(out.loss, expected.loss)


@pytest.mark.parametrize("quantize", [nearest(), ordinal()], ids=["nearest", "dot"])
def test_a_broken_feature_shows_in_the_codes(quantize: torch.nn.Module) -> None:
    z = torch.randn(1, 4, 2, 2, generator=rng())
    z[0, 0, 0, 0] = float("nan")
    assert torch.isnan(quantize(z).codes).any()


def test_a_missing_label_is_predicted_in_half_precision_too() -> None:
    config = GeneratorConfig(num_ranks=5, arch="tiny", nonordinal_codes=64, null_label="predicted")
    model = Generator.seeded(config, 0).bfloat16().eval()
    with torch.no_grad():
        codes = model.encode(torch.rand(2, 1, 64, 64).bfloat16() * 2 - 1)
    assert codes.ordinal.isfinite().all()
