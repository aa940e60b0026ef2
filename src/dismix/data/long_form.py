"""The long form of votes: a row for each (image, annotator, grade)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dismix.data.spelling import same_name
from dismix.errors import DisMixError

KEYS = ("image", "annotator", "grade")


def is_long(table: pd.DataFrame) -> bool:
    """Return whether a table has the three columns of the long form.

    Example:
        >>> is_long(pd.DataFrame(columns=["image", "annotator", "grade"]))
        True
    """
    columns = {str(c).strip() for c in table.columns}
    return columns.issuperset(KEYS)


def pivot_long(
    table: pd.DataFrame,
    *,
    file: Path | None = None,
    lines: NDArray[np.int64] | None = None,
    words: Callable[[Any], str] = str,
) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Turn the long form into one row an image and one column an annotator.

    Args:
        table: Columns image, annotator, grade; split and group must agree among the rows of
            an image (empty cells say nothing). Others are kept where they do, and left out
            where they belong to the votes, as the date of a reading does.
        file: File to name in messages.
        lines: Line of each row in that file; by default there are no blank lines in it.
        words: How a grade stands in that file, for messages.

    Returns:
        The wide table, images in order of first appearance, and the line (N,) on which
        each image first appears.

    Raises:
        DisMixError: An annotator graded an image twice with different grades, or rows of
            one image disagree on its split or group.

    Example:
        >>> wide, lines = pivot_long(pd.DataFrame({"image": ["a", "a", "b"],
        ...     "annotator": ["x", "y", "y"], "grade": ["1", "2", "0"]}))
        >>> wide.to_dict("list"), lines.tolist()
        ({'image': ['a', 'b'], 'annotator_x': ['1', nan], 'annotator_y': ['2', '0']}, [2, 4])
    """
    table = table.rename(columns=lambda c: str(c).strip())
    table = table.reset_index(drop=True)
    line = np.arange(len(table)) + 2 if lines is None else lines
    for column in ("image", "annotator"):
        missing = table[column].isna()
        if missing.any():
            raise DisMixError(
                "is empty",
                file=file,
                row=int(line[missing.to_numpy()][0]),
                column=column,
                cure="fill it",
            )
    _refuse_spellings(table["annotator"], line, file)
    _refuse_conflict(table, ["image", "annotator"], "grade", line, file, words)
    # Columns about annotators would be taken for their votes in the wide form.
    unwanted = ("Unnamed", "annotator_")
    others = [c for c in table.columns if c not in KEYS and not str(c).startswith(unwanted)]
    for column in [c for c in others if c in ("split", "group")]:
        _refuse_conflict(table, ["image"], column, line, file, str)
    others = [c for c in others if not _conflicts(table, ["image"], c).any()]
    first = table.drop_duplicates("image")
    wide = first[["image"]].reset_index(drop=True)
    for column in others:
        # The first cell that is filled: an export may repeat a row with less in it.
        wide[column] = table.groupby("image", sort=False)[column].first().to_numpy()
    votes = table.groupby(["image", "annotator"], sort=False)["grade"].first().unstack()
    for annotator in sorted(votes.columns, key=str):
        wide[f"annotator_{annotator}"] = votes[annotator].reindex(wide["image"]).to_numpy()
    return wide, line[first.index.to_numpy()]


def _refuse_spellings(names: pd.Series, line: NDArray[np.int64], file: Path | None) -> None:
    """Raise where two annotators differ in spelling only: one person would vote as two."""
    first: dict[str, tuple[str, int]] = {}
    for at, name in enumerate(names.map(str)):
        other, there = first.setdefault(same_name(name), (name, at))
        if other != name:
            raise DisMixError(
                f"annotator '{name}' differs from '{other}' in row {line[there]} in spelling only",
                file=file,
                row=int(line[at]),
                column="annotator",
                cure="write them alike if they are one person, and farther apart if they are two",
            )


def _conflicts(table: pd.DataFrame, keys: list[str], column: str) -> NDArray[np.bool_]:
    """Return the rows (N,) that differ in a column from the first filled one with equal keys."""
    kept, values = table.groupby(keys, sort=False)[column].transform("first"), table[column]
    return ((values != kept) & values.notna() & kept.notna()).to_numpy(np.bool_)


def _refuse_conflict(
    table: pd.DataFrame,
    keys: list[str],
    column: str,
    line: NDArray[np.int64],
    file: Path | None,
    words: Callable[[Any], str],
) -> None:
    """Raise when rows with equal keys differ in a column, naming the two lines."""
    clash, values = _conflicts(table, keys, column), table[column]
    if not clash.any():
        return
    at = int(clash.argmax())
    same = (table[keys] == table.loc[at, keys]).all(axis=1) & values.notna()
    first = int(same.to_numpy().argmax())
    image, annotator = str(table.loc[at, "image"]), str(table.loc[at, "annotator"])
    what = f"the votes of annotator '{annotator}'" if "annotator" in keys else "the rows"
    raise DisMixError(
        f"{what} for image '{image}' say '{words(values[at])}' here"
        f" and '{words(values[first])}' in row {line[first]}",
        file=file,
        row=int(line[at]),
        column=column,
        cure="keep one of the two",
    )
