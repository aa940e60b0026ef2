"""What a source is: a published folder in, a manifest out, nothing else.

A source lists rows; it neither decodes nor copies images. A row whose image is missing keeps
the name the publisher gave it, so that `data check` can report all of them at once, while
:func:`dismix.data.sources.read_source` refuses them.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from dismix.data.manifest import Manifest
from dismix.data.rank_names import find_rank, fraction_cure, own_numbers, whole_number
from dismix.data.validate import GAPS, LARGEST_GRADE
from dismix.errors import DisMixError
from dismix.registry import Registry, near_names


@dataclass(frozen=True)
class Source:
    """A layout of files that can be turned into a manifest.

    Args:
        name: Registry name.
        about: One line on the images and their grades.
        obtain: Where the data come from, and under which licence.
        read: ``read(root, *, option=...)``; its keyword-only parameters are the options.
        recognises: Whether a path looks like this layout; cheap. It raises at most for names and
            folders that nobody could read.
    """

    name: str
    about: str
    obtain: str
    read: Callable[..., Manifest]
    recognises: Callable[[Path], bool]

    @property
    def options(self) -> dict[str, Any]:
        """Names and defaults of the options."""
        parameters = inspect.signature(self.read).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def parse_options(self, texts: Iterable[str]) -> dict[str, Any]:
        """Turn ``name=value`` texts into typed options; commas part the items of a list.

        Raises:
            DisMixError: Unknown option, or a value of the wrong type.
        """
        hints = get_type_hints(self.read)
        parsed: dict[str, Any] = {}
        for text in texts:
            name, equals, value = text.partition("=")
            name = name.strip().replace("-", "_")
            self.check_options([name])
            if not equals:
                raise DisMixError(f"option '{text}' has no value", cure=f"write {name}=VALUE")
            parsed[name] = _typed(name, value.strip(), hints[name])
        if len(parsed.get("ranks", ())) == 1:
            raise DisMixError(
                f"names one grade only, '{parsed['ranks'][0]}'", column="--ranks",
                cure="name all from low to high, parted by commas",
            )  # fmt: skip
        return parsed

    def check_options(self, names: Iterable[str]) -> None:
        """Raise for the first name that is no option of this source."""
        known = self.options
        for name in names:
            if name not in known:
                cure = near_names(name, list(known)) if known else "it takes none"
                raise DisMixError(f"source '{self.name}' has no option '{name}'", cure=cure)


SOURCES: Registry[Source] = Registry("source")


def find_entry(folder: Path, name: str, *, loose: str | None = None) -> Path | None:
    """Return the entry of a folder with this name, whatever its case.

    Args:
        folder: Where to look.
        name: Publisher's name.
        loose: Regular expression that other spellings may match, when exactly one does.
    """
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return None
    same = [e for e in entries if e.name.strip().casefold() == name.casefold()]
    if not same and loose is not None:
        same = [e for e in entries if re.search(loose, e.name, re.IGNORECASE)]
        same = same if len(same) == 1 else []
    return same[0] if same else None


def require_entry(folder: Path, name: str, *, cure: str, loose: str | None = None) -> Path:
    """Return an entry as :func:`find_entry` does, or raise naming what was looked for where."""
    found = find_entry(folder, name, loose=loose)
    if found is None:
        raise DisMixError(f"'{name}' was not found here", file=folder, cure=cure)
    return found


def require_folder(root: str | Path) -> Path:
    """Return the path when it is a folder; raise otherwise."""
    root = Path(root)
    if not root.is_dir():
        problem = "is a file, not a folder" if root.exists() else "no such folder"
        raise DisMixError(problem, file=root, cure="give the folder that holds the data set")
    return root


def parse_rank(
    value: object,
    ranks: Sequence[str],
    *,
    first: int = 0,
    file: Path | None = None,
    row: int | None = None,
    column: str | None = None,
) -> int | None:
    """Return the 0-based rank written in a cell, or None for a gap.

    Args:
        value: Cell: a rank's name in any case, or its number: its own where the names are or
            begin with numbers (see :func:`dismix.data.rank_names.find_rank`), else counted.
        ranks: Names, low to high. Empty: any whole number from ``first``.
        first: Number of the lowest rank where names have none of their own.
        file: File, ``row`` and ``column`` to name in the message.
        row: 1-based line.
        column: Column.

    Raises:
        DisMixError: The cell is neither.

    Example:
        >>> parse_rank("g4", ("NC", "G3", "G4")), parse_rank("2.0", (), first=1)
        (2, 1)
        >>> parse_rank("1.0", ("1", "2", "3"))
        0
    """
    text = "" if value is None else str(value).strip()
    found = find_rank(text, ranks, first=first)
    if found is not None:
        return found
    # After the names: a rank may well be called "none".
    if text.casefold() in GAPS:
        return None
    number = whole_number(text)
    if not ranks and number is not None and first <= number <= LARGEST_GRADE:
        return number - first
    raise DisMixError(
        f"'{text}' is not a grade",
        file=file,
        row=row,
        column=column,
        cure=_grade_cure(number, ranks, first) + fraction_cure(text),
    )


def _grade_cure(number: int | None, ranks: Sequence[str], first: int) -> str:
    """Return what may stand in a cell instead of a text that is no grade."""
    if ranks and own_numbers(ranks) is not None:
        cure = f"write one of {', '.join(ranks)}"
    elif ranks:
        top = first + len(ranks) - 1
        cure = f"write a whole number from {first} to {top} or one of {', '.join(ranks)}"
        if number == top + 1:
            cure += f"; if {first + 1} is '{ranks[0]}', add --set first_rank={first + 1}"
    elif number is None:
        cure = f"write a whole number from {first}, or list the names from low to high with --ranks"
    else:
        cure = f"write a whole number from {first}"
        cure += f" to {LARGEST_GRADE}" if number > LARGEST_GRADE else ""
    # Minus one is how many programs write a gap.
    gap = number is not None and number < min(first, 0)
    return f"{cure}, or leave the cell empty where there is no grade" if gap else cure


def compiled_group_pattern(text: str) -> re.Pattern[str] | None:
    """Compile a pattern with exactly one capture group; None for an empty text."""
    if not text:
        return None
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise DisMixError(
            f"'{text}' is no regular expression ({error})",
            column="group_pattern",
            cure=r"write one with a capture group, such as ^(\d+)",
        ) from error
    if pattern.groups != 1:
        raise DisMixError(
            f"'{text}' has {pattern.groups} capture groups",
            column="group_pattern",
            cure=r"put one pair of brackets around the patient, such as ^(\d+)",
        )
    return pattern


def group_of(name: str, pattern: re.Pattern[str]) -> str:
    """Return the part of a file name that the pattern captures; raise where it does not match."""
    match = pattern.search(name)
    if match is None or not match[1]:
        raise DisMixError(
            f"group_pattern '{pattern.pattern}' does not match",
            file=name,
            cure="change the pattern so that every file name gives a group",
        )
    return match[1]


def _typed(name: str, value: str, hint: Any) -> Any:
    if hint is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if value.lower() not in words:
            raise DisMixError(f"option '{name}' is '{value}'", cure="write true or false")
        return words[value.lower()]
    if hint is int:
        if whole_number(value) is None:
            raise DisMixError(f"option '{name}' is '{value}'", cure="write a whole number")
        return whole_number(value)
    if hint is str:
        return value
    items = tuple(item.strip() for item in value.split(",")) if value else ()
    if "" in items:
        raise DisMixError(
            f"option '{name}' is '{value}', with an empty name",
            cure="write names parted by single commas",
        )
    return items
