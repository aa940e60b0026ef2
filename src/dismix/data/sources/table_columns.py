"""Columns of somebody's table: found in any case, renamed to the manifest's, named in errors."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dismix.data.manifest import VOTE_PREFIX
from dismix.errors import DisMixError
from dismix.registry import near_names

#: How a column is named on the command line.
OPTIONS = {
    "annotator": "--set annotator=COLUMN",
    "annotators": "--annotator COLUMN",
    **{name: f"--{name} COLUMN" for name in ("image", "split", "group", "grade")},
}


class Columns:
    """Finds columns by name in any case."""

    def __init__(self, path: Path, names: list[str]) -> None:
        self.path, self.names = path, names
        self.by_case = {name.casefold(): name for name in reversed(names)}

    def find(self, name: str) -> str | None:
        """Return the table's own writing of a column's name, None where it has none."""
        return name if name in self.names else self.by_case.get(name.strip().casefold())

    def require(self, name: str, option: str) -> str:
        """Return the same, or raise with the option (a key of `OPTIONS`) that names it."""
        found = self.find(name)
        if found is None:
            raise DisMixError(
                f"there is no column '{name}'",
                file=self.path,
                row=1,
                cure=f"name it with {OPTIONS[option]}; {near_names(name, self.names)}",
            )
        return found

    def renames(self, wanted: dict[str, str], annotators: Sequence[str]) -> dict[str, str]:
        """Return this table's column -> the manifest's column; what was named goes first."""
        self._refuse_two_forms(wanted["annotator"], annotators)
        result: dict[str, str] = {}
        for canonical, name in wanted.items():
            if name:
                self._claim(result, self.require(name, canonical), canonical)
        for name in annotators:
            found = self.require(name, "annotators")
            self._claim(result, found, VOTE_PREFIX + found.removeprefix(VOTE_PREFIX))
        for canonical in wanted:
            own = self.find(canonical)
            if canonical not in result.values() and own is not None and own not in result:
                result[own] = canonical
        return result

    def _claim(self, result: dict[str, str], found: str, new: str) -> None:
        """Give a column its new name, unless it has another one or another column has this."""
        old = result.get(found)
        if old is not None:
            what = f"{_role(new)} twice" if old == new else f"both {_role(old)} and {_role(new)}"
            raise DisMixError(f"column '{found}' is {what}", file=self.path, cure="name it once")
        others = {*result.values(), *self.names} - {found}
        if new.startswith(VOTE_PREFIX) and new in others:
            raise DisMixError(
                f"columns '{found}' and '{new}' would both be the votes of annotator"
                f" '{new.removeprefix(VOTE_PREFIX)}'",
                file=self.path,
                row=1,
                cure="rename one of them",
            )
        result[found] = new

    def _refuse_two_forms(self, annotator: str, annotators: Sequence[str]) -> None:
        """Raise where a row is to be a vote and a column as well: one of them would be lost."""
        found = self.find(annotator or "annotator")
        if annotators and found is not None and found not in map(self.find, annotators):
            raise DisMixError(
                f"column '{found}' says that a row is a vote, --annotator that a column is",
                file=self.path,
                row=1,
                cure=f"leave --annotator out, or rename the column '{found}'",
            )


def _role(new: str) -> str:
    """Return what a column is to be, in words.

    Example:
        >>> _role("grade"), _role("annotator_ann")
        ('grade', 'an annotator')
    """
    return "an annotator" if new.startswith(VOTE_PREFIX) else new


def renamed(
    table: pd.DataFrame, renames: dict[str, str], lines: NDArray[np.int64], path: Path
) -> pd.DataFrame:
    """Rename columns; one that is in the way of a new name is kept as ``<name>_original``."""
    taken = {*renames.values()} | {*table.columns}
    moved: dict[str, str] = {}
    for column in table.columns:
        if column in renames.values() and column not in renames:
            moved[column] = f"{column}_original"
            # There may be such a column already: two of one name could not be read again.
            while moved[column] in taken:
                moved[column] += "_original"
            taken.add(moved[column])
    table = table.rename(columns=moved | renames)
    empty = np.flatnonzero(table["image"] == "")
    if len(empty):
        line = int(lines[empty[0]])
        raise DisMixError("is empty", file=path, row=line, column="image", cure="fill it in")
    return table


@contextmanager
def own_names(shown: Mapping[str, str]) -> Iterator[None]:
    """Let errors name columns as the table does: the manifest's names are not in it."""
    try:
        yield
    except DisMixError as error:
        own = shown.get(error.column or "")
        if own is None:
            raise
        raise DisMixError(
            error.problem, file=error.file, row=error.row, column=own, cure=error.cure
        ) from None
