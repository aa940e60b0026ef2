"""Metrics against slow loops, written from their definitions."""

import math

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, cohen_kappa_score

from dismix.errors import DisMixError
from dismix.graders.metrics import SCALARS, grade_metrics, quadratic_kappa


def predictions(seed, count=60, ranks=5, absent=None):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, ranks, count)
    if absent is not None:
        truth[truth == absent] = 0
    probs = rng.dirichlet(np.ones(ranks) * 0.7, count)
    # By the expected rank, which need not be the most probable one.
    return probs, np.floor(probs @ np.arange(ranks) + 0.5).astype(int), truth


def slow(probs, label, truth, ranks):
    """Every scalar by loops over images."""
    n = len(truth)
    grades = sorted(set(truth.tolist()))
    recall = {
        g: sum(label[i] == g for i in range(n) if truth[i] == g) / sum(truth == g) for g in grades
    }
    error = {
        g: sum(abs(int(label[i]) - g) for i in range(n) if truth[i] == g) / sum(truth == g)
        for g in grades
    }
    rps = 0.0
    for i in range(n):
        for k in range(ranks):
            below = sum(probs[i, : k + 1])
            rps += (below - (truth[i] <= k)) ** 2 / n
    ece = 0.0
    for b in range(10):
        inside = [i for i in range(n) if b / 10 < probs[i, label[i]] <= (b + 1) / 10]
        if inside:
            hit = sum(label[i] == truth[i] for i in inside) / len(inside)
            ece += (
                len(inside) / n * abs(hit - sum(probs[i, label[i]] for i in inside) / len(inside))
            )
    return {
        "accuracy": sum(label[i] == truth[i] for i in range(n)) / n,
        "mae": sum(abs(int(label[i]) - int(truth[i])) for i in range(n)) / n,
        "mae_expected": sum(
            abs(sum(c * probs[i, c] for c in range(ranks)) - truth[i]) for i in range(n)
        ) / n,
        "off_by_one": sum(abs(int(label[i]) - int(truth[i])) < 2 for i in range(n)) / n,
        "balanced_accuracy": sum(recall.values()) / len(recall),
        "amae": sum(error.values()) / len(error),
        "mmae": max(error.values()),
        "rps": rps,
        "ece": ece,
        "qwk": cohen_kappa_score(truth, label, weights="quadratic"),
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("absent", [None, 2])
@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
def test_every_scalar_equals_the_slow_one(seed, absent):
    probs, label, truth = predictions(seed, absent=absent)
    found = grade_metrics(label, truth, 5, probabilities=probs)
    expected = slow(probs, label, truth, 5)
    assert set(expected) == set(SCALARS)
    for name, value in expected.items():
        assert math.isclose(found[name], value, abs_tol=1e-12), name
    assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(truth, label))


def test_boundary_errors_and_confusion_by_counting():
    _, label, truth = predictions(7)
    found = grade_metrics(label, truth, 5)
    for k in range(4):
        pair = [(t, p) for t, p in zip(truth, label, strict=True) if t in (k, k + 1)]
        swapped = sum(p in (k, k + 1) and p != t for t, p in pair)
        assert found["boundary_errors"][f"{k}|{k + 1}"] == pytest.approx(swapped / len(pair))
    for t in range(5):
        for p in range(5):
            assert found["confusion"][t][p] == np.sum((truth == t) & (label == p))


def test_decision_and_expected_rank_have_separate_names():
    found = grade_metrics([2], [2], 4, probabilities=[[0.0, 0.2, 0.5, 0.3]], rank=[2.4])
    assert found["mae"] == 0
    assert found["mae_expected"] == pytest.approx(0.4)
    assert "mae_expected" not in grade_metrics([2], [2], 4)


def test_kappa_of_a_single_grade_and_absent_grades_are_undefined():
    found = grade_metrics([1, 1], [1, 1], 3)
    assert found["qwk"] is None
    assert np.isnan(quadratic_kappa(np.array([[0, 0], [0, 4]])))
    # Wrong throughout is no better than chance, and defined.
    assert grade_metrics([2, 2], [1, 1], 3)["qwk"] == 0
    assert found["per_grade"][0] == {"count": 0, "recall": None, "precision": None, "mae": None}
    assert grade_metrics([0], [0], 4)["boundary_errors"]["2|3"] is None


@pytest.mark.parametrize(
    ("label", "truth", "words"),
    [([5], [0], "whole numbers 0..4"), ([0.5], [0], "whole numbers"), ([], [], "N >= 1"),
     ([0, 1], [0], "2 predictions were given for 1")],
)  # fmt: skip
def test_bad_input_is_named(label, truth, words):
    with pytest.raises(DisMixError, match=words):
        grade_metrics(label, truth, 5)
    with pytest.raises(DisMixError, match="probabilities must be"):
        grade_metrics([0], [0], 5, probabilities=[[1.0, 0.0]])
