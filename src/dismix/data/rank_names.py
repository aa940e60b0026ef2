"""Ranks as people speak of them: by name, or by a number, which need not count from 0."""

import re
from collections.abc import Sequence

from dismix.errors import DisMixError
from dismix.registry import near_names


def rank_numbers(names: Sequence[str]) -> tuple[int, ...]:
    """Return the number of each rank: its own where all names begin with one, else its position.

    Args:
        names: C names, low to high.

    Example:
        >>> rank_numbers(["1", "2", "3"]), rank_numbers(["0_none", "1_mild"])
        ((1, 2, 3), (0, 1))
        >>> rank_numbers(["none", "mild", "severe"])
        (0, 1, 2)
    """
    found = [re.match(r"\d+", name) for name in names]
    own = tuple(int(match[0]) for match in found if match is not None)
    return own if len({*own}) == len(names) else tuple(range(len(names)))


def rank_position(text: str, names: Sequence[str]) -> int:
    """Return the position (0..C-1) of a rank that is given by its name or number.

    Args:
        text: What somebody wrote.
        names: C names, low to high.

    Raises:
        DisMixError: No rank is called so.

    Example:
        >>> rank_position("mild", ["none", "mild"]), rank_position("1", ["none", "mild"])
        (1, 1)
        >>> rank_position("1", ["1", "2", "3"])
        0
    """
    text = text.strip()
    if text in names:
        return list(names).index(text)
    numbers = rank_numbers(names)
    if text.isdecimal() and int(text) in numbers:
        return numbers.index(int(text))
    if text.lstrip("-").isdecimal():
        cure = f"the ranks are {', '.join(map(str, numbers))}"
        cure += "" if tuple(map(str, numbers)) == (*names,) else f" ({', '.join(names)})"
    else:
        cure = near_names(text, list(names))
    raise DisMixError(f"there is no rank '{text}'", cure=cure)
