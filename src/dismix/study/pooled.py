"""All held-out predictions of a study, image by image: every image was held out once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dismix.data.draws import image_keys
from dismix.errors import DisMixError
from dismix.graders.metrics import grade_metrics
from dismix.study.choices import METRICS, MIXERS, Metric
from dismix.study.resample import interval
from dismix.study.verdict import LEVEL, Comparison, images_needed, judged

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PAIRS = (("mixup", "none"), ("dismix", "none"), ("dismix", "mixup"))


@dataclass(frozen=True)
class Pooled:
    """Predictions of R repeats on N images.

    Attributes:
        images: N names, fold by fold.
        folds: (N,) fold in which each was held out, from 0.
        groups: (N,) number of each one's group.
        truth: (N,) grade it was judged by.
        labels: (R, N) decisions by mixer.
        laws: (R, N, C) probabilities by mixer.
    """

    images: list[str]
    folds: Ints
    groups: Ints
    truth: Ints
    labels: Mapping[str, Ints]
    laws: Mapping[str, Floats]

    def values(self, metric: str, mixer: str) -> Floats:
        """Return a metric of each single image (R, N)."""
        label = self.labels[mixer]
        if metric == "accuracy":
            return np.asarray(label == self.truth, np.float64)
        if metric == "mae":
            return np.asarray(np.abs(label - self.truth), np.float64)
        law = self.laws[mixer]
        ranks = np.arange(law.shape[-1])
        reached = (ranks >= self.truth[:, None]).astype(np.float64)
        squares = (np.cumsum(law, axis=-1) - reached)[..., :-1] ** 2
        return np.asarray(squares.sum(axis=-1), np.float64)


def pool(
    records: Sequence[Mapping[str, Any]], groups: Mapping[str, Sequence[str]] | None = None
) -> Pooled:
    """Join the records of all folds.

    Args:
        records: Finished runs of all folds, mixers and repeats.
        groups: By fold, the group of each held-out image in the records' order. Older records
            name images only as far as one fold needs it, so names would not do.

    Raises:
        DisMixError: Some run is missing, or runs of a fold were tested on other images.
    """
    by: dict[tuple[str, str, int], Mapping[str, Any]] = {
        (r["factors"]["fold"], r["factors"]["mixer"], int(r["seed"])): r["predictions"]
        for r in records
    }
    folds = sorted({key[0] for key in by}, key=lambda name: int(name.split("/")[0]))
    seeds = sorted({key[2] for key in by})
    missing = [(f, m, s) for f in folds for m in MIXERS for s in seeds if (f, m, s) not in by]
    if missing:
        raise DisMixError(f"{len(missing)} runs are missing", cure="run the same command again")
    first = {fold: by[fold, MIXERS[0], seeds[0]] for fold in folds}
    for (fold, _, _), found in by.items():
        if _short(found["image"]) != _short(first[fold]["image"]):
            raise DisMixError(f"runs of fold {fold} were tested on different images")
    images = [name for fold in folds for name in first[fold]["image"]]
    names = [
        f"{fold} {name}"
        for fold in folds
        for name in (groups[fold] if groups is not None else first[fold]["image"])
    ]
    _, number = np.unique(np.array(names, dtype=str), return_inverse=True)

    def joined(field: str, mixer: str) -> Any:
        rows = [[v for fold in folds for v in by[fold, mixer, s][field]] for s in seeds]
        return np.array(rows)

    return Pooled(
        images,
        np.repeat(np.arange(len(folds)), [len(first[fold]["image"]) for fold in folds]),
        number.astype(np.int64),
        np.array([g for fold in folds for g in first[fold]["grade"]], np.int64),
        {m: joined("label", m).astype(np.int64) for m in MIXERS},
        {m: joined("probabilities", m).astype(np.float64) for m in MIXERS},
    )


def _short(images: Sequence[str]) -> list[str]:
    # A study that older code has begun names images by fewer parts than are needed now.
    return image_keys([Path(image) for image in images])


def compare(pooled: Pooled, metric: Metric, worth: float) -> dict[tuple[str, str], Comparison]:
    """Compare the mixers by the metric that decides.

    Args:
        pooled: From `pool`.
        metric: Which.
        worth: Smallest gain worth having.

    Returns:
        By (mixer, against); nothing can be told of graders that learned nothing.
    """
    able, found = learned(pooled, metric), {}
    for mixer, against in PAIRS:
        first, second = (pooled.values(metric.name, name) for name in (mixer, against))
        gains = second - first if metric.lower else first - second
        shown = interval(gains, pooled.folds, pooled.groups, level=LEVEL, step=metric.step)
        by_fold = tuple(
            float(gains[:, pooled.folds == fold].mean()) for fold in np.unique(pooled.folds)
        )
        found[mixer, against] = Comparison(
            mixer, against, shown, by_fold, judged(shown, worth) if able else "cannot tell",
            images_needed(shown, worth, len(pooled.images)),
            (float(first.mean()), float(second.mean())),
        )  # fmt: skip
    return found


def learned(pooled: Pooled, metric: Metric) -> bool:
    """Tell whether any mixer's grader is better than one and the same grade for all images.

    Args:
        pooled: From `pool`.
        metric: What decides; probabilities are judged by their decisions here.
    """
    exact = metric.name == "accuracy"

    def score(label: Ints) -> Floats:
        hits = label == pooled.truth if exact else -np.abs(label - pooled.truth)
        return np.asarray(hits, np.float64)

    ranks = range(int(pooled.truth.max()) + 1)
    best = max((score(np.full_like(pooled.truth, c)) for c in ranks), key=lambda s: float(s.mean()))
    for mixer in MIXERS:
        gains = score(pooled.labels[mixer]) - best
        if interval(gains, pooled.folds, pooled.groups).low > 0:
            return True
    return False


def results(pooled: Pooled, num_ranks: int) -> dict[str, Any]:
    """Return every mixer's numbers on all held-out images.

    Returns:
        By mixer: {metric: {"mean", "low", "high"}} with 95 % intervals, "qwk", "by_grade"
        (mean error of each true grade, None where it has no images) and "by_fold" by metric.
    """
    found: dict[str, Any] = {}
    for mixer in MIXERS:
        rows: dict[str, Any] = {}
        folds: dict[str, list[float]] = {}
        for name in METRICS:
            values = pooled.values(name, mixer)
            shown = interval(values, pooled.folds, pooled.groups)
            # Widened intervals may pass what a mean can be: no error below 0, no share above 1.
            most = 1.0 if name == "accuracy" else float(num_ranks - 1)
            rows[name] = {
                "mean": shown.mean, "low": max(shown.low, 0.0), "high": min(shown.high, most),
            }  # fmt: skip
            folds[name] = [
                float(values[:, pooled.folds == f].mean()) for f in np.unique(pooled.folds)
            ]
        every = [grade_metrics(row, pooled.truth, num_ranks) for row in pooled.labels[mixer]]
        # Undefined where all images have one grade and are given it.
        kappas = [one["qwk"] for one in every if one["qwk"] is not None]
        rows["qwk"] = float(np.mean(kappas)) if kappas else None
        errors = pooled.values("mae", mixer).mean(axis=0)
        rows["by_grade"] = [
            float(errors[pooled.truth == c].mean()) if (pooled.truth == c).any() else None
            for c in range(num_ranks)
        ]
        found[mixer] = {**rows, "by_fold": folds}
    return found
