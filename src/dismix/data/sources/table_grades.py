"""Grades of somebody's table: names or numbers in its cells become ranks from 0.

Nothing is shifted silently: a number that may mean two ranks, a lowest grade above 0 that nobody
explained and a number that looks like a code for "not graded" are refused.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dismix.data.laws import law_columns
from dismix.data.manifest import vote_columns
from dismix.data.rank_names import find_rank, other_rank, own_numbers, written_number
from dismix.data.sources.base import parse_rank
from dismix.data.validate import jump_problems
from dismix.errors import DisMixError


@dataclass(frozen=True)
class Scale:
    """How grades are written."""

    ranks: tuple[str, ...]
    first: int

    def __post_init__(self) -> None:
        own = own_numbers(self.ranks)
        if self.first and own is not None and own[0] != self.first:
            raise DisMixError(
                f"is {self.first}, and the lowest rank is called '{self.ranks[0]}'",
                column="first_rank",
                cure="leave it out: ranks with numbers in their names keep these",
            )

    def words(self, rank: int) -> str:
        """Return a rank as the file may have it."""
        return self.ranks[rank] if self.ranks else str(self.first + rank)


def columns_of_grades(table: pd.DataFrame) -> list[str]:
    """Return the columns to read grades from; in the long form others are about annotators.

    Example:
        >>> columns_of_grades(pd.DataFrame(columns=["grade", "annotator", "annotator_years"]))
        ['grade']
    """
    wide = "annotator" not in table
    return [c for c in table.columns if c == "grade" or (wide and c in vote_columns(table))]


def read_ranks(
    cells: "pd.Series[str]", scale: Scale, lines: NDArray[np.int64], path: Path, column: str
) -> "pd.Series[int]":
    """Return 0-based ranks, missing where not graded.

    Args:
        cells: Cells of a column, as text.
        scale: How grades are written.
        lines: Line of the file that each cell is in.
        path: The file, for errors.
        column: Its own name of the column, for errors.
    """
    values = []
    for cell, line in zip(cells, lines, strict=True):
        if pd.isna(cell):
            values.append(None)
            continue
        row = int(line)
        _refuse_two_meanings(str(cell), scale, path, row, column)
        values.append(
            parse_rank(cell, scale.ranks, first=scale.first, file=path, row=row, column=column)
        )
    return pd.Series(values, index=cells.index, dtype="Int64")


def _refuse_two_meanings(cell: str, scale: Scale, path: Path, row: int, column: str) -> None:
    """Raise for a number that is the position of one rank and stands in the name of another."""
    other, found = (f(cell, scale.ranks, first=scale.first) for f in (other_rank, find_rank))
    if other is None or found is None:
        return
    counted = [f"{scale.first + i}_{name}" for i, name in enumerate(scale.ranks)]
    raise DisMixError(
        f"'{cell}' may mean the rank called '{scale.ranks[other]}', or '{scale.ranks[found]}',"
        f" which is number {cell} counted from {scale.first}",
        file=path, row=row, column=column,
        cure="write the name; or put the number that the table has before each name in --ranks,"
        f" such as {','.join(counted)}",
    )  # fmt: skip


def refuse_jump(table: pd.DataFrame, scale: Scale, lines: NDArray[np.int64], path: Path) -> None:
    """Raise for a number that looks like a code for "not graded" and would make many ranks."""
    for problem in jump_problems(table[columns_of_grades(table)], scale.words):
        row = None if problem.row is None else int(lines[problem.row])
        raise DisMixError(
            problem.message, file=path, row=row, column=problem.column, cure=problem.cure
        )


def any_number(table: pd.DataFrame) -> bool:
    """Return whether a grade is written as a number; before they are read."""
    cells = (cell for column in columns_of_grades(table) for cell in table[column].dropna())
    return any(written_number(str(cell).strip()) is not None for cell in cells)


def tell_empty_start(table: pd.DataFrame, scale: Scale, path: Path) -> None:
    """Warn where numbers counted from 0 leave the lowest of the named ranks empty.

    Grades 1 to 3 of four names may be the upper three, or the lower three of a scale from 1.

    Args:
        table: With ranks from 0, of which some were numbers in the file.
        scale: How grades were written.
        path: The file.
    """
    # Numbers in names say what they mean.
    if scale.first or law_columns(table) or any(map(str.isdecimal, "".join(scale.ranks))):
        return
    lowest = table[columns_of_grades(table)].min().min()
    if not pd.isna(lowest) and lowest > 0:
        warnings.warn(
            f"{path}: nobody gave the lowest rank, '{scale.ranks[0]}': numbers count from 0, so"
            f" {lowest} is '{scale.ranks[lowest]}'; add --set first_rank={lowest} if {lowest} is"
            f" '{scale.ranks[0]}'",
            stacklevel=3,
        )


def numbered_names(
    table: pd.DataFrame, scale: Scale, path: Path, shown: dict[str, str]
) -> tuple[str, ...]:
    """Return rank names from the numbers in use; refuse an unexplained start above 0.

    Args:
        table: With ranks from 0 where there are grades or votes.
        scale: How grades were written.
        path: The file, for errors.
        shown: The manifest's column -> the table's own, for errors.
    """
    columns = columns_of_grades(table)
    laws = law_columns(table)
    if not columns and not laws:
        raise DisMixError(
            "no column of grades was named",
            file=path,
            cure="name it with --grade COLUMN, with --annotator COLUMN for each annotator, or "
            "(a row a vote) with --set annotator=COLUMN and --grade COLUMN",
        )
    used = table[columns].to_numpy(np.float64, na_value=np.nan)
    used = used[~np.isnan(used)]
    if laws:
        # They begin at the lowest rank, whoever was graded.
        high = int(max(len(laws) - 1, used.max(initial=0)))
        return tuple(str(scale.first + rank) for rank in range(max(high, 1) + 1))
    column = shown.get(columns[0], columns[0])
    if not len(used):
        raise no_grade(path, column)
    low, high = int(used.min()), int(used.max())
    if scale.first == 0 and low > 0:
        below = "rank 0" if low == 1 else f"ranks 0 to {low - 1}"
        raise DisMixError(
            f"the lowest grade is {low}, and ranks are numbered from 0",
            file=path,
            column=column,
            cure=f"add --set first_rank={low} if {low} is the lowest rank, or --ranks if nobody got"
            f" {below}",
        )
    return tuple(str(scale.first + rank) for rank in range(max(high, 1) + 1))


def no_grade(path: Path, column: str) -> DisMixError:
    """Return the error of a table in which nobody graded anything."""
    return DisMixError(
        "holds no grade at all",
        file=path,
        column=column,
        cure="write a whole number where an image was graded",
    )
