"""Ranks as people speak of them: by name, or by a number, which need not count from 0."""

import math
import re
import warnings
from collections.abc import Sequence
from pathlib import Path

from dismix.data.spelling import alike
from dismix.errors import DisMixError
from dismix.registry import near_names


def own_numbers(names: Sequence[str]) -> tuple[float, ...] | None:
    """Return the numbers that names are or begin with, or None where they are no scale of numbers.

    Args:
        names: C names, low to high.

    Example:
        >>> own_numbers(["1_mild", "2_severe"]), own_numbers(["0.5", "1.5"])
        ((1.0, 2.0), (0.5, 1.5))
        >>> own_numbers(["3a", "3b", "4"]) is None
        True
    """
    found = [re.match(r"[+-]?\d+(\.\d+)?", name) for name in names]
    own = tuple(float(match[0]) for match in found if match is not None)
    return own if own and len({*own}) == len(names) else None


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
    own = own_numbers(names)
    if own is not None and all(number.is_integer() for number in own):
        return tuple(int(number) for number in own)
    return tuple(range(len(names)))


def rank_numerals(names: Sequence[str]) -> tuple[str, ...]:
    """Return what to print for each rank where space is short: its own number, or its position.

    Args:
        names: C names, low to high.

    Example:
        >>> rank_numerals(["1_mild", "2_severe"]), rank_numerals(["0.5", "1.0"])
        (('1', '2'), ('0.5', '1'))
        >>> rank_numerals(["none", "mild"])
        ('0', '1')
    """
    return tuple(f"{number:g}" for number in own_numbers(names) or range(len(names)))


def rank_label(rank: int, names: Sequence[str]) -> str:
    """Return what to call a rank: its name, after its position where no name has a number.

    Args:
        rank: Position, 0..C-1.
        names: C names, low to high.

    Example:
        >>> rank_label(0, ["1", "2"]), rank_label(1, ["none", "mild"])
        ('1', '1 (mild)')
    """
    return names[rank] if own_numbers(names) is not None else f"{rank} ({names[rank]})"


def find_rank(text: str, names: Sequence[str], *, first: int = 0) -> int | None:
    """Return the position (0..C-1) of a rank that is given by its name or number, or None.

    A number is a rank's own where the names are numbers or begin with them, and never a position
    then: of the ranks 1, 2, 3 the one called "1.0" by a spreadsheet is the first.

    Args:
        text: What somebody wrote; a name in any case, and in any spelling of its accents.
        names: C names, low to high.
        first: Number of the lowest rank where names have none of their own.

    Example:
        >>> find_rank("1.0", ["1", "2", "3"]), find_rank("1", ["none", "mild"])
        (0, 1)
        >>> find_rank("0", ["1", "2", "3"]) is None
        True
    """
    text = text.strip()
    if text in names:
        return list(names).index(text)
    folded = [alike(name) for name in names]
    if alike(text) in folded:
        return folded.index(alike(text))
    numbers = own_numbers(names) or tuple(range(first, first + len(names)))
    number = written_number(text)
    return numbers.index(number) if number in numbers else None


def other_rank(text: str, names: Sequence[str], *, first: int = 0) -> int | None:
    """Return the position of another rank that a number may mean, by its name, or None.

    Of NC, G3, G4, G5 the number 3 is the position of G5, but whoever wrote it may well mean G3.

    Args:
        text: What somebody wrote.
        names: C names, low to high.
        first: Number of the lowest rank.

    Example:
        >>> other_rank("3", ["NC", "G3", "G4", "G5"]), other_rank("2", ["NC", "G3", "G4", "G5"])
        (1, None)
        >>> other_rank("1", ["KL-1", "KL-2"]), other_rank("1", ["KL-1", "KL-2"], first=1)
        (0, None)
    """
    number, found = written_number(text), find_rank(text, names, first=first)
    if number is None or found is None or text in names or own_numbers(names) is not None:
        return None
    # A name with several numbers, such as 3+4, is none of them.
    held = [re.findall(r"\d+(?:\.\d+)?", name) for name in names]
    meant = [i for i, own in enumerate(held) if len(own) == 1 and float(own[0]) == number]
    return meant[0] if meant and found not in meant else None


def require_same_order(
    known: Sequence[str],
    given: Sequence[str],
    whose: str,
    *,
    file: Path | None,
    tell: bool = True,
    cure: str = "",
) -> None:
    """Raise where data have a model's ranks in another order; warn where they have other names.

    Ranks are known by their positions: read from the other end, every grade would be a wrong one.

    Args:
        known: Names of the model's ranks, low to high.
        given: As many names of the data's ranks.
        whose: What the model is called in messages.
        file: The data.
        tell: Warn.
        cure: What to do about another order, if not to give other data.
    """
    if [*known] == [*given]:
        return
    text = f"has the ranks {', '.join(given)}, the {whose} {', '.join(known)}"
    if sorted(known) == sorted(given):
        cure = cure or f"give data whose ranks are in the {whose}'s order"
        raise DisMixError(text, file=file, cure=cure)
    if tell:
        where = f"{file}: " if file else ""
        warnings.warn(f"{where}{text}; they are taken for the same ones", stacklevel=3)


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
    found = find_rank(text, names)
    if found is not None:
        return found
    text = text.strip()
    if written_number(text) is None:
        cure = near_names(text, list(names))
    else:
        cure = f"the ranks are {_numbers_and_names(names)}"
    raise DisMixError(f"there is no rank '{text}'", cure=cure)


def written_number(text: str) -> float | None:
    """Return the number that a text is, with point or comma, or None.

    Example:
        >>> written_number("2,0"), written_number("1e0")
        (2.0, None)
    """
    # ASCII digits only: others are as likely a slip of the encoding.
    match = re.fullmatch(r"([+-]?[0-9]{1,9})(?:[.,]([0-9]*))?", text)
    return float(f"{match[1]}.{match[2] or 0}") if match else None


def fraction_cure(text: str) -> str:
    """Return what can be done with a grade between two whole numbers, "" for any other text.

    Example:
        >>> fraction_cure("1.5")[:77]
        '; grades such as 1.5 can be ranks of their own (--ranks 1,1.5,2 and so on) or'
        >>> fraction_cure("2.0"), fraction_cure("mild")
        ('', '')
    """
    number = written_number(text)
    if number is None or number.is_integer():
        return ""
    low = math.floor(number)
    return (
        f"; grades such as {number:g} can be ranks of their own (--ranks {low},{number:g},{low + 1}"
        f" and so on) or two votes, {low} and {low + 1}"
    )


def whole_number(text: str) -> int | None:
    """Return the whole number that a text is, or None.

    Example:
        >>> whole_number("2.0"), whole_number("1.5")
        (2, None)
    """
    number = written_number(text)
    return int(number) if number is not None and number.is_integer() else None


def _numbers_and_names(names: Sequence[str]) -> str:
    """Return what ranks can be called: numbers, and names in brackets where they differ."""
    called, numbers = ", ".join(names), ", ".join(map(str, rank_numbers(names)))
    own = own_numbers(names)
    # Numbers with a fraction have no whole number beside them that would be understood.
    if called == numbers or (own is not None and not all(n.is_integer() for n in own)):
        return called
    return f"{numbers} ({called})"
