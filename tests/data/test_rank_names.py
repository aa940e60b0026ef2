import unicodedata

import pytest

from dismix.data.rank_names import find_rank, rank_numbers, rank_position
from dismix.data.sources.base import parse_rank
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
        (("-1", "0", "1"), (-1, 0, 1)),
        # Whole numbers would not tell these apart from 0 and 1.
        (("0.5", "1.5"), (0, 1)),
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
        ("1", ("0.5", "1.5"), "there is no rank '1'; the ranks are 0.5, 1.5$"),
        ("milt", ("none", "mild"), "there is no rank 'milt'; did you mean 'mild'"),
    ],
)
def test_unknown_ranks_are_answered_with_the_known_ones(text, names, words):
    with pytest.raises(DisMixError, match=words):
        rank_position(text, names)


@pytest.mark.parametrize(
    ("text", "names", "position"),
    [
        ("1", ("1", "2", "3"), 0),
        ("1.0", ("1", "2", "3"), 0),
        ("3,0", ("1", "2", "3"), 2),
        ("1", ("1_mild", "2_moderate"), 0),
        ("1", ("01", "02"), 0),
        ("1", ("-1", "0", "1"), 2),
        ("1.0", ("-1", "0", "1"), 2),
        ("-1.0", ("-1", "0", "1"), 0),
        ("1", ("0.0", "0.5", "1.0"), 2),
        ("0.50", ("0.0", "0.5", "1.0"), 1),
        ("1", ("none", "mild"), 1),
        ("MILD", ("none", "mild"), 1),
        # Numbers that no name has, though there would be such a position.
        ("0", ("1", "2", "3"), None),
        ("0", ("1_mild", "2_moderate"), None),
        ("1", ("0.5", "1.5"), None),
        ("1.5", ("1", "2"), None),
    ],
)
def test_cells_of_tables_and_options_mean_the_same_rank(text, names, position):
    assert find_rank(text, names) == position
    if position is not None:
        assert parse_rank(text, names) == rank_position(text, names) == position
        return
    for reader in (parse_rank, rank_position):
        with pytest.raises(DisMixError, match=", ".join(names)):
            reader(text, names)


def test_accents_are_spelled_in_two_ways():
    names = ("sain", unicodedata.normalize("NFC", "Léger"))
    assert find_rank(unicodedata.normalize("NFD", "léger"), names) == 1
    assert find_rank("leger", names) is None
