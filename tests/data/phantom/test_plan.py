from itertools import groupby

import numpy as np
import pytest

from dismix.data.phantom import PhantomSpec
from dismix.data.phantom.plan import plan_images


def test_a_larger_set_begins_with_the_smaller_one():
    small = list(plan_images(PhantomSpec(train=7, val=3, test=5, size=32)))
    large = {p.image: p for p in plan_images(PhantomSpec(train=30, val=20, test=20, size=64))}
    assert all(large[p.image] == p for p in small)


@pytest.mark.parametrize("subject", ["knee", "fundus"])
def test_both_sides_of_a_patient_share_appearance_only(subject):
    planned = list(plan_images(PhantomSpec(subject=subject, train=8, val=0, test=0)))
    for _, pair in groupby(planned, key=lambda p: p.group):
        left, right = (p.factors for p in pair)
        assert (left.mirror, right.mirror) == (False, True)
        assert left.texture_seed == right.texture_seed
        assert left.noise_seed != right.noise_seed
        assert left.rotation != right.rotation
    assert len({p.factors.texture_seed for p in planned}) == 4


def test_groups_stay_in_their_split_and_seeds_differ():
    planned = list(plan_images(PhantomSpec(train=9, val=5, test=5)))
    splits: dict[str, set[str]] = {}
    for p in planned:
        splits.setdefault(p.group, set()).add(p.split)
    assert all(len(found) == 1 for found in splits.values())
    assert len({p.factors.noise_seed for p in planned}) == len(planned)
    other = list(plan_images(PhantomSpec(train=9, val=5, test=5, seed=1)))
    assert not {p.factors.noise_seed for p in planned} & {p.factors.noise_seed for p in other}


@pytest.mark.parametrize("num_ranks", [2, 5, 7])
def test_equal_shares_are_exact_in_every_block(num_ranks):
    spec = PhantomSpec(num_ranks=num_ranks, train=6 * num_ranks, val=0, test=0)
    ranks = np.array([p.factors.rank for p in plan_images(spec)]).reshape(6, num_ranks)
    assert (np.sort(ranks, axis=1) == np.arange(num_ranks)).all()
    assert len({tuple(block) for block in ranks}) > 1


def test_weights_set_the_shares():
    spec = PhantomSpec(rank_balance=[5, 0, 3, 1, 1], train=1000, val=0, test=0)
    ranks = [p.factors.rank for p in plan_images(spec)]
    shares = np.bincount(ranks, minlength=5) / 1000
    np.testing.assert_allclose(shares, [0.5, 0, 0.3, 0.1, 0.1], atol=0.03)


def test_votes_follow_the_confusion_matrix():
    confusion = [[0.7, 0.3, 0.0], [0.1, 0.6, 0.3], [0.0, 0.2, 0.8]]
    spec = PhantomSpec(num_ranks=3, confusion=confusion, train=1500, val=0, test=3)
    counts = np.zeros((3, 3))
    for p in plan_images(spec):
        assert len(p.votes) == (0 if p.split == "test" else 5)
        for vote in p.votes:
            counts[p.factors.rank, vote] += 1
    shares = counts / counts.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, confusion, atol=0.04)
    assert shares[0, 2] == 0
