"""Counting wins; applied to the paper's numbers it must give what the paper says."""

import numpy as np
import pytest

from dismix.bench.counting import (
    ON_AVERAGE,
    PER_SETTING,
    Pair,
    best_on_average,
    compare,
    compare_all,
    pairs_of,
)
from dismix.bench.paper import PAPER_MIXERS, paper_scores

BASELINES = [name for name in PAPER_MIXERS if name != "dismix"]


@pytest.mark.parametrize(
    ("metric", "higher", "wins", "ties", "published", "respected"),
    [("accuracy", True, 20, 0, 0.0075, 0.0074), ("mae", False, 15, 1, 0.13, 0.184)],
)
def test_the_papers_own_numbers(metric, higher, wins, ties, published, respected):
    scores = paper_scores(metric)
    assert len(scores) == 24
    found = compare_all(pairs_of(scores, "dismix"), BASELINES, higher=higher)
    strongest = found[0]
    assert strongest.opponent == PER_SETTING
    assert (strongest.wins, strongest.ties) == (wins, ties)
    assert strongest.wins + strongest.ties + strongest.losses == 24
    # The published p comes from unrounded differences; equal ones treated as equal give another.
    assert float(f"{strongest.p_as_computed:.2g}") == published
    assert strongest.test.p == pytest.approx(respected, abs=5e-4)
    assert found[1].opponent == f"{ON_AVERAGE}: diffusemix"
    assert found[1].test.p < 0.001
    assert len(found) == 2 + 6
    assert all(c.p_holm >= c.test.p for c in found[2:])
    assert all(c.p_holm is None for c in found[:2])


def test_counting_by_hand_with_gaps():
    scores = {
        ("d", "g1"): {"ours": 0.6, "a": 0.5, "b": 0.7, "none": 0.9},
        ("d", "g2"): {"ours": 0.6, "a": 0.6},
        ("d", "g3"): {"ours": 0.6, "b": 0.1},
        ("d", "g4"): {"a": 0.1, "b": 0.2},
        ("d", "g5"): {"ours": 0.3},
    }
    found = compare(pairs_of(scores, "ours"), ["a", "b"], higher=True)
    assert [(d.setting[1], d.opponent) for d in found.duels] == [
        ("g1", "b"), ("g2", "a"), ("g3", "b"),
    ]  # fmt: skip
    assert (found.wins, found.ties, found.losses) == (1, 1, 1)
    assert found.mean_gain == pytest.approx((-0.1 + 0 + 0.5) / 3)
    turned = compare(pairs_of(scores, "ours"), ["a", "b"], higher=False)
    assert [d.opponent for d in turned.duels] == ["a", "a", "b"]
    assert (turned.wins, turned.ties, turned.losses) == (0, 1, 2)


def test_nothing_to_compare_with():
    assert compare_all(pairs_of({("d",): {"ours": 1.0}}, "ours"), ["a"], higher=True) == []
    assert compare_all({}, [], higher=True) == []
    assert best_on_average({}, ["a"], higher=True) == ""


def test_best_on_average_needs_the_same_settings():
    scores = {
        ("easy",): {"ours": 0.9, "a": 0.80, "b": 0.82, "lucky": 0.99},
        ("hard",): {"ours": 0.5, "a": 0.45, "b": 0.40},
    }
    # "lucky" was run in the easy setting only; its mean is no mean over both.
    assert best_on_average(pairs_of(scores, "ours"), ["a", "b", "lucky"], higher=True) == "a"
    assert best_on_average(pairs_of(scores, "ours"), ["a", "b"], higher=False) == "b"


def test_rounding_noise_is_a_tie():
    scores = {("d",): {"ours": 0.1 + 0.2, "a": 0.3}}
    assert compare(pairs_of(scores, "ours"), ["a"], higher=True).ties == 1
    assert np.isclose(compare(pairs_of(scores, "ours"), ["a"], higher=True).test.p, 1)


def test_opponents_on_fewer_folds_are_compared_alone_and_are_nobodys_best():
    pairs = {("d",): {"a": Pair(0.6, 0.5, 5), "b": Pair(0.6, 0.55, 5), "lucky": Pair(0.2, 0.9, 1)}}
    found = {c.opponent: c for c in compare_all(pairs, ["a", "b", "lucky"], higher=True)}
    assert found["lucky"].losses == 1
    assert found["lucky"].mean_gain == pytest.approx(-0.7)
    assert found[PER_SETTING].duels[0].opponent == "b"
    assert found[PER_SETTING].mean_gain == pytest.approx(0.05)
    assert f"{ON_AVERAGE}: b" in found
