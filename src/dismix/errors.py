"""The one exception users see: a single line that names the place and the cure."""

import re
from pathlib import Path

#: How torch tells of an error in a worker: a line on the worker, and a whole traceback.
_IN_A_WORKER = re.compile(r"^Caught \w+ in (.+?)\.\n.*DisMixError: ([^\n]+)", re.DOTALL)


class DisMixError(Exception):
    """A mistake the user can repair.

    The command line prints it as one line and exits with code 2; library users can
    read its parts.

    Args:
        problem: What is wrong, in a few words, without a trailing full stop.
        file: File at fault.
        row: 1-based line in that file (the header of a CSV is line 1).
        column: Column, field or option at fault.
        cure: What to do about it.

    Example:
        >>> print(DisMixError("'x' is not a grade", file="a.csv", row=3, column="grade",
        ...                   cure="write a whole number from 0 to 4"))
        a.csv, row 3, column 'grade': 'x' is not a grade; write a whole number from 0 to 4
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        row: int | None = None,
        column: str | None = None,
        cure: str | None = None,
    ) -> None:
        if worker := _IN_A_WORKER.match(problem):
            # torch raises an error of a worker again with all of its traceback for a message.
            problem = f"{worker[2].strip()} (in {worker[1]})"
        self.problem, self.file, self.row, self.column, self.cure = problem, file, row, column, cure
        place = [str(file)] if file is not None else []
        if row is not None:
            place.append(f"row {row}")
        if column is not None:
            place.append(_named(column, in_file=file is not None or row is not None))
        text = (", ".join(place) + ": " if place else "") + problem + (f"; {cure}" if cure else "")
        super().__init__(" ".join(text.split()))


def _named(column: str, *, in_file: bool) -> str:
    """Return what to call a column: an option and a setting are not columns of anything."""
    if column.startswith("-"):
        return column
    return f"column '{column}'" if in_file else f"setting '{column}'"
