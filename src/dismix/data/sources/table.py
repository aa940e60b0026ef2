"""Any table: a row an image (wide) or a row a vote (long), with your own column names.

CSV with comma, semicolon or tab, UTF-8 with or without byte-order mark, or Parquet. Grades are
names listed in ``ranks`` or whole numbers counted from ``first_rank``; where the names are or
begin with numbers, a number is the one in a name. Nothing is shifted silently: a table whose
lowest grade is 1 or more is refused until ``first_rank`` or ``ranks`` says what it means, and
where ``ranks`` does, a lowest rank that nobody gave is told.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dismix.data.delimited import SUFFIXES, read_delimited, with_point
from dismix.data.laws import law_columns
from dismix.data.long_form import KEYS, pivot_long
from dismix.data.manifest import Manifest, ManifestMeta, make_manifest, meta_path
from dismix.data.sources.base import SOURCES, Source
from dismix.data.sources.table_columns import OPTIONS, Columns, own_names, renamed
from dismix.data.sources.table_grades import (
    Scale,
    any_number,
    columns_of_grades,
    no_grade,
    numbered_names,
    read_ranks,
    refuse_jump,
    tell_empty_start,
)
from dismix.data.sources.walking import is_image
from dismix.data.ungraded import left_out_note, ungraded_cure, ungraded_rows
from dismix.errors import DisMixError


def read(
    root: str | Path,
    *,
    image: str = "image",
    split: str = "",
    group: str = "",
    grade: str = "",
    annotators: tuple[str, ...] = (),
    annotator: str = "",
    ranks: tuple[str, ...] = (),
    first_rank: int = 0,
    images: str = "",
    suffix: str = "",
    grey: bool = False,
    equalize: bool = False,
    bits: int = 16,
    fit: str = "stretch",
    skip_ungraded: bool = False,
) -> Manifest:
    """Read a table; columns that are not named here are kept as they are.

    Args:
        root: The table.
        image: Column of image paths or names.
        split: Column of splits; "" takes "split" where it exists.
        group: Column of patients; "" takes "group" where it exists.
        grade: Column of grades; "" takes "grade" where it exists.
        annotators: Columns of votes, one an annotator; columns called "annotator_..." are
            votes too.
        annotator: Long form: column that names the annotator; "" takes "annotator".
        ranks: Names of the ranks from low to high; empty: as many as the largest grade says, or
            as there are columns of soft labels ("prob_0", "prob_1" ...).
        first_rank: Number of the lowest rank where grades are numbers, and names have none.
        images: Folder of the images, relative to the table; "" is the table's own.
        suffix: Ending to add to image names that have none, such as ".png".
        grey: Images have one channel; `read_source` finds out where it is not given.
        equalize: Equalise histograms.
        bits: Bits in use of 16-bit grey files.
        fit: How other proportions become square: stretch, pad or crop.
        skip_ungraded: Leave out images that nobody graded; the notes say how many and which.
    """
    path = Path(root)
    table, lines = read_delimited(path)
    _tell_meta(path)
    columns = Columns(path, list(table.columns))
    renames = columns.renames(
        {"image": image, "split": split, "group": group, "grade": grade, "annotator": annotator},
        annotators,
    )
    shown = {new: old for old, new in renames.items()}
    with own_names(shown):
        table = renamed(table, renames, lines, path)
    for column in law_columns(table):
        table[column] = table[column].map(with_point)
    scale = Scale(tuple(ranks), first_rank)
    counted = any_number(table)
    # Before the pivot of the long form, while each vote still has a line of its own.
    for column in columns_of_grades(table):
        name = shown.get(column, column)
        try:
            table[column] = read_ranks(table[column], scale, lines, path, name)
        except DisMixError as error:
            if (name,) != tuple(annotators) or "grade" not in table:
                raise
            raise _names_people(error, name) from None
    if not ranks:
        with own_names(shown):
            refuse_jump(table, scale, lines, path)
    elif counted:
        tell_empty_start(table, scale, path)
    # Before the pivot too: labelling tools list waiting images without an annotator.
    table, lines, left_out = _graded(table, lines, path, shown, skip=skip_ungraded)
    if "annotator" in table:
        named = [c for c in table.columns if c not in KEYS and not c.startswith("Unnamed")]
        with own_names(shown):
            table, lines = _pivoted(table, lines, path, scale)
        left_out += _by_vote_note([c for c in named if c not in table])
    names = tuple(ranks) or numbered_names(table, scale, path, shown)
    table["image"] = [_image(name, images, suffix) for name in table["image"]]
    table = table.replace({"": None})
    meta = ManifestMeta(
        ranks=names,
        grey=grey,
        equalize=equalize,
        bits=bits,
        fit=fit,
        source="table",
        notes="; ".join([f"from {path.name}", *left_out]),
    )
    with own_names(shown):
        return make_manifest(table, meta, path.parent, path=path, lines=lines)


def recognises(root: Path) -> bool:
    """Return whether the path is a file that ends like a table."""
    return root.is_file() and root.suffix.lower() in SUFFIXES


def _tell_meta(path: Path) -> None:
    """Warn where the table seems to be a manifest already: names and settings would be lost."""
    meta = meta_path(path)
    if meta.is_file():
        warnings.warn(
            f"{path}: seems to be a manifest, since {meta.name} lies beside it, of which nothing is"
            " taken over: use it as it is, or import the table that it was made of",
            stacklevel=3,
        )


def _graded(
    table: pd.DataFrame,
    lines: NDArray[np.int64],
    path: Path,
    shown: dict[str, str],
    *,
    skip: bool,
) -> tuple[pd.DataFrame, NDArray[np.int64], list[str]]:
    """Return the table and lines without ungraded images, and a note on them; raise unless skip."""
    columns = columns_of_grades(table) + law_columns(table)
    waiting = ungraded_rows(table.replace({"": None}), columns, long="annotator" in table)
    if not waiting.any() or not columns:
        return table, lines, []
    if waiting.all():
        raise no_grade(path, shown.get(columns[0], columns[0]))
    first = table[waiting].drop_duplicates("image")
    images, rows = first["image"].tolist(), lines[first.index.to_numpy()].tolist()
    if not skip:
        others = f" ({len(images)} such images in all)" if len(images) > 1 else ""
        raise DisMixError(
            f"nobody graded image '{images[0]}'{others}",
            file=path,
            row=rows[0],
            cure=ungraded_cure([shown.get(c, c) for c in columns]),
        )
    kept = table[~waiting].reset_index(drop=True)
    return kept, lines[~waiting], [left_out_note(images, rows)]


def _pivoted(
    table: pd.DataFrame, lines: NDArray[np.int64], path: Path, scale: Scale
) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Turn votes into columns."""
    missing = [key for key in KEYS if key not in table]
    if missing:
        raise DisMixError(
            f"a table with a column of annotators needs a column '{missing[0]}'",
            file=path,
            row=1,
            cure=f"name it with {OPTIONS[missing[0]]}",
        )
    return pivot_long(table.replace({"": None}), file=path, lines=lines, words=scale.words)


def _by_vote_note(columns: Sequence[str]) -> list[str]:
    """Say which columns have no place in a table with one row an image.

    Example:
        >>> _by_vote_note(["date", "seconds"]), _by_vote_note([])
        (["left out the columns 'date', 'seconds', which differ among the votes of an image"], [])
    """
    if not columns:
        return []
    names, one = ", ".join(f"'{name}'" for name in columns), len(columns) == 1
    what, differ = ("column", "differs") if one else ("columns", "differ")
    return [f"left out the {what} {names}, which {differ} among the votes of an image"]


def _names_people(error: DisMixError, column: str) -> DisMixError:
    """Return the error with the cure for a single column of votes that may hold names."""
    return DisMixError(
        error.problem,
        file=error.file,
        row=error.row,
        column=error.column,
        cure=f"{error.cure}; if the column says who voted (a row a vote), "
        f"give --set annotator='{column}' instead of --annotator",
    )


def _image(name: str, folder: str, suffix: str) -> str:
    path = Path(name.replace("\\", "/"))
    if suffix and path.name and not is_image(path.name):
        path = path.with_name(f"{path.name}.{suffix.lstrip('.')}")
    return (Path(folder) / path).as_posix()


SOURCE = SOURCES.register("table")(
    Source(
        name="table",
        about="any CSV, TSV or Parquet: a row an image, or a row a vote",
        obtain="your own data",
        read=read,
        recognises=recognises,
    )
)
