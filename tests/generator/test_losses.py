import math

import pytest
import torch

from dismix.errors import DisMixError
from dismix.generator.losses import (
    UnitSumWeights,
    combine,
    lsgan_discriminator,
    lsgan_generator,
    similarity,
    sor,
)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def slow_bce(logit: float, level: float) -> float:
    p = 1 / (1 + math.exp(-logit))
    return -(level * math.log(p) + (1 - level) * math.log(1 - p))


@pytest.mark.parametrize("weighting", [None, "sample", "level"])
def test_sor_matches_a_loop(weighting: str | None) -> None:
    logits, levels = torch.randn(3, 4, generator=rng()), torch.rand(3, 4, generator=rng(1))
    full = torch.rand(3, 4, generator=rng(2))
    if weighting == "sample":
        full = full[:, :1].expand(3, 4)
    weight = {None: None, "sample": full[:, 0], "level": full}[weighting]
    total = share = 0.0
    for b in range(3):
        for k in range(4):
            w = 1.0 if weighting is None else float(full[b, k])
            total += w * slow_bce(float(logits[b, k]), float(levels[b, k]))
            share += w
    assert sor(logits, levels, weight).item() == pytest.approx(total / share, rel=1e-5)


def test_sor_is_least_at_the_soft_label_and_stable_far_away() -> None:
    levels = torch.tensor([[0.75, 0.5, 0.25]])
    best = torch.logit(levels)
    assert sor(best, levels) < min(sor(best + d, levels) for d in (0.1, -0.1))
    assert torch.isfinite(sor(torch.tensor([[1e4, -1e4, 0.0]]), levels))
    assert sor(best, levels, torch.zeros(1)).item() == 0.0


def test_similarity_matches_a_loop() -> None:
    z_o, z_n = torch.randn(2, 4, 3, 2, generator=rng()), torch.randn(2, 4, 3, 2, generator=rng(1))
    angles = []
    for b in range(2):
        for i in range(3):
            for j in range(2):
                u, v = z_o[b, :, i, j].double(), z_n[b, :, i, j].double()
                angles.append(float(u @ v / (u.norm() * v.norm())))
    assert similarity(z_o, z_n).item() == pytest.approx(sum(map(abs, angles)) / 12, rel=1e-5)
    assert similarity(z_o, z_n, signed=True).item() == pytest.approx(sum(angles) / 12, rel=1e-4)


def test_similarity_of_different_dimensions_matches_a_loop() -> None:
    z_o, z_n = torch.randn(2, 5, 3, 2, generator=rng()), torch.randn(2, 3, 3, 2, generator=rng(1))
    angles = []
    for b in range(2):
        for a in range(5):
            for c in range(3):
                u, v = z_o[b, a].flatten().double(), z_n[b, c].flatten().double()
                angles.append(abs(float(u @ v / (u.norm() * v.norm()))))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert similarity(z_o, z_n).item() == pytest.approx(sum(angles) / 30, rel=1e-5)


def test_descending_the_absolute_cosine_leads_to_orthogonality_the_signed_one_past_it() -> None:
    fixed = torch.tensor([1.0, 0.0]).view(1, 2, 1, 1)
    ends = {}
    for signed in (False, True):
        z = torch.tensor([0.6, 0.8]).view(1, 2, 1, 1).requires_grad_()
        for _ in range(200):
            (gradient,) = torch.autograd.grad(similarity(z, fixed, signed=signed), z)
            z = (z - 0.05 * gradient).detach().requires_grad_()
        ends[signed] = similarity(z, fixed, signed=True).item()
    assert abs(ends[False]) < 0.06
    assert ends[True] < -0.9


def test_least_squares_targets() -> None:
    real, fake = torch.tensor([[1.0, 0.5]]), torch.tensor([[0.0, 2.0]])
    assert lsgan_discriminator(real, fake).item() == pytest.approx(0.125 + 2.0)
    assert lsgan_generator(fake).item() == pytest.approx((1 + 1) / 2)


def test_unit_sum_weights_sum_to_one_and_leave_hard_terms() -> None:
    weigh = UnitSumWeights(["easy", "middle", "hard"])
    with torch.no_grad():
        weigh.theta.copy_(torch.tensor([0.3, -0.2, 0.1]))
    terms = {"easy": torch.tensor(0.1), "middle": torch.tensor(1.0), "hard": torch.tensor(5.0)}
    shares = weigh.weights()
    assert sum(shares.values()).item() == pytest.approx(1.0)
    assert all(w > 0 for w in shares.values())
    total = weigh(terms)
    scale = sum(math.exp(t) for t in weigh.theta.tolist())
    expected = [math.exp(t) / scale for t in weigh.theta.tolist()]
    assert total.item() == pytest.approx(
        sum(w * float(v) for w, v in zip(expected, terms.values(), strict=True))
    )
    total.backward()
    for gradient, w, value in zip(weigh.theta.grad.tolist(), expected, terms.values(), strict=True):
        assert gradient == pytest.approx(w * (float(value) - total.item()), rel=1e-4)
    assert weigh.theta.grad[2] > 0 > weigh.theta.grad[0]


def test_an_absent_term_has_no_share_and_an_unknown_one_is_an_error() -> None:
    weigh = UnitSumWeights(["rank", "realism", "reconstruction"])
    shares = weigh.weights(["reconstruction", "rank"])
    assert list(shares) == ["reconstruction", "rank"]
    assert sum(shares.values()).item() == pytest.approx(1.0)
    with pytest.raises(DisMixError, match="did you mean 'realism'"):
        weigh({"realisms": torch.tensor(1.0)})
    with pytest.raises(ValueError, match="differ"):
        UnitSumWeights(["a", "a"])


def test_combine_logs_without_a_graph_and_descends_by_weight() -> None:
    x = torch.tensor(2.0, requires_grad=True)
    parts = combine({"a": x, "b": x * x}, {"a": 3.0, "b": 0.5})
    assert parts["loss"].item() == pytest.approx(3 * 2 + 0.5 * 4)
    parts["loss"].backward()
    assert x.grad.item() == pytest.approx(3 + 0.5 * 2 * 2)
    assert not any(v.requires_grad for k, v in parts.items() if k != "loss")
    assert combine({"a": x, "b": x})["loss"].item() == 4.0
    learned = combine({"a": x}, UnitSumWeights(["a", "b"]))
    assert learned["w_a"].item() == 1.0
    with pytest.raises(DisMixError, match="no weight for 'b'"):
        combine({"a": x, "b": x}, {"a": 1.0})


def test_half_precision_terms_become_float32() -> None:
    half = torch.ones(2, 3, dtype=torch.bfloat16)
    losses = {
        "sor": sor(half, half),
        "sim": similarity(half[..., None, None], half[..., None, None]),
        "d": lsgan_discriminator(half, half),
        "g": lsgan_generator(half),
    }
    assert all(loss.dtype == torch.float32 for loss in losses.values())
    assert combine({"a": half[0, 0]})["loss"].dtype == torch.float32
