import math

import pytest
import torch

from dismix.generator.codebook import CodebookUsage, draw_revival, grid, positions
from dismix.generator.quantizers import NearestQuantizer, OrdinalQuantizer


def test_usage_and_perplexity_match_a_loop() -> None:
    rng = torch.Generator().manual_seed(0)
    usage = CodebookUsage(10)
    seen = []
    for _ in range(3):
        indices = torch.randint(0, 7, (2, 4, 4), generator=rng)
        usage.update(indices)
        seen += indices.flatten().tolist()
    shares = [seen.count(code) / len(seen) for code in range(10)]
    entropy = -sum(p * math.log(p) for p in shares if p)
    assert usage.counts.tolist() == [seen.count(code) for code in range(10)]
    assert usage.fraction() == sum(p > 0 for p in shares) / 10
    assert usage.perplexity() == pytest.approx(math.exp(entropy))
    usage.reset()
    assert usage.fraction() == usage.perplexity() == 0.0


def test_counts_are_not_saved_and_count_training_only() -> None:
    quantize = NearestQuantizer(8, 2)
    assert "usage.counts" not in quantize.state_dict()
    z = torch.zeros(1, 2, 3, 3)
    quantize.train()(z)
    assert int(quantize.usage.counts.sum()) == 9
    quantize.eval()(z)
    assert int(quantize.usage.counts.sum()) == 9


def test_positions_and_grid_are_inverse() -> None:
    z = torch.arange(2 * 3 * 2 * 4.0).reshape(2, 3, 2, 4)
    flat = positions(z)
    assert torch.equal(flat[1 * 8 + 1 * 4 + 3], z[1, :, 1, 3])
    assert torch.equal(grid(flat, z), z)


@pytest.mark.parametrize(
    "make", [lambda: NearestQuantizer(6, 2), lambda: OrdinalQuantizer(3, 6, 2)]
)
def test_revive_replaces_exactly_the_dead_codes_by_samples(make) -> None:
    quantize = make()
    quantize.usage.update(torch.tensor([0, 3, 3]))
    before = quantize.embedding.weight.detach().clone()
    samples = torch.arange(40.0).reshape(20, 2) + 100
    assert quantize.revive(samples, torch.Generator().manual_seed(1)) == 4
    after = quantize.embedding.weight.detach()
    assert torch.equal(after[[0, 3]], before[[0, 3]])
    revived = after[[1, 2, 4, 5]].tolist()
    assert all(row in samples.tolist() for row in revived)
    assert len({tuple(row) for row in revived}) == 4
    assert quantize.embedding.weight.requires_grad


def test_revival_depends_on_the_generator_only() -> None:
    counts, samples = torch.zeros(5, dtype=torch.long), torch.randn(3, 4, 8, 8)
    draws = [draw_revival(counts, samples, torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert torch.equal(draws[0].vectors, draws[1].vectors)
    assert not torch.equal(draws[0].vectors, draws[2].vectors)


def test_few_or_broken_samples_revive_few() -> None:
    samples = torch.tensor([[1.0, 2.0], [float("nan"), 0.0], [3.0, 4.0]])
    drawn = draw_revival(torch.zeros(9, dtype=torch.long), samples, torch.Generator())
    assert len(drawn) == 2
    assert torch.isfinite(drawn.vectors).all()
    nothing = draw_revival(torch.ones(9, dtype=torch.long), samples, torch.Generator())
    assert len(nothing) == 0
    # An empty revival is also fine to apply.
    NearestQuantizer(9, 2).apply_revival(nothing)


def test_a_collapsed_codebook_comes_back_to_life() -> None:
    rng = torch.Generator().manual_seed(0)
    z = torch.randn(4, 2, 16, 16, generator=rng)
    quantize = NearestQuantizer(64, 2)
    quantize(z)
    collapsed = quantize.usage.perplexity()
    quantize.revive(z, rng)
    quantize.usage.reset()
    quantize(z)
    assert quantize.usage.perplexity() > 2 * collapsed
    assert quantize.usage.fraction() > 0.8
