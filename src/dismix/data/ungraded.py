"""Rows that nobody graded: exports list every image, also those that nobody has come to yet."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

#: Columns, and images that were left out, which a message spells out.
NAMED = 5


def ungraded_rows(table: pd.DataFrame, columns: Sequence[str], *, long: bool) -> NDArray[np.bool_]:
    """Return the rows to leave out.

    Args:
        table: N rows with a column ``image``; cells without a grade are missing.
        columns: Columns that hold grades, votes or probabilities.
        long: A row is a vote: a gap is left out only where nobody graded its image.

    Returns:
        (N,) True where all columns are empty.

    Example:
        >>> table = pd.DataFrame({"image": ["a", "a", "b"], "grade": [None, 2, None]})
        >>> ungraded_rows(table, ["grade"], long=True).tolist()
        [False, False, True]
    """
    graded = table[list(columns)].notna().any(axis=1)
    if long:
        graded = graded.groupby(table["image"], sort=False).transform("any")
    return ~graded.to_numpy(np.bool_)


def ungraded_cure(columns: Sequence[str]) -> str:
    """Return what to do about a row without a grade, naming the columns that could hold one.

    Example:
        >>> ungraded_cure(["ann", "bob"]).partition(" leave")[0]
        "fill one of the columns 'ann', 'bob', or"
    """
    names = _listed([f"'{name}'" for name in columns])
    what = f"one of the columns {names}" if len(columns) > 1 else f"column {names}"
    return f"fill {what}, or leave such rows out: `dismix data import ... --skip-ungraded`"


def left_out_note(
    images: Sequence[str], lines: Sequence[int] | None, why: str = "that nobody graded"
) -> str:
    """Return the words for images that were left out: how many, and the first of them.

    Args:
        images: Their names.
        lines: The row of each; None where no table lists them.
        why: What they have in common.

    Example:
        >>> left_out_note(["a.png", "b.png"], [4, 9])
        'left out 2 images that nobody graded: a.png (row 4), b.png (row 9)'
    """
    several = "" if len(images) == 1 else "s"
    places = list(images)
    if lines is not None:
        places = [f"{image} (row {line})" for image, line in zip(images, lines, strict=True)]
    return f"left out {len(images)} image{several} {why}: {_listed(places)}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
