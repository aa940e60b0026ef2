"""The order of ranks that are named by folders: by their numbers, or as somebody lists them."""

import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from dismix.data.rank_names import written_number
from dismix.data.sources.walking import natural_key
from dismix.data.spelling import alike
from dismix.data.validate import first_jump
from dismix.errors import DisMixError
from dismix.registry import near_names


def ranked_names(found: Iterable[str], ranks: tuple[str, ...], root: Path) -> tuple[str, ...]:
    """Return the names of all ranks, low to high.

    Args:
        found: Names of folders.
        ranks: The names as the user lists them, low to high; empty where numbers say the order.
        root: Folder that holds them, for messages.

    Raises:
        DisMixError: A folder is not listed, or no number says which of two is the lower rank.

    Example:
        >>> ranked_names(["grade 10", "grade 9"], (), Path("trial"))
        ('grade 9', 'grade 10')
        >>> ranked_names(["0", "2"], (), Path("trial"))
        ('0', '1', '2')
    """
    # Neither names nor their order hang on how a disk spells accents.
    spelled = {alike(name): unicodedata.normalize("NFC", name) for name in found}
    names = sorted(spelled.values(), key=natural_key)
    if ranks:
        _refuse_unlisted(names, ranks, root)
        return tuple(ranks)
    if len(names) < 2:
        return tuple(names)
    if all(name.isdecimal() for name in names):
        numbers = {int(name): name for name in names}
        _refuse_same_number(names, numbers, root)
        _refuse_jump(numbers, root)
        return tuple(numbers.get(n, str(n)) for n in range(min(numbers), max(numbers) + 1))
    return _by_number(names, root)


def _by_number(names: list[str], root: Path) -> tuple[str, ...]:
    """Return names by the one number that tells them apart; raise where there is none."""
    found = [_before_and_number(name) for name in names]
    numbers = {
        number: name for (_, number), name in zip(found, names, strict=True) if number is not None
    }
    if len(numbers) < len(names) or len({before for before, _ in found}) > 1:
        # Not in a form that can be pasted as it is: this order is the alphabet's.
        raise DisMixError(
            "no number says which folder is the lower rank: " + "; ".join(names),
            file=root,
            cure="import it with --ranks and these names from low to high, parted by commas; move a"
            " folder away that is no grade",
        )
    # Not by natural sort, which has 0.25 after 0.5, and -1 after 0.
    return tuple(name for _, name in sorted(numbers.items()))


def _before_and_number(name: str) -> tuple[str, float | None]:
    """Return the text before the first number of a name, and that number.

    Example:
        >>> _before_and_number("KL-2 mild"), _before_and_number("-1"), _before_and_number("mild")
        (('kl-', 2.0), ('', -1.0), ('mild', None))
    """
    whole = written_number(name)
    if whole is not None:
        return "", whole
    match = re.match(r"(\D*)(\d+(?:[.,]\d+)?)", name)
    if match is None:
        return alike(name), None
    return alike(match[1]), float(match[2].replace(",", "."))


def _refuse_unlisted(names: Iterable[str], ranks: tuple[str, ...], root: Path) -> None:
    """Raise for a folder that is not among the ranks as the user lists them."""
    known = [alike(rank) for rank in ranks]
    for name in names:
        if alike(name) not in known:
            raise DisMixError(
                f"folder '{name}' is not among the ranks",
                file=root,
                column="ranks",
                cure=near_names(name, list(ranks)),
            )


def _refuse_same_number(names: Iterable[str], numbers: dict[int, str], root: Path) -> None:
    """Raise for a name such as 00 whose number another name has too."""
    for name in names:
        other = numbers[int(name)]
        if other != name:
            raise DisMixError(
                f"folders '{name}' and '{other}' have the same number",
                file=root,
                cure="give the folders of a grade one name, and those of two grades two numbers",
            )


def _refuse_jump(numbers: dict[int, str], root: Path) -> None:
    """Raise for a number that looks like a code for "not graded" and would make many ranks."""
    jump = first_jump(sorted(numbers))
    if jump is not None:
        below, name = (numbers[int(number)] for number in jump)
        raise DisMixError(
            f"is far above the next grade, {below}",
            file=root / name,
            cure=f"move the folder away if {name} says that there is no grade; if it is a rank,"
            " list the names of all folders from low to high with --ranks",
        )
