"""Any table: a row an image (wide) or a row a vote (long), with your own column names.

CSV with comma, semicolon or tab, UTF-8 with or without byte-order mark, or Parquet. Grades are
names listed in ``ranks`` or whole numbers counted from ``first_rank``; where the names are or
begin with numbers, a number is the one in a name. Nothing is shifted silently: a table whose
lowest grade is 1 or more is refused until ``first_rank`` or ``ranks`` says what it means.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dismix.data.delimited import SUFFIXES, read_delimited
from dismix.data.laws import law_columns
from dismix.data.long_form import KEYS, pivot_long
from dismix.data.manifest import VOTE_PREFIX, Manifest, ManifestMeta, make_manifest, vote_columns
from dismix.data.rank_names import find_rank, other_rank, own_numbers
from dismix.data.sources.base import SOURCES, Source, parse_rank
from dismix.data.sources.walking import is_image
from dismix.data.ungraded import left_out_note, ungraded_cure, ungraded_rows
from dismix.data.validate import jump_problems
from dismix.errors import DisMixError
from dismix.registry import near_names

#: How a column is named on the command line.
_OPTIONS = {
    "annotator": "--set annotator=COLUMN",
    "annotators": "--annotator COLUMN",
    **{name: f"--{name} COLUMN" for name in ("image", "split", "group", "grade")},
}


@dataclass(frozen=True)
class _Scale:
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
        grey: Images have one channel.
        equalize: Equalise histograms.
        bits: Bits in use of 16-bit grey files.
        fit: How other proportions become square: stretch, pad or crop.
        skip_ungraded: Leave out images that nobody graded; the notes say how many and which.
    """
    path = Path(root)
    table, lines = read_delimited(path)
    columns = _Columns(path, list(table.columns))
    renames = columns.renames(
        {"image": image, "split": split, "group": group, "grade": grade, "annotator": annotator},
        annotators,
    )
    shown = {new: old for old, new in renames.items()}
    with _own_names(shown):
        table = _renamed(table, renames, lines, path)
    for column in law_columns(table):
        table[column] = table[column].map(_with_point)
    scale = _Scale(tuple(ranks), first_rank)
    # Before the pivot of the long form, while each vote still has a line of its own.
    for column in [c for c in table.columns if c == "grade" or c in vote_columns(table)]:
        name = shown.get(column, column)
        try:
            table[column] = _ranks(table[column], scale, lines, path, name)
        except DisMixError as error:
            if (name,) != tuple(annotators) or "grade" not in table:
                raise
            raise _names_people(error, name) from None
    if not ranks:
        with _own_names(shown):
            _refuse_jump(table, scale, lines, path)
    # Before the pivot too: labelling tools list waiting images without an annotator.
    table, lines, left_out = _graded(table, lines, path, shown, skip=skip_ungraded)
    if "annotator" in table:
        named = [c for c in table.columns if c not in KEYS and not c.startswith("Unnamed")]
        with _own_names(shown):
            table, lines = _pivoted(table, lines, path, scale)
        left_out += _by_vote_note([c for c in named if c not in table])
    names = tuple(ranks) or _numbered(table, scale, path, shown)
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
    with _own_names(shown):
        return make_manifest(table, meta, path.parent, path=path, lines=lines)


@contextmanager
def _own_names(shown: Mapping[str, str]) -> Iterator[None]:
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


def recognises(root: Path) -> bool:
    """Return whether the path is a file that ends like a table."""
    return root.is_file() and root.suffix.lower() in SUFFIXES


class _Columns:
    """Finds columns by name in any case."""

    def __init__(self, path: Path, names: list[str]) -> None:
        self.path, self.names = path, names
        self.by_case = {name.casefold(): name for name in reversed(names)}

    def find(self, name: str) -> str | None:
        return name if name in self.names else self.by_case.get(name.strip().casefold())

    def require(self, name: str, option: str) -> str:
        found = self.find(name)
        if found is None:
            raise DisMixError(
                f"there is no column '{name}'",
                file=self.path,
                row=1,
                cure=f"name it with {_OPTIONS[option]}; {near_names(name, self.names)}",
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
                    f"column '{found}' is both {result[found]} and an annotator", file=self.path
                )
            result[found] = VOTE_PREFIX + found.removeprefix(VOTE_PREFIX)
        return result


def _renamed(
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


def _graded(
    table: pd.DataFrame,
    lines: NDArray[np.int64],
    path: Path,
    shown: dict[str, str],
    *,
    skip: bool,
) -> tuple[pd.DataFrame, NDArray[np.int64], list[str]]:
    """Return the table and lines without ungraded images, and a note on them; raise unless skip."""
    columns = [c for c in table.columns if c == "grade" or c in vote_columns(table)]
    columns += law_columns(table)
    waiting = ungraded_rows(table.replace({"": None}), columns, long="annotator" in table)
    if not waiting.any() or not columns:
        return table, lines, []
    if waiting.all():
        raise _no_grade(path, shown.get(columns[0], columns[0]))
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
    table: pd.DataFrame, lines: NDArray[np.int64], path: Path, scale: _Scale
) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Turn votes into columns."""
    missing = [key for key in KEYS if key not in table]
    if missing:
        raise DisMixError(
            f"a table with a column of annotators needs a column '{missing[0]}'",
            file=path,
            row=1,
            cure=f"name it with {_OPTIONS[missing[0]]}",
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


def _ranks(
    cells: "pd.Series[str]", scale: _Scale, lines: NDArray[np.int64], path: Path, column: str
) -> "pd.Series[int]":
    """Return 0-based ranks, missing where not graded."""
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


def _refuse_two_meanings(cell: str, scale: _Scale, path: Path, row: int, column: str) -> None:
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


def _refuse_jump(table: pd.DataFrame, scale: _Scale, lines: NDArray[np.int64], path: Path) -> None:
    """Raise for a number that looks like a code for "not graded" and would make many ranks."""
    wide = "annotator" not in table
    columns = [c for c in table.columns if c == "grade" or (wide and c in vote_columns(table))]
    for problem in jump_problems(table[columns], scale.words):
        row = None if problem.row is None else int(lines[problem.row])
        raise DisMixError(
            problem.message, file=path, row=row, column=problem.column, cure=problem.cure
        )


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


def _numbered(
    table: pd.DataFrame, scale: _Scale, path: Path, shown: dict[str, str]
) -> tuple[str, ...]:
    """Return rank names from the numbers in use; refuse an unexplained start above 0."""
    columns = [c for c in table.columns if c == "grade" or c in vote_columns(table)]
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
        raise _no_grade(path, column)
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


def _with_point(cell: str) -> str:
    """Return a number with a comma for its decimals as one with a point, other text as it is.

    Example:
        >>> _with_point("0,25"), _with_point("1e-05"), _with_point("1,2,3")
        ('0.25', '1e-05', '1,2,3')
    """
    number = re.fullmatch(r"([+-]?[0-9]*),([0-9]+(?:[eE][+-]?[0-9]+)?)", cell)
    return f"{number[1]}.{number[2]}" if number else cell


def _no_grade(path: Path, column: str) -> DisMixError:
    return DisMixError(
        "holds no grade at all",
        file=path,
        column=column,
        cure="write a whole number where an image was graded",
    )


def _image(name: str, folder: str, suffix: str) -> str:
    path = Path(name.replace("\\", "/"))
    if suffix and not is_image(path.name):
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
