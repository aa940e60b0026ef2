"""Choose whole groups so that every rank gives about the same share of its images.

With one image a group this is plain stratified sampling and exact. With patients of several
images, of different ranks, it is a small packing problem: a random first choice, then the best
exchange of one group for another, repeated while it helps.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

# An exchange must gain more than rounding noise, or the search could go round in a circle.
_GAIN = 1e-9
# A rank absent from one side outweighs any inequality of the shares.
_ABSENT = 1e9
_CHUNK = 256
# Few and large groups have poor local optima; a start costs milliseconds.
_STARTS = 8


def apportion(counts: Counts, share: float, holders: Counts) -> Counts:
    """Return how many images of each rank to choose.

    Largest remainders, so that the total is ``share`` of all images, rounded; then each rank
    held by two groups or more keeps at least one image on either side, and a rank held by a
    single group gives none.

    Args:
        counts: (C,) images of each rank.
        share: Within (0, 1).
        holders: (C,) groups with an image of each rank.

    Example:
        IDRiD's training grades:

        >>> counts = np.array([134, 20, 136, 74, 49])
        >>> apportion(counts, 0.15, counts)
        array([20,  3, 21, 11,  7])
    """
    quota = share * counts
    target = np.floor(quota).astype(np.int64)
    missing = int(np.floor(quota.sum() + 0.5)) - int(target.sum())
    target[np.argsort(target - quota, kind="stable")[:missing]] += 1
    return np.where(holders >= 2, np.clip(target, 1, np.maximum(counts - 1, 1)), 0)


@dataclass(frozen=True)
class _Goal:
    """What a choice of groups should hold.

    Attributes:
        target: (C,) images of each rank to choose.
        totals: (C,) images of each rank.
        shared: (C,) True for ranks that two groups or more hold.
    """

    target: Counts
    totals: Counts
    shared: NDArray[np.bool_]

    def unequal(self, held: Counts) -> NDArray[np.float64]:
        """Chi-square distance of counts (..., C) from the target."""
        distance: NDArray[np.float64] = (
            (held - self.target) ** 2 / np.maximum(self.target, 1)
        ).sum(axis=-1)
        return distance

    def cost(self, held: Counts) -> NDArray[np.float64]:
        """The same, and a large price for a rank absent from one side."""
        absent = ((held == 0) | (held == self.totals)) & self.shared
        cost: NDArray[np.float64] = self.unequal(held) + _ABSENT * absent.sum(axis=-1)
        return cost


def choose_groups(groups: Counts, share: float) -> NDArray[np.bool_]:
    """Choose groups that hold about ``share`` of the images of every rank.

    Groups with a rank that no other group holds are never chosen.

    Args:
        groups: (G, C) images of each rank in each group, in random order: earlier groups are
            preferred among equals.
        share: Within (0, 1).

    Returns:
        (G,) True for the chosen groups.

    Example:
        >>> singles = np.eye(2, dtype=int)[[0, 0, 0, 0, 1, 1]]
        >>> choose_groups(singles, 0.5).astype(int)
        array([1, 1, 0, 0, 1, 0])
    """
    totals, holders = groups.sum(axis=0), (groups > 0).sum(axis=0)
    goal = _Goal(apportion(totals, share, holders), totals, holders >= 2)
    free = ~((groups > 0) & (holders == 1)).any(axis=1)
    best, best_cost = np.zeros(len(groups), dtype=bool), np.inf
    for start in range(_STARTS):
        # Each start walks the same random order from another place.
        order = np.roll(np.arange(len(groups)), -(start * len(groups)) // _STARTS)
        chosen = np.zeros(len(groups), dtype=bool)
        chosen[order] = _exchange(
            groups[order], _first_choice(groups[order], free[order], goal), free[order], goal
        )
        cost = float(goal.cost(groups[chosen].sum(axis=0)))
        if cost < best_cost - _GAIN:
            best, best_cost = chosen, cost
        if best_cost < _GAIN:
            break
    return best


def _first_choice(groups: Counts, free: NDArray[np.bool_], goal: _Goal) -> NDArray[np.bool_]:
    """Walk through the groups and take each that brings the counts nearer to the target."""
    chosen = np.zeros(len(groups), dtype=bool)
    held = np.zeros_like(goal.totals)
    for g in np.flatnonzero(free):
        # Presence has no price yet: it would let the first group in, however large.
        if goal.unequal(held + groups[g]) < goal.unequal(held):
            chosen[g] = True
            held = held + groups[g]
    return chosen


def _exchange(
    groups: Counts, chosen: NDArray[np.bool_], free: NDArray[np.bool_], goal: _Goal
) -> NDArray[np.bool_]:
    """Add, remove or swap single groups, the best one first, while that helps."""
    # Groups of equal make-up are interchangeable: search over kinds, not over groups.
    kinds, kind = np.unique(groups, axis=0, return_inverse=True)
    kind = kind.reshape(-1)
    nothing = np.zeros((1, groups.shape[1]), dtype=np.int64)
    chosen = chosen.copy()
    while True:
        held = groups[chosen].sum(axis=0)
        current = goal.cost(held)
        if current < _GAIN:
            return chosen
        outside, inside = np.unique(kind[free & ~chosen]), np.unique(kind[chosen])
        add = np.concatenate([nothing, kinds[outside]])
        remove = np.concatenate([nothing, kinds[inside]])
        best, i, j = _best_move(held, add, remove, goal)
        if best >= current - _GAIN:
            return chosen
        if i:
            chosen[np.flatnonzero(free & ~chosen & (kind == outside[i - 1]))[0]] = True
        if j:
            chosen[np.flatnonzero(chosen & (kind == inside[j - 1]))[-1]] = False


def _best_move(held: Counts, add: Counts, remove: Counts, goal: _Goal) -> tuple[float, int, int]:
    """Return the lowest cost and which rows of ``add`` and ``remove`` reach it."""
    best = (np.inf, 0, 0)
    for start in range(0, len(add), _CHUNK):
        costs = goal.cost(held + add[start : start + _CHUNK, None] - remove)
        i, j = np.unravel_index(int(np.argmin(costs)), costs.shape)
        best = min(best, (float(costs[i, j]), start + int(i), int(j)))
    return best
