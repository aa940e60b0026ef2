"""Tests and intervals for comparisons in pairs: signed ranks, sign flips, bootstrap, Holm.

Differences are always "ours minus theirs" with the sign turned so that more is better, and
every test is one-sided: is ours better?
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dismix.errors import DisMixError

Floats = NDArray[np.float64]
Ties = Literal["respected", "as_computed"]

#: Differences this close are one and the same: means over seeds carry rounding noise.
DECIMALS = 9
#: Sign flips are all listed up to this many pairs (a million), and sampled beyond.
MOST_LISTED = 20


@dataclass(frozen=True)
class SignedRank:
    """Outcome of a one-sided Wilcoxon signed-rank test.

    Attributes:
        p: Chance of so large a sum of positive ranks if signs were tosses of a coin.
        statistic: Sum of the ranks of positive differences.
        pairs: Pairs that differ.
        zeros: Pairs that do not, left out.
        effect: Matched-pairs rank-biserial correlation, -1 (always worse) to 1 (always better).
    """

    p: float
    statistic: float
    pairs: int
    zeros: int
    effect: float


@dataclass(frozen=True)
class Interval:
    """A mean with a percentile bootstrap interval."""

    mean: float
    low: float
    high: float


def mean_sd(values: ArrayLike) -> tuple[float, float | None]:
    """Return mean and standard deviation (n - 1), None for a single value.

    Example:
        >>> mean_sd([0.5, 0.7])
        (0.6, 0.14142135623730948)
    """
    array = np.asarray(values, np.float64)
    if not len(array):
        raise DisMixError("no values to average")
    return float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else None


def signed_rank(differences: ArrayLike, *, ties: Ties = "respected") -> SignedRank:
    """Test whether paired differences (n,) tend to be positive.

    Args:
        differences: Better is positive; zeros are left out (Wilcoxon's own rule).
        ties: "respected" gives equal differences their mean rank and takes p from the exact law
            given these ranks. "as_computed" is `scipy.stats.wilcoxon` on the differences as the
            computer subtracted them: 0.58 - 0.57 and 0.05 - 0.04 are then not equal; which law
            it takes where there are zeros is its own choice. It is how the paper's p was found.

    Example:
        >>> found = signed_rank([2.0, 1.0, 3.0, -1.0, 4.0])
        >>> found.p, found.effect
        (0.09375, 0.8)
    """
    raw = np.asarray(differences, np.float64)
    clean = np.round(raw, DECIMALS)
    clean = clean[clean != 0]
    zeros = len(raw) - len(clean)
    if not len(clean):
        return SignedRank(1.0, 0.0, 0, zeros, 0.0)
    ranks = _mean_ranks(np.abs(clean))
    total, up = float(ranks.sum()), float(ranks[clean > 0].sum())
    if ties == "respected":
        p = _tail(ranks, up)
    else:
        from scipy.stats import wilcoxon

        p = float(wilcoxon(raw, alternative="greater").pvalue)
    return SignedRank(p, up, len(clean), zeros, (2 * up - total) / total)


def _mean_ranks(values: Floats) -> Floats:
    order, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    middle: Floats = (last - (counts - 1) / 2).astype(np.float64)
    return middle[inverse] if len(order) else values


def _tail(ranks: Floats, up: float) -> float:
    """Return the chance that random signs give at least ``up``; ranks are halves at worst."""
    law = np.ones(1)
    for step in np.rint(2 * ranks).astype(int):
        grown = np.zeros(len(law) + step)
        grown[: len(law)] += law / 2
        grown[step:] += law / 2
        law = grown
    return float(min(1.0, law[round(2 * up) :].sum()))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for several tests by Holm's step-down rule.

    Example:
        >>> [round(p, 6) for p in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, highest = [1.0] * len(p_values), 0.0
    for place, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def sign_flip_test(differences: ArrayLike, *, seed: int = 0, draws: int = 100_000) -> float:
    """Return the one-sided p of the paired permutation test on the mean of (n,) differences.

    Exact up to 20 pairs; beyond, ``draws`` random flips. This is the test for the seeds of one
    setting: n seeds can reach 2**-n at best, three seeds never less than 0.125.

    Example:
        >>> sign_flip_test([0.01, 0.02, 0.03])
        0.125
    """
    array = np.round(np.asarray(differences, np.float64), DECIMALS)
    if not len(array):
        return 1.0
    least = array.sum() - 10.0**-DECIMALS
    if len(array) <= MOST_LISTED:
        sums = np.zeros(1)
        for value in array:
            sums = np.concatenate([sums + value, sums - value])
        return float((sums >= least).mean())
    signs = np.random.default_rng(seed).integers(0, 2, (draws, len(array))) * 2 - 1
    return float(((signs @ array >= least).sum() + 1) / (draws + 1))


def bootstrap(
    differences: ArrayLike, *, draws: int = 2000, level: float = 0.95, seed: int = 0
) -> Interval:
    """Return the mean of (N,) differences with a percentile interval over resampled images.

    The draws depend on (seed, N, draws) alone, so mixers are compared on the same resamples.

    Example:
        >>> bootstrap([1.0, 0.0, 1.0, 0.0], draws=200)
        Interval(mean=0.5, low=0.0, high=1.0)
    """
    array = np.asarray(differences, np.float64)
    if not len(array):
        raise DisMixError("no images to resample")
    tail = (1 - level) / 2
    low, high = np.quantile(resampled_means(array, draws, seed), [tail, 1 - tail])
    return Interval(float(array.mean()), float(low), float(high))


def resampled_means(values: Floats, draws: int, seed: int) -> Floats:
    """Return means (draws,) of values (N,) over images drawn with replacement."""
    rng = np.random.default_rng(seed)
    count = len(values)
    found = np.empty(draws)
    # In slices: all indices of a large test set at once would be hundreds of megabytes.
    slice_of = max(1, math.floor(2_000_000 / count))
    for start in range(0, draws, slice_of):
        rows = rng.integers(0, count, (min(slice_of, draws - start), count))
        found[start : start + len(rows)] = values[rows].mean(axis=1)
    return found
