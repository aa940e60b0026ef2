"""Intervals that know of folds, patients and repeated trainings.

Graders are compared on the same images, so differences are taken image by image. Images of one
patient are not independent, nor are the images that one trained network graded. So folds are
drawn with replacement, then within each the patients, and the repeated trainings: a network
that happened to fall well in one fold widens the interval as it should.

A handful of folds shows too little of how trainings vary, so intervals are widened by k / (k - 1).
Resampling knows nothing of what it never saw: graders that decided alike on thirty patients may
yet differ on every tenth, so intervals of decisions are never narrower than `unseen` leaves open.
"""

import numpy as np
from numpy.typing import NDArray

from dismix.bench.statistics import Interval
from dismix.errors import DisMixError

Floats = NDArray[np.float64]
DRAWS = 4000
_SLICE = 4_000_000


def resampled_means(
    values: Floats,
    folds: NDArray[np.int64],
    groups: NDArray[np.int64],
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> Floats:
    """Return means (draws,) over resampled folds, groups within them, and repeats.

    Args:
        values: (R, N): of each repeated training on each image.
        folds: (N,) numbers 0..k-1 of the folds in which images were held out.
        groups: (N,) numbers of the groups, each within one fold.
        draws: How often.
        seed: Of the draws; they depend on nothing else but the shapes.
    """
    rng = np.random.default_rng(seed)
    numbers = np.unique(folds)
    # Which fold stands at each of the k places of each draw.
    chosen = rng.integers(0, len(numbers), (draws, len(numbers)))
    totals, counts = np.zeros(draws), np.zeros(draws)
    for place, number in enumerate(numbers):
        sums, sizes = _by_group(values[:, folds == number], groups[folds == number])
        draw = np.nonzero(chosen == place)[0]
        step = max(1, _SLICE // max(1, len(sizes)))
        for start in range(0, len(draw), step):
            some = draw[start : start + step]
            weights = rng.multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), len(some))
            repeats = rng.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), len(some))
            mean_sums = (repeats / len(sums)) @ sums
            np.add.at(totals, some, (mean_sums * weights).sum(axis=1))
            np.add.at(counts, some, weights @ sizes)
    means: Floats = totals / counts
    return means


def _by_group(values: Floats, groups: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return sums (R, G) and sizes (G,) of the groups of one fold."""
    names, number = np.unique(groups, return_inverse=True)
    sums = np.zeros((len(values), len(names)))
    for repeat, row in enumerate(values):
        np.add.at(sums[repeat], number, row)
    return sums, np.bincount(number, minlength=len(names)).astype(np.float64)


def unseen(groups: int, tail: float) -> float:
    """Return the share of groups that may differ although, with chance ``tail``, none of these did.

    Args:
        groups: Independent groups looked at.
        tail: Chance of seeing nothing.

    Example:
        >>> round(unseen(30, 0.05), 3)  # about the rule of three, 3 / 30
        0.095
    """
    return float(1 - tail ** (1 / groups))


def interval(
    values: Floats,
    folds: NDArray[np.int64],
    groups: NDArray[np.int64],
    *,
    level: float = 0.95,
    step: float = 0.0,
    draws: int = DRAWS,
    seed: int = 0,
) -> Interval:
    """Return the mean of values (R, N) with its interval.

    Args:
        values: As for `resampled_means`, likewise the folds and groups.
        folds: (N,).
        groups: (N,).
        level: How often intervals like this one should hold the true mean.
        step: What one image decided otherwise changes its value by; 0 where values are not counts.
        draws: How often.
        seed: Of the draws.

    Example:
        >>> same = interval(np.ones((1, 8)), np.arange(8) // 4, np.arange(8), draws=50)
        >>> same.mean, same.low, same.high
        (1.0, 1.0, 1.0)
        >>> round(interval(np.zeros((1, 30)), np.arange(30) // 10, np.arange(30), step=1.0).high, 3)
        0.116
    """
    if values.size == 0:
        raise DisMixError("no images to resample")
    tail = (1 - level) / 2
    means = resampled_means(values, folds, groups, draws=draws, seed=seed)
    low, high = np.quantile(means, [tail, 1 - tail])
    mean, count = float(values.mean()), len(np.unique(folds))
    wider = count / (count - 1) if count > 1 else 1.0
    least = step * unseen(len(np.unique(groups)), tail)
    below, above = (max(wider * width, least) for width in (mean - float(low), float(high) - mean))
    return Interval(mean, mean - below, mean + above)
