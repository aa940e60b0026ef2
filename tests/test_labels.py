"""Labels: the paper's examples, slow oracles, and laws."""

import math
from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from scipy.stats import wasserstein_distance

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.laws import (
    levels_from_probs,
    majority_rank,
    monotone_levels,
    probs_from_levels,
)

NAN = math.nan


def slow_levels(votes: list[float], num_ranks: int) -> list[float]:
    given = [v for v in votes if not math.isnan(v)]
    return [sum(k < v for v in given) / len(given) for k in range(num_ranks - 1)]


def slow_majority(votes: list[float]) -> int:
    given = [int(v) for v in votes if not math.isnan(v)]
    counts = Counter(given)
    modal = [v for v, n in counts.items() if n == max(counts.values())]
    mean = sum(given) / len(given)
    return min(modal, key=lambda v: (round(abs(v - mean), 9), v))


@st.composite
def vote_tables(draw: st.DrawFn) -> tuple[torch.Tensor, int]:
    num_ranks = draw(st.integers(2, 7))
    annotators = draw(st.integers(1, 6))
    cell = st.one_of(st.just(NAN), st.integers(0, num_ranks - 1).map(float))
    row = st.lists(cell, min_size=annotators, max_size=annotators).filter(
        lambda votes: any(not math.isnan(v) for v in votes)
    )
    rows = draw(st.lists(row, min_size=1, max_size=6))
    return torch.tensor(rows, dtype=torch.float64), num_ranks


@pytest.mark.parametrize(
    ("votes", "levels"),
    [
        ([3, 3, 4, 4], [1, 1, 1, 0.5]),
        ([0, 1, 2, 2], [0.75, 0.5, 0, 0]),
        ([0, 1, 1], [2 / 3, 0, 0, 0]),
    ],
)
def test_levels_of_the_papers_examples(votes, levels):
    target = OrdinalTarget.from_votes(torch.tensor([votes]), num_ranks=5)
    assert torch.allclose(target.levels, torch.tensor([levels], dtype=torch.float32), atol=1e-6)


@settings(deadline=None, max_examples=150)
@given(vote_tables())
def test_votes_match_slow_oracles(case):
    votes, num_ranks = case
    target = OrdinalTarget.from_votes(votes, num_ranks)
    rows = votes.tolist()
    assert torch.allclose(
        target.levels, torch.tensor([slow_levels(r, num_ranks) for r in rows]), atol=1e-6
    )
    assert target.hard.tolist() == [slow_majority(r) for r in rows]
    means = torch.tensor([np.nanmean(r) for r in rows], dtype=torch.float32)
    assert torch.allclose(target.rank, means, atol=1e-5)
    gaps_as_minus_one = votes.nan_to_num(-1).long()
    assert torch.equal(OrdinalTarget.from_votes(gaps_as_minus_one, num_ranks).probs, target.probs)


@settings(deadline=None, max_examples=100)
@given(vote_tables())
def test_laws_of_levels_and_distance(case):
    votes, num_ranks = case
    target = OrdinalTarget.from_votes(votes, num_ranks)
    levels = target.levels
    assert (levels[:, 1:] <= levels[:, :-1]).all()
    assert ((levels >= 0) & (levels <= 1)).all()
    assert torch.equal(monotone_levels(levels), levels)
    assert torch.allclose(probs_from_levels(levels), target.probs, atol=1e-6)
    expected = (target.probs * torch.arange(num_ranks)).sum(1)
    assert torch.allclose(target.rank, expected, atol=1e-5)
    distance = target.distance()
    assert torch.equal(distance, distance.T)
    assert (distance.diagonal() == 0).all()
    through = distance.unsqueeze(2) + distance.unsqueeze(0)
    assert (distance.unsqueeze(1) <= through.transpose(1, 2) + 1e-5).all()
    ranks = np.arange(num_ranks)
    for i in range(len(votes)):
        for j in range(len(votes)):
            slow = wasserstein_distance(ranks, ranks, target.probs[i], target.probs[j])
            assert abs(distance[i, j].item() - slow) < 1e-4


def test_distance_of_single_grades_is_their_difference():
    target = OrdinalTarget.from_labels(torch.arange(5), num_ranks=5)
    ranks = torch.arange(5)
    assert torch.equal(target.distance(), (ranks[:, None] - ranks).abs().float())


def test_distance_sees_disagreement_that_the_mean_hides():
    split = OrdinalTarget.from_votes(torch.tensor([[0, 4]]), num_ranks=5)
    middle = OrdinalTarget.from_labels([2], num_ranks=5)
    assert split.rank.item() == middle.rank.item() == 2
    assert split.distance(middle).item() == 2


def test_distance_with_learned_gaps():
    target = OrdinalTarget.from_labels([0, 3], num_ranks=4)
    assert target.distance(gaps=torch.tensor([1.0, 2.0, 4.0]))[0, 1] == 7


@settings(deadline=None)
@given(st.lists(st.floats(0, 4, width=32), min_size=1, max_size=8))
def test_fractional_rank_is_the_adjacent_two_point_law(ranks):
    target = OrdinalTarget.from_rank(ranks, num_ranks=5)
    assert torch.allclose(target.rank, torch.tensor(ranks), atol=1e-5)
    assert torch.allclose(target.probs.sum(1), torch.ones(len(ranks)))
    assert ((target.probs > 0).sum(1) <= 2).all()


def test_mix_is_the_weighted_mean_and_marks_rows_as_mixed():
    low, high = (OrdinalTarget.from_labels([r] * 3, num_ranks=4) for r in (1, 2))
    mixed = low.mix(high, torch.tensor([1.0, 0.25, 0.0]))
    assert mixed.rank.tolist() == [1.0, 1.75, 2.0]
    assert mixed.clean.tolist() == [True, False, True]
    assert not mixed.mix(low, 1.0).clean[1]


def test_mixing_single_grades_equals_the_fractional_rank():
    lam = torch.rand(50, generator=torch.Generator().manual_seed(0))
    low, high = (OrdinalTarget.from_labels([r] * 50, num_ranks=4) for r in (1, 2))
    direct = OrdinalTarget.from_rank(2 - lam, num_ranks=4)
    assert torch.allclose(low.mix(high, lam).probs, direct.probs, atol=1e-6)


def test_expand_keeps_views_of_an_image_together():
    target = OrdinalTarget.from_labels([0, 2], num_ranks=3).expand(2)
    assert target.hard.tolist() == [0, 0, 2, 2]


def test_coerce_accepts_labels_probabilities_and_targets():
    labels = torch.tensor([1, 0])
    target = OrdinalTarget.coerce(labels, 3)
    assert OrdinalTarget.coerce(target, 3) is target
    half = OrdinalTarget.coerce(target.probs.half(), 3)
    assert half.probs.dtype == torch.float32
    assert torch.equal(half.probs, target.probs)


def test_targets_stay_float32_under_autocast():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        target = OrdinalTarget.from_rank([0.3, 1.9], 4).mix(OrdinalTarget.from_rank([1, 2], 4), 0.3)
        assert target.levels.dtype == target.distance().dtype == torch.float32


def test_majority_tie_goes_to_the_mean_then_down():
    votes = torch.tensor([[1, 1, 2, 2], [0, 0, 3, 3], [0, 4, 4, 0]])
    assert OrdinalTarget.from_votes(votes, 5).hard.tolist() == [1, 0, 0]
    assert majority_rank(torch.tensor([[0.4, 0.2, 0.0, 0.4]])).tolist() == [0]
    assert majority_rank(torch.tensor([[0.35, 0.0, 0.3, 0.35]])).tolist() == [3]


def test_select_and_concatenate():
    target = OrdinalTarget.from_labels([0, 1, 2], num_ranks=3)
    again = OrdinalTarget.cat([target[[2]], target[:2]])
    assert again.hard.tolist() == [2, 0, 1]
    assert len(again) == 3


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: OrdinalTarget.from_labels([0, 5], 5), "label 5 is outside 0..4"),
        (lambda: OrdinalTarget.from_labels(torch.tensor([0.5]), 5), "from_rank"),
        (lambda: OrdinalTarget.from_votes(torch.tensor([[NAN, NAN]]), 3), "image 0 has no vote"),
        (lambda: OrdinalTarget.from_votes(torch.tensor([[1.5]]), 3), "1.5 is not a whole number"),
        (lambda: OrdinalTarget.from_votes(torch.tensor([[-2]]), 3), "vote -2 is outside"),
        (lambda: OrdinalTarget.from_rank([NAN], 3), "rank nan is outside"),
        (lambda: OrdinalTarget.from_rank([2.1], 3), "rank 2.1 is outside"),
        (lambda: OrdinalTarget.from_labels([0], 1), "at least 2 ranks"),
        (lambda: OrdinalTarget.from_probs(torch.tensor([[0.5, 0.2]])), "row 0 is not a probab"),
        (lambda: OrdinalTarget.from_probs(torch.tensor([[NAN, 1.0]])), "row 0 is not a probab"),
        (
            lambda: OrdinalTarget.from_labels([0, 1], 3).mix(
                OrdinalTarget.from_labels([0, 1], 3), torch.rand(2, 1)
            ),
            r"lam must be a number or \(2,\)",
        ),
        (lambda: OrdinalTarget.coerce(torch.rand(2, 4), 3), r"probabilities \(B, 3\)"),
        (
            lambda: OrdinalTarget.from_labels([0], 3).mix(OrdinalTarget.from_labels([0], 3), 1.2),
            "lam must lie within",
        ),
        (
            lambda: OrdinalTarget.from_labels([0], 3).mix(OrdinalTarget.from_labels([0], 3), NAN),
            "lam must lie within",
        ),
        (
            lambda: OrdinalTarget.from_labels([0], 3).distance(OrdinalTarget.from_labels([0], 4)),
            "3 and 4 ranks",
        ),
    ],
)
def test_bad_targets_are_named(build, message):
    with pytest.raises(DisMixError, match=message):
        build()


def test_levels_accept_leading_dimensions():
    probs = torch.full((2, 3, 4), 0.25)
    assert levels_from_probs(probs).shape == (2, 3, 3)


def test_lists_and_arrays_are_votes_and_labels_too():
    assert OrdinalTarget.from_votes([[0, 1], [2, 2]], 3).rank.tolist() == [0.5, 2.0]
    assert OrdinalTarget.coerce([0, 2], 3).hard.tolist() == [0, 2]


def test_thirds_in_half_precision_are_a_law() -> None:
    for kind in (torch.bfloat16, torch.float16):
        thirds = torch.full((2, 3), 1 / 3).to(kind)
        assert OrdinalTarget.from_probs(thirds).probs.sum(1).tolist() == pytest.approx([1, 1])


def test_what_users_hold_numbers_in_is_read_with_its_gaps() -> None:
    wanted = OrdinalTarget.from_votes(torch.tensor([[1, -1], [2, 3]]), 5)
    table = pd.DataFrame({"a": [1, 2], "b": pd.array([pd.NA, 3], dtype="Int64")})
    object_rows = np.array([[1, None], [2, 3]], dtype=object)
    for votes in ([[1, None], [2, 3]], object_rows, table, table.astype(float)):
        assert OrdinalTarget.from_votes(votes, 5) == wanted
    grades = np.array([1, 0])
    for column in (
        pd.Series(grades),
        pd.Categorical(grades),
        grades[::-1][::-1],
        grades.astype(">i4"),
    ):
        assert OrdinalTarget.from_labels(column, 3) == OrdinalTarget.from_labels([1, 0], 3)
    assert OrdinalTarget.from_labels(pd.Series([1, 0], dtype="category"), 3).hard.tolist() == [1, 0]
    assert OrdinalTarget.from_labels(grades[::-1], 3).hard.tolist() == [0, 1]
    for laws in ([[0.5, 0.5], [1, 0]], np.array([[0.5, 0.5], [1, 0]])):
        assert OrdinalTarget.from_probs(laws).rank.tolist() == [0.5, 0.0]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: OrdinalTarget.coerce(["0", "1"], 5), "targets must be numbers, got '0'; number"),
        (lambda: OrdinalTarget.from_labels(pd.Series(["mild"]), 5), "got 'mild'"),
        (lambda: OrdinalTarget.coerce(None, 5), "targets are None; give one for each image"),
        (lambda: OrdinalTarget.from_labels((i for i in [0]), 5), "labels are of type generator"),
        (lambda: OrdinalTarget.from_votes([[1, 2], [1]], 5), "votes have rows of unequal lengths"),
        (lambda: OrdinalTarget.from_votes([[object()]], 5), "votes must be numbers, got object"),
        (lambda: OrdinalTarget.from_labels([1], 5.0), "number of ranks must be whole, got 5.0"),
        (lambda: OrdinalTarget.from_labels([1], None), "number of ranks must be whole, got None"),
        (lambda: OrdinalTarget.from_labels([b"1"], 5), "labels must be numbers, got b'1'"),
        (lambda: OrdinalTarget.from_votes(np.array([[2, 255]], "uint8"), 3), "vote 255 is outside"),
        (lambda: OrdinalTarget.from_labels([1, 0], 5)[0], r"target\[\[0\]\] is a batch of one"),
    ],
)
def test_what_is_no_number_is_told_in_one_line(build, message) -> None:
    with pytest.raises(DisMixError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_targets_are_equal_by_content() -> None:
    target = OrdinalTarget.from_labels([1, 0], 3)
    assert target == OrdinalTarget.from_labels([1, 0], 3)
    assert target != OrdinalTarget.from_labels([1, 1], 3)
    assert target != OrdinalTarget(target.probs, torch.tensor([True, False]))
    assert target != [1, 0]


class _Faulty(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        return OrdinalTarget.from_labels([9], 5).probs


def test_an_error_in_a_worker_of_a_loader_stays_one_line() -> None:
    loader = torch.utils.data.DataLoader(_Faulty(), batch_size=1, num_workers=1)
    with pytest.raises(DisMixError) as caught:
        next(iter(loader))
    assert str(caught.value) == (
        "label 9 is outside 0..4; check the number of ranks, or number the ranks from 0"
        " (in DataLoader worker process 0)"
    )
