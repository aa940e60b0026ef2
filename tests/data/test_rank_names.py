import pytest

from dismix.data.rank_names import rank_numbers, rank_position
from dismix.errors import DisMixError


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (("0", "1", "2"), (0, 1, 2)),
        (("1", "2", "3"), (1, 2, 3)),
        (("1_none", "2_mild"), (1, 2)),
        (("01", "03"), (1, 3)),
        # Some names, or the same number twice: no scale of numbers.
        (("none", "1 lesion", "2 lesions"), (0, 1, 2)),
        (("3a", "3b", "4"), (0, 1, 2)),
    ],
)
def test_numbers_are_the_names_own_or_positions(names, numbers):
    assert rank_numbers(names) == numbers


def test_a_name_goes_before_a_number():
    assert rank_position("1", ("none", "1", "2")) == 1
    assert rank_position("2_mild", ("1_none", "2_mild")) == 1
    assert rank_position("2", ("1_none", "2_mild")) == 1


@pytest.mark.parametrize(
    ("text", "names", "words"),
    [
        ("0", ("1", "2"), "there is no rank '0'; the ranks are 1, 2$"),
        ("5", ("none", "mild"), r"there is no rank '5'; the ranks are 0, 1 \(none, mild\)$"),
        ("milt", ("none", "mild"), "there is no rank 'milt'; did you mean 'mild'"),
    ],
)
def test_unknown_ranks_are_answered_with_the_known_ones(text, names, words):
    with pytest.raises(DisMixError, match=words):
        rank_position(text, names)
