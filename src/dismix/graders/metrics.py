"""How good grades are: NumPy arrays in, a plain dictionary out.

Two conventions of the mean absolute error are kept apart by name: `mae` is that of the
decision, `mae_expected` that of the expected rank before rounding. They are not comparable.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dismix.data.rank_names import own_numbers, rank_numbers
from dismix.errors import DisMixError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SCALARS = (
    "accuracy", "mae", "mae_expected", "qwk", "off_by_one", "balanced_accuracy", "amae", "mmae",
    "rps", "ece",
)  # fmt: skip
"""Names of the single numbers that `grade_metrics` gives."""


def grade_metrics(
    label: ArrayLike,
    truth: ArrayLike,
    num_ranks: int,
    *,
    probabilities: ArrayLike | None = None,
    rank: ArrayLike | None = None,
) -> dict[str, Any]:
    """Return all metrics that the given predictions allow.

    Args:
        label: Decisions (N,), whole numbers 0..C-1.
        truth: True grades (N,), whole numbers 0..C-1.
        num_ranks: C.
        probabilities: (N, C); adds `rps` and `ece`, and `mae_expected` when ``rank`` is absent.
        rank: Point estimates (N,) before rounding; adds `mae_expected`.

    Returns:
        Numbers (see `SCALARS`), "boundary_errors" {"0|1": ...}, "confusion" as rows of true
        grades, "per_grade" [{"count", "recall", "precision", "mae"}]; None where a grade has
        no images, and for "qwk" where that is undefined (JSON has no NaN).

    Example:
        >>> found = grade_metrics([0, 1, 2, 2], [0, 1, 1, 2], 3)
        >>> found["accuracy"], found["mae"], found["boundary_errors"]
        (0.75, 0.25, {'0|1': 0.0, '1|2': 0.3333333333333333})
    """
    said, real = _checked(label, num_ranks, "label"), _checked(truth, num_ranks, "truth")
    if len(said) != len(real):
        raise DisMixError(f"{len(said)} predictions were given for {len(real)} images")
    table = confusion_matrix(said, real, num_ranks)
    result: dict[str, Any] = {
        "count": len(real),
        "accuracy": float(np.mean(said == real)),
        "mae": float(np.mean(np.abs(said - real))),
        "qwk": None if np.isnan(kappa := quadratic_kappa(table)) else kappa,
        "off_by_one": float(np.mean(np.abs(said - real) <= 1)),
        **_class_means(table),
        "boundary_errors": boundary_errors(table),
        "confusion": table.tolist(),
        "per_grade": _per_grade(table),
    }
    if probabilities is not None:
        law = np.asarray(probabilities, np.float64)
        if law.shape != (len(real), num_ranks):
            raise DisMixError(f"probabilities must be ({len(real)}, {num_ranks}), got {law.shape}")
        result["rps"] = ranked_probability_score(law, np.eye(num_ranks)[real])
        result["ece"] = expected_calibration_error(law, said, real)
        rank = law @ np.arange(num_ranks) if rank is None else rank
    if rank is not None:
        result["mae_expected"] = float(np.mean(np.abs(np.asarray(rank, np.float64) - real)))
    return result


def _checked(values: ArrayLike, num_ranks: int, noun: str) -> Ints:
    array = np.asarray(values)
    if array.ndim != 1 or not len(array):
        raise DisMixError(f"{noun} must be (N,) with N >= 1, got {array.shape}")
    whole = array.astype(np.int64)
    if (whole != array).any() or whole.min() < 0 or whole.max() >= num_ranks:
        raise DisMixError(f"{noun} must hold whole numbers 0..{num_ranks - 1}")
    return whole


def confusion_matrix(label: Ints, truth: Ints, num_ranks: int) -> Ints:
    """Return counts (C, C): row is the true grade, column the decision."""
    flat = np.bincount(truth * num_ranks + label, minlength=num_ranks**2)
    return flat.reshape(num_ranks, num_ranks)


def quadratic_kappa(table: Ints) -> float:
    """Return Cohen's kappa with quadratic weights from a confusion matrix (C, C).

    NaN where all truths and decisions are one and the same grade, as in scikit-learn: chance
    agrees as well, so it tells nothing.

    Example:
        >>> quadratic_kappa(np.diag([3, 2, 4])), quadratic_kappa(np.diag([3, 0, 0]))
        (1.0, nan)
    """
    ranks = np.arange(len(table))
    weights = (ranks[:, None] - ranks[None, :]) ** 2
    chance = np.outer(table.sum(1), table.sum(0)) / table.sum()
    expected = (weights * chance).sum()
    return float(1 - (weights * table).sum() / expected) if expected > 0 else float("nan")


def metric_text(value: float | None) -> str:
    """Return a metric for readers, "-" where it is undefined.

    Example:
        >>> metric_text(0.5), metric_text(None)
        ('0.500', '-')
    """
    return "-" if value is None else f"{value:.3f}"


def on_own_scale(rank: float, names: Sequence[str]) -> float:
    """Return a place among ranks as a scale that counts otherwise has it, such as 1 to 5.

    Args:
        rank: Place, from 0; also between two ranks.
        names: C names of the ranks.

    Example:
        >>> on_own_scale(1.25, ["1", "2", "3"]), on_own_scale(1.25, ["none", "mild", "severe"])
        (2.25, 1.25)
    """
    numbers = rank_numbers(names)
    counted = numbers == tuple(range(numbers[0], numbers[0] + len(names))) if numbers else False
    return rank + numbers[0] if counted else rank


def place_in_words(rank: float, names: Sequence[str]) -> str:
    """Return a place among ranks as a reader knows them: by name, or by number where they have one.

    Args:
        rank: Place, from 0; also between two ranks.
        names: C names of the ranks.

    Example:
        >>> place_in_words(1.25, ["1", "2", "3"]), place_in_words(2.0, ["none", "mild", "severe"])
        ('rank 2.2', 'severe')
        >>> place_in_words(1.25, ["1", "2", "5"])
        '25 % of the way from 2 to 5'
        >>> place_in_words(1.25, ["none", "mild", "severe"])
        '25 % of the way from mild to severe'
    """
    own = own_numbers(names)
    if own is not None and own == tuple(own[0] + rank for rank in range(len(names))):
        return f"rank {on_own_scale(rank, names):.1f}"
    low = min(int(rank), len(names) - 2)
    share = round(100 * (rank - low))
    if share in (0, 100):
        return names[low + (share == 100)]
    return f"{share} % of the way from {names[low]} to {names[low + 1]}"


def _class_means(table: Ints) -> dict[str, float]:
    """Return means over the true grades present: recall, and absolute error (also its maximum)."""
    present = np.flatnonzero(table.sum(1))
    ranks = np.arange(len(table))
    recalls = [table[c, c] / table[c].sum() for c in present]
    errors = [(table[c] * np.abs(ranks - c)).sum() / table[c].sum() for c in present]
    return {
        "balanced_accuracy": float(np.mean(recalls)),
        "amae": float(np.mean(errors)),
        "mmae": float(np.max(errors)),
    }


def _per_grade(table: Ints) -> list[dict[str, float | int | None]]:
    ranks = np.arange(len(table))
    rows: list[dict[str, float | int | None]] = []
    for c in ranks:
        count, said = int(table[c].sum()), int(table[:, c].sum())
        error = float((table[c] * np.abs(ranks - c)).sum())
        rows.append(
            {
                "count": count,
                "recall": float(table[c, c] / count) if count else None,
                "precision": float(table[c, c] / said) if said else None,
                "mae": error / count if count else None,
            }
        )
    return rows


def boundary_errors(table: Ints) -> dict[str, float | None]:
    """Return, for each step k|k+1, the share of images of both grades taken for the other.

    Example:
        >>> boundary_errors(np.array([[2, 2, 0], [1, 3, 0], [0, 0, 0]]))
        {'0|1': 0.375, '1|2': 0.0}
    """
    result: dict[str, float | None] = {}
    for k in range(len(table) - 1):
        both = int(table[k].sum() + table[k + 1].sum())
        wrong = int(table[k, k + 1] + table[k + 1, k])
        result[f"{k}|{k + 1}"] = wrong / both if both else None
    return result


def ranked_probability_score(probabilities: Floats, law: Floats) -> float:
    """Return the mean over images of the squared differences of the cumulative laws, summed.

    Args:
        probabilities: Predicted (N, C).
        law: True laws (N, C), one-hot for single grades.

    Example:
        >>> ranked_probability_score(np.array([[0.5, 0.5, 0.0]]), np.array([[1.0, 0.0, 0.0]]))
        0.25
    """
    gaps = np.cumsum(probabilities, 1) - np.cumsum(law, 1)
    return float(np.mean((gaps[:, :-1] ** 2).sum(1)))


def expected_calibration_error(
    probabilities: Floats, label: Ints, truth: Ints, bins: int = 10
) -> float:
    """Return how far the decision's probability is from its accuracy, over equal-width bins.

    Args:
        probabilities: (N, C).
        label: Decisions (N,); their probability counts, also where it is not the largest.
        truth: (N,).
        bins: Bins of (0, 1].

    Example:
        >>> law = np.array([[0.8, 0.2], [0.8, 0.2]])
        >>> round(expected_calibration_error(law, np.array([0, 0]), np.array([0, 1])), 6)
        0.3
    """
    sure = probabilities[np.arange(len(label)), label]
    right = label == truth
    place = np.clip(np.ceil(sure * bins).astype(int) - 1, 0, bins - 1)
    gaps = [
        abs(right[place == b].mean() - sure[place == b].mean()) * (place == b).mean()
        for b in np.unique(place)
    ]
    return float(np.sum(gaps))
