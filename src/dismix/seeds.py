"""One seed of several whole numbers: what a step, a block or an epoch draws is its own."""

import numpy as np
import torch


def seed_of(*numbers: int) -> int:
    """Return the one seed that some whole numbers make, such as (seed, epoch, step).

    Example:
        >>> seed_of(0, 1) == seed_of(0, 1), seed_of(0, 1) == seed_of(1, 0)
        (True, False)
    """
    state = np.random.SeedSequence([n & (2**64 - 1) for n in numbers]).generate_state(1, np.uint64)
    # torch takes signed numbers.
    return int(state[0]) >> 1


def rng_of(*numbers: int) -> torch.Generator:
    """Return a stream that belongs to these numbers, on the CPU: there it is the same everywhere.

    Example:
        >>> first, again, other = (rng_of(*n).initial_seed() for n in ((0, 1), (0, 1), (1, 0)))
        >>> first == again, first == other
        (True, False)
    """
    return torch.Generator().manual_seed(seed_of(*numbers))
