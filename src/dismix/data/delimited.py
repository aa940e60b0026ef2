"""Tables as people export them: comma, semicolon or tab, byte-order mark, Excel's ``sep=``."""

import csv
import io
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dismix.data.encodings import decode_text
from dismix.errors import DisMixError

DELIMITERS = ",;\t"
SUFFIXES = (".csv", ".tsv", ".txt", ".parquet")


def with_point(cell: str) -> str:
    """Return a number with a comma for its decimals as one with a point, other text as it is.

    Example:
        >>> with_point("0,25"), with_point("1e-05"), with_point("1,2,3")
        ('0.25', '1e-05', '1,2,3')
    """
    number = re.fullmatch(r"([+-]?[0-9]*),([0-9]+(?:[eE][+-]?[0-9]+)?)", cell)
    return f"{number[1]}.{number[2]}" if number else cell


def sniff_delimiter(header: str) -> str:
    r"""Return the delimiter that occurs most often in a header line, outside quotes.

    Example:
        >>> sniff_delimiter('"grade, by one";image\n')
        ';'
    """
    outside = "".join(header.split('"')[::2])
    return max(DELIMITERS, key=outside.count)


def read_delimited(path: Path) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Read a table as text.

    Args:
        path: CSV, TSV or text table in UTF-8, or a Parquet file.

    Returns:
        The table, every cell stripped text and empty cells "", without blank lines and
        nameless empty columns; and the 1-based line (N,) on which each row ends.

    Raises:
        DisMixError: Not a file, not UTF-8, ragged, or without rows.
    """
    if path.is_dir():
        raise DisMixError("is a folder, not a table", file=path, cure="name the CSV file in it")
    table, lines = read_table(path)
    if not len(table):
        raise DisMixError("has no rows", file=path, cure="it needs a header and a row an image")
    if path.suffix.lower() == ".parquet":
        table = table.astype(object).where(table.notna(), "").astype(str)
    return table, lines


def read_table(path: Path) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Read a table, text as :func:`read_delimited` does, Parquet with its own types.

    Returns:
        The table, possibly without rows, and the 1-based line (N,) on which each row ends.
    """
    if path.suffix.lower() != ".parquet":
        return _read_text(path)
    require_pyarrow(path)
    try:
        table = pd.read_parquet(path)
    except (ValueError, OSError) as error:
        raise DisMixError(
            "is no Parquet file that can be read", file=path, cure="export it again, or use CSV"
        ) from error
    return table, np.arange(len(table), dtype=np.int64) + 2


def _read_text(path: Path) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    text = _decoded(path)
    # Excel may put the delimiter on a line of its own before the names of the columns.
    told = re.match(r"sep=(.)\n", text)
    text = text[told.end() :] if told else text
    before = 1 if told else 0
    start = text.partition("\n")[0]
    if not start.strip():
        raise DisMixError("is empty", file=path, row=1, cure="the first line names the columns")
    delimiter = told[1] if told else sniff_delimiter(start)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True, strict=True)
    rows, lines = [], []
    try:
        header = [cell.strip() for cell in next(reader)]
        for cells in reader:
            cells = [cell.strip() for cell in cells]
            if any(cells):
                _refuse_ragged(cells, header, path, before + reader.line_num)
                rows.append((cells + [""] * len(header))[: len(header)])
                lines.append(before + reader.line_num)
    except csv.Error as error:
        raise DisMixError(
            f"is no regular table ({error})",
            file=path,
            row=before + reader.line_num,
            cure="check the quotes",
        ) from error
    used = [i for i, name in enumerate(header) if name or any(row[i] for row in rows)]
    _refuse_bad_names([header[i] for i in used], path)
    table = pd.DataFrame(
        [[row[i] for i in used] for row in rows], columns=[header[i] for i in used]
    )
    return table, np.array(lines, dtype=np.int64)


def _decoded(path: Path) -> str:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DisMixError("no such file", file=path, cure="correct the path") from None
    except OSError as error:
        raise DisMixError(f"cannot be read ({error.strerror})", file=path) from error
    return decode_text(content, path)


def _refuse_ragged(cells: list[str], header: list[str], path: Path, line: int) -> None:
    if any(cells[len(header) :]):
        raise DisMixError(
            f"has {len(cells)} cells under {len(header)} column names",
            file=path,
            row=line,
            cure="quote cells that contain the delimiter, or name every column",
        )


def _refuse_bad_names(names: list[str], path: Path) -> None:
    if names.count("") > 1:
        raise DisMixError(
            f"{names.count('')} columns have cells but no name",
            file=path,
            row=1,
            cure="begin with the line that names the columns: no title above it",
        )
    for place, name in enumerate(names):
        if name in names[:place]:
            raise DisMixError(
                "two columns have this name", file=path, row=1, column=name, cure="rename one"
            )


def require_pyarrow(path: Path) -> None:
    """Raise where Parquet files cannot be read or written."""
    if find_spec("pyarrow") is None:
        raise DisMixError(
            "Parquet needs pyarrow",
            file=path,
            cure="pip install 'dismix[parquet]', or use CSV",
        )
