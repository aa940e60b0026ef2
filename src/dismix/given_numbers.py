"""Labels and votes as users hold them: tensors, arrays, lists, columns of pandas, with gaps."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dismix.errors import DisMixError


def given_numbers(values: Any, noun: str) -> Tensor:
    """Return what users hold numbers in as a tensor.

    Args:
        values: A tensor, an array, lists, or a column or table of pandas; gaps among them (None,
            pandas' NA) become NaN.
        noun: What they are, for messages.

    Raises:
        DisMixError: Words, rows of unequal lengths, or no numbers at all.

    Example:
        >>> given_numbers([[1, None], [2, 2]], "votes")
        tensor([[1., nan],
                [2., 2.]], dtype=torch.float64)
    """
    if isinstance(values, Tensor):
        return values
    if hasattr(values, "to_numpy"):
        # A column or a table of pandas, which need not be there.
        values = np.array(_column(values))
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        return _with_gaps(values, noun)


def _column(values: Any) -> Any:
    try:
        return values.to_numpy(na_value=float("nan"))
    except (TypeError, ValueError):
        # Categories of whole numbers have no place for NaN; other libraries no such argument.
        return np.asarray(values)


def _with_gaps(values: Any, noun: str) -> Tensor:
    """Return numbers that lie among gaps; raise for words and rows of unequal lengths."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DisMixError(
            f"{noun} have rows of unequal lengths", cure="fill gaps with None or NaN"
        ) from error
    if array.dtype.kind in "iu":
        # Reversed, or of another byte order: torch takes neither.
        return torch.from_numpy(array.astype(np.int64))
    words = [value for value in array.ravel().tolist() if isinstance(value, str | bytes)]
    if words:
        raise DisMixError(
            f"{noun} must be numbers, got {words[0]!r}",
            cure="number the ranks from 0 in their order: [ranks.index(name) for name in names]",
        )
    if array.ndim == 0:
        kind = "None" if values is None else f"of type {type(values).__name__}"
        raise DisMixError(f"{noun} are {kind}", cure="give one for each image of the batch")
    try:
        return torch.from_numpy(array.astype(np.float64))
    except (TypeError, ValueError) as error:
        raise DisMixError(
            f"{noun} must be numbers, got {type(array.flat[0]).__name__}",
            cure="give a tensor, an array or lists of numbers",
        ) from error
