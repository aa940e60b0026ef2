"""A random state of one's own for what cannot be given a generator: first weights, dropout."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Seed torch inside the block and put the random state back after it.

    Args:
        seed: Any whole number.
        device: Where the block computes.

    Example:
        >>> with seeded(3):
        ...     first = torch.rand(1)
        >>> with seeded(3):
        ...     bool(torch.rand(1) == first)
        True
    """
    device = torch.device(device)
    devices = [torch.empty(0, device=device).device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield
