"""Each formula against a slow or a published one."""

import itertools

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from dismix.bench.statistics import (
    bootstrap,
    holm,
    mean_sd,
    resampled_means,
    sign_flip_test,
    signed_rank,
)
from dismix.errors import DisMixError


def _listed(differences):
    """Signed-rank p by listing all signs, and the effect by its definition."""
    kept = [d for d in np.round(differences, 9) if d != 0]
    ranks = stats.rankdata(np.abs(kept))
    up = sum(r for r, d in zip(ranks, kept, strict=True) if d > 0)
    down = sum(r for r, d in zip(ranks, kept, strict=True) if d < 0)
    flips = list(itertools.product([0, 1], repeat=len(kept)))
    as_large = sum(np.dot(flip, ranks) >= up - 1e-9 for flip in flips)
    return as_large / len(flips), up / (up + down) - down / (up + down)


@pytest.mark.parametrize("seed", range(6))
def test_signed_rank_is_the_listed_law_also_with_ties_and_zeros(seed):
    differences = np.random.default_rng(seed).integers(-3, 5, 10) / 100
    found = signed_rank(differences)
    p, effect = _listed(differences)
    assert found.p == pytest.approx(p, abs=1e-12)
    assert found.effect == pytest.approx(effect, abs=1e-12)
    assert found.zeros == (differences == 0).sum()
    assert found.pairs + found.zeros == 10


def test_signed_rank_is_scipys_exact_one_without_ties():
    differences = np.random.default_rng(1).normal(0.3, 1, 30)
    exact = stats.wilcoxon(differences, alternative="greater", method="exact")
    found = signed_rank(differences)
    assert found.p == pytest.approx(exact.pvalue, rel=1e-9)
    assert found.statistic == exact.statistic
    assert signed_rank(differences, ties="as_computed").p == pytest.approx(exact.pvalue)


def test_rounding_noise_makes_no_ranks():
    # 0.58 - 0.57 and 0.05 - 0.04 differ in the last bit.
    noisy = [0.58 - 0.57, 0.05 - 0.04, 0.05 - 0.04, 0.41 - 0.42]
    assert signed_rank(noisy).p == signed_rank([1, 1, 1, -1]).p
    assert signed_rank(noisy, ties="as_computed").p != signed_rank(noisy).p


def test_signed_rank_of_nothing_says_nothing():
    assert signed_rank([]).p == 1
    assert signed_rank([0.0, 0.0]) == signed_rank([1e-12, -1e-12])
    assert signed_rank([0.0, 0.0]).zeros == 2


def test_holm_is_statsmodels():
    rng = np.random.default_rng(3)
    for count in (1, 2, 7):
        p = rng.uniform(0, 0.2, count)
        assert holm(p.tolist()) == pytest.approx(multipletests(p, method="holm")[1])
    assert holm([]) == []


@pytest.mark.parametrize("seed", range(4))
def test_sign_flips_are_scipys_permutations(seed):
    differences = np.round(np.random.default_rng(seed).normal(0.4, 1, 9), 2)
    exact = stats.permutation_test(
        (differences, np.zeros(9)), lambda a, b, axis: (a - b).mean(axis=axis),
        permutation_type="samples", alternative="greater", n_resamples=np.inf, vectorized=True,
    )  # fmt: skip
    assert sign_flip_test(differences) == pytest.approx(exact.pvalue)


def test_many_pairs_are_sampled_near_the_truth():
    differences = np.random.default_rng(5).normal(0.25, 1, 40)
    # The exact law is near normal with 40 pairs.
    normal = stats.norm.sf(differences.sum() / np.sqrt((differences**2).sum()))
    assert sign_flip_test(differences) == pytest.approx(normal, abs=0.005)
    assert sign_flip_test(differences) == sign_flip_test(differences)
    assert sign_flip_test([]) == 1


def test_bootstrap_is_a_slow_loop_and_near_scipy():
    values = np.random.default_rng(7).normal(0.1, 1, 80)
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 80, (300, 80))
    slow = [sum(values[i] for i in row) / 80 for row in rows]
    assert resampled_means(values, 300, 0) == pytest.approx(slow)
    found = bootstrap(values, draws=4000)
    other = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=4000, rng=1)
    assert (found.low, found.high) == pytest.approx(tuple(other.confidence_interval), abs=0.02)
    assert found.mean == pytest.approx(values.mean())


def test_bootstrap_in_slices_is_bootstrap_at_once():
    values = np.arange(1000.0)
    rows = np.random.default_rng(4).integers(0, 1000, (2500, 1000))
    assert resampled_means(values, 2500, 4) == pytest.approx(values[rows].mean(axis=1))


def test_mean_sd():
    assert mean_sd([0.4]) == (0.4, None)
    mean, sd = mean_sd([1, 2, 4])
    assert (mean, sd) == pytest.approx((7 / 3, np.std([1, 2, 4], ddof=1)))
    with pytest.raises(DisMixError, match="no values"):
        mean_sd([])
    with pytest.raises(DisMixError, match="no images"):
        bootstrap([])
