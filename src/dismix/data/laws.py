"""Soft labels in a manifest: one column a rank, ``prob_0`` to ``prob_<C-1>``.

Votes say which ranks people chose; a mixed image has a law over the ranks that no vote gave. A row
has all of these columns or none of them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dismix.data.validate import Problem

LAW_PREFIX = "prob_"
#: What a probability loses at most when it is written with two decimals, as people do.
_ROUNDING = 0.005


def law_columns(table: pd.DataFrame) -> list[str]:
    """Return the columns that hold probabilities of ranks, in the order of the ranks.

    Example:
        >>> law_columns(pd.DataFrame(columns=["image", "prob_1", "prob_0", "prob_²"]))
        ['prob_0', 'prob_1']
    """
    found = [c for c in map(str, table.columns) if c.removeprefix(LAW_PREFIX).isdecimal()]
    return sorted(
        (c for c in found if c.startswith(LAW_PREFIX)), key=lambda c: int(c[len(LAW_PREFIX) :])
    )


def read_laws(table: pd.DataFrame, num_ranks: int) -> NDArray[np.float64]:
    """Return the laws (N, C) of a checked table, NaN in rows without one.

    They sum to one, which rounded decimals may fail to do by a little.

    Example:
        >>> read_laws(pd.DataFrame({f"prob_{rank}": ["0.33"] for rank in range(3)}), 3).sum()
        np.float64(1.0)
    """
    columns = law_columns(table)
    if not columns:
        return np.full((len(table), num_ranks), np.nan)
    laws = _as_written(table, columns)
    with np.errstate(invalid="ignore"):
        laws /= laws.sum(axis=1, keepdims=True)
    return laws


def _as_written(table: pd.DataFrame, columns: list[str]) -> NDArray[np.float64]:
    return np.array(table[columns].apply(pd.to_numeric, errors="coerce"), dtype=np.float64)


def _fewest_ranks(table: pd.DataFrame, columns: list[str]) -> int:
    """Return how many ranks there must be: as many as laws have, and grades and votes need."""
    graded = [c for c in table if c == "grade" or str(c).startswith("annotator_")]
    tops = [pd.to_numeric(table[c], errors="coerce").max() for c in graded]
    return max(
        [len(columns), *(int(top) + 1 for top in tops if pd.notna(top) and np.isfinite(top))]
    )


def law_problems(table: pd.DataFrame, num_ranks: int | None) -> Iterator["Problem"]:
    """Yield every problem of the probability columns.

    Args:
        table: As `dismix.data.validate.normalise` returns it.
        num_ranks: C where it is known.
    """
    from dismix.data.validate import Problem

    columns = law_columns(table)
    if not columns:
        return
    wanted = [f"{LAW_PREFIX}{rank}" for rank in range(num_ranks or _fewest_ranks(table, columns))]
    if columns != wanted:
        missing = sorted({*wanted} ^ {*columns})
        yield Problem(
            "bad-law-columns", f"probabilities of {len(wanted)} ranks have no or too many columns",
            f"give {wanted[0]} to {wanted[-1]}, one a rank", None, missing[0],
        )  # fmt: skip
        return
    laws = _as_written(table, columns)
    most = _ROUNDING * len(columns) + 1e-9
    given = table[columns].notna().to_numpy()
    for row in np.flatnonzero(given.any(1)):
        column = next((c for c, x in zip(columns, laws[row], strict=True) if not 0 <= x <= 1), None)
        if column is not None:
            yield Problem(
                "not-a-probability", f"'{table[column].iloc[row]}' is not a probability",
                "write a number from 0 to 1 in all or in none of the prob columns",
                int(row), column,
            )  # fmt: skip
        elif abs(laws[row].sum() - 1) > most:
            yield Problem(
                "law-not-one", f"probabilities sum to {laws[row].sum():g}",
                "they must sum to 1", int(row), columns[0],
            )  # fmt: skip
