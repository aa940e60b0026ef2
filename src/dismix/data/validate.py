"""Checks on a manifest's table, shared by reading (stop at the first) and `data check` (all)."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from dismix.data.laws import law_columns, law_problems
from dismix.data.rank_names import fraction_cure
from dismix.data.ungraded import ungraded_cure
from dismix.errors import DisMixError

#: Cells that mean "not known" in columns of grades and groups.
GAPS = frozenset({"", "-", "na", "n/a", "nan", "null", "none"})
#: A larger grade is a code or a slip, not a rank.
LARGEST_GRADE = 999
#: Ranks without any image, in a row, from which a grade above them may be a code for a gap.
LONG_GAP = 5
#: Mark of a table whose column of splits is not its own.
_ADDED = "split_added"
_SPLIT_NAMES = {"training": "train", "valid": "val", "validation": "val", "testing": "test"}


@dataclass(frozen=True)
class Problem:
    """Something wrong with the table.

    Attributes:
        code: Short machine-readable name.
        message: What is wrong.
        cure: What to do.
        row: Position in the table (0-based), or None when it concerns the whole table.
        column: Column at fault.
    """

    code: str
    message: str
    cure: str
    row: int | None = None
    column: str | None = None


def normalise(table: pd.DataFrame) -> pd.DataFrame:
    """Return a copy with stripped names and cells, a split column, and numeric grades.

    Cells that are no numbers are left as they are for :func:`problems` to name.

    Raises:
        DisMixError: Two columns have one name.
    """
    table = table.rename(columns=lambda c: str(c).strip()).reset_index(drop=True)
    if not table.columns.is_unique:
        twice = str(table.columns[table.columns.duplicated()][0])
        raise DisMixError(f"two columns are called '{twice}'", cure="rename one")
    # Spreadsheets export empty trailing columns.
    empty = [c for c in table.columns if c.startswith("Unnamed:") and table[c].isna().all()]
    table = table.drop(columns=empty)
    for column in table.columns[[pd.api.types.is_string_dtype(t) for t in table.dtypes]]:
        table[column] = table[column].map(_stripped)
    if "image" in table:
        # Numbers and pathlib paths name images too.
        table["image"] = table["image"].astype(object).map(str, na_action="ignore")
    if "split" not in table:
        table["split"] = "train"
        table.attrs[_ADDED] = True
    elif pd.api.types.is_string_dtype(table["split"]):
        table["split"] = table["split"].str.lower().replace(_SPLIT_NAMES)
    for column in [*grade_columns(table), *(["group"] if "group" in table else [])]:
        if pd.api.types.is_string_dtype(table[column]):
            gap = table[column].map(lambda cell: str(cell).casefold() in GAPS)
            table[column] = table[column].mask(gap)
    for column in grade_columns(table):
        numbers = pd.to_numeric(table[column], errors="coerce")
        # Infinity does not fit into whole numbers: `problems` names it.
        small = not (numbers.abs() > LARGEST_GRADE).any()
        if small and numbers.notna().equals(table[column].notna()):
            whole = numbers.isna() | (numbers == np.floor(numbers))
            table[column] = numbers.astype("Int64") if whole.all() else numbers
    return table


def _own_columns(table: pd.DataFrame) -> str:
    """Return the columns that a normalised table came with."""
    added = table.attrs.get(_ADDED, False)
    return ", ".join(f"'{c}'" for c in table.columns if not (added and c == "split"))


def _stripped(cell: object) -> object:
    """Return text without space around it, None for nothing, and other values as they are."""
    return cell.strip() or None if isinstance(cell, str) else cell


def grade_columns(table: pd.DataFrame) -> list[str]:
    """Return the columns that hold grades: ``grade`` and the annotators'."""
    return [c for c in table.columns if c == "grade" or str(c).startswith("annotator_")]


def first_problem(
    table: pd.DataFrame, num_ranks: int | None, root: Path | None = None
) -> Problem | None:
    """Return the first problem of a normalised table, or None; arguments as for `problems`."""
    return next(problems(table, num_ranks, root), None)


def problems(
    table: pd.DataFrame, num_ranks: int | None, root: Path | None = None
) -> Iterator[Problem]:
    """Yield every problem of a normalised table.

    Args:
        table: As :func:`normalise` returns it.
        num_ranks: C where it is known; None accepts any up to ``LARGEST_GRADE``.
        root: Folder that relative image paths start from, where it is known: a file may be listed
            by such a path and by a whole one.

    Example:
        >>> table = normalise(pd.DataFrame({"image": ["a.png"], "grade": ["7"]}))
        >>> first_problem(table, 5).message
        '7 is outside the range 0..4'
    """
    if "image" not in table:
        yield Problem(
            "no-image-column", f"no column 'image' among {_own_columns(table)}",
            "name the image column 'image', or map it: `dismix data import FILE --image COLUMN`",
        )  # fmt: skip
        return
    columns, laws = grade_columns(table), law_columns(table)
    if not columns and not laws:
        yield Problem(
            "no-grade-column", f"no column 'grade' or 'annotator_...' among {_own_columns(table)}",
            "map them: `dismix data import FILE --grade COLUMN` or `--annotator COLUMN`",
        )  # fmt: skip
        return
    if len(table) == 0:
        yield Problem("no-rows", "has a header but no rows", "add a row for each image")
        return
    yield from _image_problems(table, root)
    yield from _split_problems(table)
    for column in columns:
        yield from grade_problems(table[column], num_ranks)
    if num_ranks is None and not laws:
        yield from jump_problems(table[columns])
    yield from law_problems(table, num_ranks)
    for row in np.flatnonzero(table[columns + laws].isna().all(axis=1)):
        yield Problem(
            "not-graded", "the image has neither a grade nor a vote",
            ungraded_cure(columns + laws), int(row),
        )  # fmt: skip
    yield from _group_problems(table)


def _image_problems(table: pd.DataFrame, root: Path | None) -> Iterator[Problem]:
    image = table["image"]
    for row in np.flatnonzero(image.isna()):
        yield Problem("no-image", "is empty", "give the image's path", int(row), "image")
    # One file may be spelled in several ways. As objects: the folder's name may be no text.
    names = [os.path.normpath(os.path.join(root or "", str(cell))) for cell in image]
    spelled = pd.Series(names, index=image.index, dtype=object)
    for row in np.flatnonzero(spelled.duplicated() & image.notna()):
        yield Problem(
            "image-twice", f"'{image[row]}' is listed a second time",
            "list each image once, with a column for each annotator, or import with --set"
            " annotator=COLUMN where a column says who gave the grade of a row", int(row), "image",
        )  # fmt: skip


def _split_problems(table: pd.DataFrame) -> Iterator[Problem]:
    known = table["split"].isin(["train", "val", "test"])
    for row in np.flatnonzero(~known):
        value = table["split"][row]
        text = "is empty" if pd.isna(value) else f"unknown split '{value}'"
        yield Problem("bad-split", text, "use train, val or test", int(row), "split")


def grade_problems(values: "pd.Series[float]", num_ranks: int | None) -> Iterator[Problem]:
    """Yield every problem of a column of grades; arguments as for :func:`problems`."""
    numbers = pd.to_numeric(values, errors="coerce")
    top = LARGEST_GRADE if num_ranks is None else num_ranks - 1
    scale = "a whole number from 0" + ("" if num_ranks is None else f" to {num_ranks - 1}")
    not_number = numbers.isna() & values.notna()
    broken = numbers.notna() & (numbers != np.floor(numbers))
    outside = numbers.notna() & ~broken & ((numbers < 0) | (numbers > top))
    for row in np.flatnonzero(not_number | broken):
        yield Problem(
            "not-a-grade", f"'{values.iloc[row]}' is not a whole number",
            f"write {scale}, or leave it empty{fraction_cure(str(values.iloc[row]))}",
            int(row), str(values.name),
        )  # fmt: skip
    for row in np.flatnonzero(outside):
        # Minus one is how many programs write a gap.
        gap = ", or leave it empty where there is no grade" if numbers.iloc[row] < 0 else ""
        yield Problem(
            "out-of-range", f"{values.iloc[row]} is outside the range 0..{top}",
            f"write {scale}{gap}; ranks are numbered from 0", int(row), str(values.name),
        )  # fmt: skip


def jump_problems(grades: pd.DataFrame, words: Callable[[int], str] = str) -> Iterator[Problem]:
    """Yield the first grade that lies so far above the others that it may stand for "not graded".

    Where nobody lists the ranks, the largest grade makes them: a 99 among 0 to 4 makes a hundred.

    Args:
        grades: Columns of grades.
        words: How a grade stands in the file.

    Example:
        >>> [p.message for p in jump_problems(pd.DataFrame({"grade": [0, 1, 2, 99]}))]
        ['99 is far above the next grade, 2']
    """
    numbers = grades.apply(pd.to_numeric, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    used = np.unique(numbers[np.isfinite(numbers) & (numbers >= 0) & (numbers <= LARGEST_GRADE)])
    jump = first_jump(used.tolist())
    if jump is not None:
        row, column = np.argwhere(numbers == jump[1])[0]
        below, named = (words(int(grade)) for grade in jump)
        yield Problem(
            "grade-jump", f"{named} is far above the next grade, {below}",
            f"leave the cell empty if {named} says that there is no grade; if it is a rank,"
            " list all ranks, with --ranks at import or in the meta file",
            int(row), str(grades.columns[column]),
        )  # fmt: skip


def first_jump(used: Sequence[float]) -> tuple[float, float] | None:
    """Return the first grade that lies far above all below it, after the next of these, or None.

    Args:
        used: Grades that somebody gave, ascending, each once.

    Example:
        >>> first_jump([0, 1, 2, 99]), first_jump([0, 1, 3, 6, 8])
        ((2, 99), None)
    """
    for count, (below, grade) in enumerate(pairwise(used), start=1):
        skipped = grade - below - 1
        # Sparse scales have gaps as well, but more grades than that before them.
        if skipped >= LONG_GAP and skipped > count:
            return below, grade
    return None


def _group_problems(table: pd.DataFrame) -> Iterator[Problem]:
    if "group" not in table:
        return
    home, other = (
        table.groupby("group", sort=False)[c].transform("first") for c in ("split", "image")
    )
    for row in np.flatnonzero(table["group"].notna() & (table["split"] != home)):
        yield Problem(
            "group-in-two-splits",
            f"group '{table['group'][row]}' is in split '{home[row]}' ('{other[row]}') and in"
            f" '{table['split'][row]}' ('{table['image'][row]}')",
            "keep all images of a patient in one split, or correct what is taken for a patient",
            int(row), "group",
        )  # fmt: skip
