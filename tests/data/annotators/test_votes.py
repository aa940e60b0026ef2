"""Votes with gaps: checked at the door, majorities by the shared tie rule."""

from collections import Counter

import numpy as np
import pytest

from dismix.data.annotators.votes import count_ties, majority_vote, one_hot_votes, vote_shares
from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget

NAN = float("nan")


def slow_majority(votes):
    votes = [v for v in votes if not np.isnan(v)]
    counted = Counter(votes)
    tied = [rank for rank, n in counted.items() if n == max(counted.values())]
    return min(tied, key=lambda rank: (round(abs(rank - np.mean(votes)), 9), rank))


def test_majority_agrees_with_a_loop():
    rng = np.random.default_rng(0)
    votes = rng.integers(0, 5, (300, 6)).astype(float)
    votes[rng.random(votes.shape) < 0.3] = NAN
    votes = votes[~np.isnan(votes).all(axis=1)]
    assert majority_vote(votes, 5).tolist() == [slow_majority(row) for row in votes]


def test_ties_agree_with_a_loop():
    rng = np.random.default_rng(1)
    votes = rng.integers(0, 4, (300, 5)).astype(float)
    ties = even = 0
    for row in votes:
        counted = Counter(row)
        tied = [rank for rank, n in counted.items() if n == max(counted.values())]
        ties += len(tied) > 1
        away = [round(abs(rank - np.mean(row)), 9) for rank in tied]
        even += away.count(min(away)) > 1
    assert 0 < even < ties < 300
    assert count_ties(vote_shares(votes, 4)) == (ties, even)


def test_gaps_are_rows_of_zeros():
    hot = one_hot_votes([[2, NAN, 0]], 3)
    assert hot.tolist() == [[[0, 0, 1], [0, 0, 0], [1, 0, 0]]]
    assert vote_shares([[2, NAN, 0]], 3).tolist() == [[0.5, 0, 0.5]]


@pytest.mark.parametrize("bad", [5, -1, 1.5, np.inf])
def test_what_is_no_rank_is_named(bad):
    with pytest.raises(DisMixError, match=r"annotator 1 on image 1 is no rank of 0\.\.4"):
        one_hot_votes([[0, 1], [1, bad]], 5)


def test_an_image_without_votes_is_named():
    with pytest.raises(DisMixError, match="image 1 has no vote"):
        vote_shares([[0, 1], [NAN, NAN]], 3)
    with pytest.raises(DisMixError, match=r"must be \(N, A\)"):
        vote_shares([0, 1], 3)


def test_a_gap_that_is_not_written_as_one_is_told_how():
    with pytest.raises(DisMixError, match=r"vote -1 is outside 0\.\.2; write NaN where"):
        OrdinalTarget.from_votes([[0.0, -1.0], [1.0, 2.0]], 3)
    with pytest.raises(DisMixError, match=r"vote -2 is outside 0\.\.2; write -1 where"):
        OrdinalTarget.from_votes([[0, -1], [1, -2]], 3)
    with pytest.raises(DisMixError, match=r"vote 3 is outside 0\.\.2; check the number of ranks"):
        OrdinalTarget.from_votes([[0.0, 3.0]], 3)
