"""What two settings are compared on: the same folds, and of seeds whatever each has.

Folds are different test images: two mixers are compared on those that both were run on, and a
third mixer that is not finished has no say in that. Gains, their intervals and the runs behind
them all go by `compared`.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dismix.bench.counting import Pair
from dismix.bench.report_data import Record
from dismix.data.draws import image_keys

Gains = NDArray[np.float64]


def compared(
    ours: list[Record], theirs: list[Record], metric: str
) -> tuple[list[Record], list[Record]]:
    """Return the runs of two settings that a comparison rests on.

    Of runs on folds those whose fold and seed both settings have; others are all taken.
    """
    if not any(record.fold for record in (*ours, *theirs)):
        return ours, theirs
    units = _units(ours, metric) & _units(theirs, metric)
    return [r for r in ours if r.unit in units], [r for r in theirs if r.unit in units]


def pair_means(ours: list[Record], theirs: list[Record], metric: str) -> Pair | None:
    """Return the means that are compared; None where there is nothing to compare."""
    ours, theirs = compared(ours, theirs, metric)
    means = [_mean(side, metric) for side in (ours, theirs)]
    if means[0] is None or means[1] is None:
        return None
    folds = any(record.fold for record in ours)
    return Pair(means[0], means[1], len(_units(ours, metric)) if folds else 1)


def image_gains(ours: list[Record], theirs: list[Record], metric: str) -> Gains | None:
    """Return what ours gains on each test image (N,), both averaged over their repeats.

    Images that only one of them graded are left out; None when there are no predictions.
    """
    mean = [_by_image(side, metric) for side in compared(ours, theirs, metric)]
    shared = [image for image in mean[0] if image in mean[1]]
    if not shared:
        return None
    return np.array([mean[0][image] - mean[1][image] for image in shared])


def _units(records: list[Record], metric: str) -> set[tuple[int, int]]:
    return {record.unit for record in records if record.metric(metric) is not None}


def _mean(records: list[Record], metric: str) -> float | None:
    """Return the mean over folds of the means over seeds.

    A fold with more seeds than others has no more images than they, so it counts once, as in
    the means over images.
    """
    folds: dict[int, list[float]] = {}
    for record in records:
        if (value := record.metric(metric)) is not None:
            folds.setdefault(record.fold, []).append(value)
    return float(np.mean([np.mean(values) for values in folds.values()])) if folds else None


def _by_image(records: list[Record], metric: str) -> dict[tuple[int, str], float]:
    """Return each image's mean score over repeats; more is better for both metrics.

    Older records name images only as far as one fold needs it, so the fold is part of the name
    and newer ones are named as they are.
    """
    sums: dict[tuple[int, str], list[float]] = {}
    for record in records:
        if record.predictions is None:
            continue
        found = record.predictions
        wrong = np.abs(found.label - found.grade)
        scores = (wrong == 0).astype(float) if metric == "accuracy" else -wrong.astype(float)
        names = image_keys([Path(name) for name in found.image]) if record.fold else found.image
        for image, score in zip(names, scores.tolist(), strict=True):
            sums.setdefault((record.fold, image), []).append(score)
    return {image: float(np.mean(scores)) for image, scores in sums.items()}
