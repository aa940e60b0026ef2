"""Batches of a few sizes only: a GPU plans each new shape anew, which can take seconds.

How many images of a batch are mixed, and by which policy, changes with every step. cuDNN makes a
plan for each new shape, and torch.compile gives up after a few.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

SIZES = (8, 16, 32, 64)


class Rows(Protocol):
    """A tensor, or anything else that can be picked from by rows."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Tensor, /) -> Self: ...


B = TypeVar("B", bound=Rows)


def in_fixed_sizes(
    run: Callable[[B], Sequence[Tensor]], batch: B, device: torch.device
) -> tuple[Tensor, ...]:
    """Run a batch in parts whose sizes are those of `SIZES`; the last row fills up.

    Args:
        run: Maps n rows to tensors of n rows each; one row must not see another.
        batch: What to run.
        device: Where the batch lies.

    Example:
        >>> seen = []
        >>> def double(x):
        ...     seen.append(len(x))
        ...     return [2 * x]
        >>> in_fixed_sizes(double, torch.arange(67), torch.device("cpu"))[0][-1], seen
        (tensor(132), [64, 8])
    """
    parts = []
    for start in range(0, len(batch), SIZES[-1]):
        count = min(SIZES[-1], len(batch) - start)
        size = next(size for size in SIZES if size >= count)
        index = start + torch.arange(size, device=device).clamp(max=count - 1)
        parts.append([tensor[:count] for tensor in run(batch[index])])
    return tuple(torch.cat(tensors) for tensors in zip(*parts, strict=True))
