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
        """Return this table's column -> the manifest's column."""
        result: dict[str, str] = {}
        for canonical, name in wanted.items():
            found = self.require(name, canonical) if name else self.find(canonical)
            if found is not None:
                result[found] = canonical
        for name in annotators:
            found = self.require(name, "annotators")
            if found in result:
                raise DisMixError(
                    f"column '{found}' is both {result[found]} and an annotator",
                    file=self.path,
                    cure="name it once",
                )
            result[found] = VOTE_PREFIX + found.removeprefix(VOTE_PREFIX)
        return result


def renamed(
    table: pd.DataFrame, renames: dict[str, str], lines: NDArray[np.int64], path: Path
) -> pd.DataFrame:
    """Rename columns; one that is in the way of a new name is kept as ``<name>_original``."""
    taken = set(renames.values())
    moved = {c: f"{c}_original" for c in table.columns if c in taken and c not in renames}
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
