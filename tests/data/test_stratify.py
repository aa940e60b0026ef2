"""Choosing whole groups: exact for single images, near the best choice otherwise."""

from itertools import product

import numpy as np
import pytest

from dismix.data.stratify import apportion, choose_groups


def cost(held, target):
    """Distance of a choice from its target, written out."""
    return sum((h - t) ** 2 / max(t, 1) for h, t in zip(held, target, strict=True))


def best_choice(groups, share):
    """Search all subsets for the lowest cost with every shared rank on both sides."""
    totals, holders = groups.sum(0), (groups > 0).sum(0)
    target = apportion(totals, share, holders)
    best = np.inf
    for subset in product([False, True], repeat=len(groups)):
        chosen = np.array(subset)
        if (groups[chosen][:, holders == 1] > 0).any():
            continue
        held = groups[chosen].sum(0)
        if ((held == 0) | (held == totals))[holders >= 2].any():
            continue
        best = min(best, cost(held, target))
    return best, target


@pytest.mark.parametrize("share", [0.05, 0.15, 0.5, 0.9])
def test_apportion_stays_within_one_image_and_sums_to_the_share(share):
    rng = np.random.default_rng(0)
    for _ in range(200):
        counts = rng.integers(20, 300, 5)
        target = apportion(counts, share, counts)
        assert np.abs(target - share * counts).max() <= 1
        assert abs(target.sum() - share * counts.sum()) <= 0.5 + 1e-9
        assert (target >= 1).all()
        assert (target < counts).all()


def test_apportion_keeps_small_ranks_on_both_sides_and_lonely_ones_out():
    counts, holders = np.array([2, 1, 3, 0, 6]), np.array([2, 1, 3, 0, 1])
    assert apportion(counts, 0.1, holders).tolist() == [1, 0, 1, 0, 0]
    assert apportion(counts, 0.9, holders).tolist() == [1, 0, 2, 0, 0]


def test_single_images_are_chosen_exactly_and_first_come():
    ranks = np.random.default_rng(0).integers(0, 3, 90)
    chosen = choose_groups(np.eye(3, dtype=int)[ranks], 0.2)
    counts = np.bincount(ranks)
    target = apportion(counts, 0.2, counts)
    for c in range(3):
        assert chosen[ranks == c].sum() == target[c]
        assert chosen[ranks == c][: target[c]].all()


def test_choice_is_near_the_best_of_all_subsets():
    rng = np.random.default_rng(1)
    gaps = []
    for _ in range(40):
        groups = rng.integers(0, 4, (rng.integers(4, 9), 3))
        groups[groups.sum(1) == 0, 0] = 1
        share = rng.uniform(0.1, 0.5)
        best, target = best_choice(groups, share)
        if np.isinf(best):
            continue
        held = groups[choose_groups(groups, share)].sum(0)
        totals, holders = groups.sum(0), (groups > 0).sum(0)
        assert not ((held == 0) | (held == totals))[holders >= 2].any()
        gaps.append(cost(held, target) - best)
    assert len(gaps) > 30
    assert np.mean(np.array(gaps) < 1e-9) > 0.9
    assert max(gaps) < 0.5


def test_a_giant_group_is_not_chosen_for_being_first():
    groups = np.array([[80, 20]] + [[1, 0]] * 50 + [[0, 1]] * 50)
    chosen = choose_groups(groups, 0.15)
    assert not chosen[0]
    assert (
        groups[chosen].sum(0).tolist()
        == apportion(groups.sum(0), 0.15, (groups > 0).sum(0)).tolist()
    )


def test_a_group_with_a_lonely_rank_stays():
    groups = np.array([[1, 5]] + [[2, 0]] * 9)
    for share in (0.2, 0.5, 0.8):
        assert not choose_groups(groups, share)[0]


def test_nothing_can_be_chosen_from_one_group():
    assert choose_groups(np.array([[3, 2]]), 0.15).tolist() == [False]


def test_the_only_holder_of_a_rank_stays_however_well_it_would_fit():
    groups = np.array([[1, 50]] + [[0, 1]] * 10)
    chosen = choose_groups(groups, 0.8)
    assert not chosen[0]
    assert chosen[1:].any()
