"""Co-Mixup's labelling: which source fills which block of which output.

All partitions are solved at once; the outputs of a partition one after another, because each
looks at how often the others use a source. Small grids of whole numbers: numpy on the CPU is
quicker than a thousand launches on a GPU, and gives the same mixes on every device.

An output's cell holds two sources, the same one twice or two halves. Objective of a
partition, over outputs o with N_o the cells that each source fills in o:

    sum_o [ sum_cells cost + beta sum_edges dist ] + gamma sum_{o != o'} N_o' A N_o'
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dismix.errors import DisMixError
from dismix.registry import near_names

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
TauType = Literal["hard", "soft", "none"]

# A half of both is this much cheaper than the mean of whole ones (the authors' value).
_HALF_BONUS = 5e-4
# Halves offered beside the whole sources.
_EXTRA = 3
# Cost of what must not be chosen; finite, so that 0 times it stays 0.
_NEVER = 1e6


@dataclass(frozen=True)
class CoMixWeights:
    """Weights of the objective, with the authors' defaults.

    Attributes:
        beta: Of equal sources on neighbouring blocks.
        gamma: Against using a source again in another output.
        tau: Share of an image that a source may fill in others before that counts.
        tau_type: "hard" and "soft" thresholds, or "none" (then each step descends).
        eta: Of the drawn shares of the sources.
        omega: Of the distance of what matters in two sources.
        niter: Sweeps over the outputs.
        resolve: Whether outputs of the same sources are driven apart before the last sweep.
        sweeps: Of even and odd blocks within one output's labelling.
    """

    beta: float = 0.32
    gamma: float = 1.0
    tau: float = 0.83
    tau_type: TauType = "hard"
    eta: float = 0.05
    omega: float = 0.001
    niter: int = 4
    resolve: bool = True
    sweeps: int = 3

    def __post_init__(self) -> None:
        if self.tau_type not in get_args(TauType):
            raise DisMixError(
                f"unknown tau_type '{self.tau_type}'",
                cure=near_names(str(self.tau_type), [*get_args(TauType)]),
            )
        if self.niter < 1 or self.sweeps < 1:
            raise DisMixError(
                f"niter is {self.niter} and sweeps {self.sweeps}", cure="give 1 or more"
            )


@dataclass(frozen=True)
class CoMixProblem:
    """P partitions of m sources and m outputs on n x n blocks.

    Attributes:
        cost: (P, m, N) of each source in each cell; sources that only fill up cost much.
        compat: (P, m, m) symmetric, A.
        real: (P, m) bool, False for fillers.
        side: n.
        weights: Of the objective.
    """

    cost: Floats
    compat: Floats
    real: NDArray[np.bool_]
    side: int
    weights: CoMixWeights

    def adjacency(self) -> Floats:
        """Return (N, N), 1 for neighbouring cells."""
        place = np.arange(self.side**2)
        y, x = place // self.side, place % self.side
        gap: Ints = abs(y[:, None] - y) + abs(x[:, None] - x)
        beside: Floats = (gap == 1).astype(np.float64)
        return beside


def used(cells: Ints, count: int) -> Floats:
    """Return how many cells (..., m) each source fills in cells (..., N, 2) of two sources."""
    hot = cells[..., None] == np.arange(count)
    filled: Floats = hot.sum((-3, -2)) / 2
    return filled


def distance(first: Ints, second: Ints) -> Floats:
    """Return 0 for equal pairs (..., 2) of sources, 1/4 if they share one, else 1.

    Example:
        >>> distance(np.array([[0, 0], [0, 0], [0, 0]]), np.array([[0, 0], [0, 1], [1, 2]]))
        array([0.  , 0.25, 1.  ])
    """
    a, b = first[..., 0], first[..., 1]
    c, d = second[..., 0], second[..., 1]
    ac, ad, bc, bd = a == c, a == d, b == c, b == d
    unlike = ~(ac & bd | ad & bc)
    apart: Floats = np.where(unlike, np.where(ac | ad | bc | bd, 0.25, 1.0), 0.0)
    return apart


class CoMixSolver:
    """Block-coordinate descent over the outputs.

    Args:
        problem: What to solve.
        start: (P, m, N) first sources.
    """

    def __init__(self, problem: CoMixProblem, start: Ints) -> None:
        self.problem = problem
        self.cells = np.repeat(start[..., None], 2, axis=-1)
        parts, self.sources, self.places = problem.cost.shape
        self.filled = used(self.cells, self.sources) * problem.real[:, :, None]
        self.discouraged = np.zeros((parts, self.sources, self.sources))
        weights, size = problem.weights, self.places
        self.beta, self.gamma = weights.beta / size, weights.gamma / size
        self.tau = weights.tau * size
        self._adjacent = problem.adjacency()
        self._even = (np.arange(size) // problem.side + np.arange(size) % problem.side) % 2 == 0
        self._parts = np.arange(parts)[:, None]
        self._cells = np.arange(size)
        self._potts = self.beta * (1.0 - np.eye(self.sources))
        # An output whose costs are what they were when it was last solved stays as it is.
        self._solved: dict[int, tuple[Floats, Ints | None]] = {}

    def run(self) -> Ints:
        """Return the sources (P, m, N, 2) of every cell of every output."""
        last = self.problem.weights.niter - 1
        sweep = 0
        while sweep <= last:
            changed = self.sweep(halves=sweep > 0)
            if not changed and sweep < last:
                sweep = max(sweep, last - 1)
            if sweep == last - 1 and self.problem.weights.resolve:
                self.discouraged = same_sets(self.filled, self.problem.real)
            sweep += 1
        return self.cells

    def sweep(self, halves: bool) -> bool:
        """Improve every output once; return whether anything changed."""
        changed = [self.improve(output, halves) for output in range(self.sources)]
        return any(changed)

    def improve(self, output: int, halves: bool) -> bool:
        """Give one output of each partition a labelling that costs less, if one is found."""
        penalty = self.penalty(output)
        table = self.halves_on_offer(output) if halves else None
        if self._seen(output, penalty, table):
            return False
        unary, now = self.problem.cost + penalty[:, :, None], self.cells[:, output]
        costs, spread = unary, self._potts
        if table is not None:
            costs = label_costs(unary, table)
            spread = self.beta * label_distances(table, self.sources)
        start, exact = nearest_labels(now, table, costs)
        found, before, after = self.settle(costs, spread, start)
        if not exact:
            before = self.cost_of(unary, now)
        better = (after < before - 1e-12) & self.problem.real[:, output]
        if not better.any():
            return False
        fresh = cells_of(found, table, self.sources)
        self.cells[:, output] = np.where(better[:, None, None], fresh, now)
        filled = used(self.cells[:, output], self.sources)
        self.filled[:, output] = filled * self.problem.real[:, output, None]
        return True

    def _seen(self, output: int, penalty: Floats, table: Ints | None) -> bool:
        known = self._solved.get(output)
        self._solved[output] = (penalty, table)
        if known is None or not np.array_equal(known[0], penalty):
            return False
        if table is None or known[1] is None:
            return table is known[1]
        return np.array_equal(known[1], table)

    def penalty(self, output: int) -> Floats:
        """Return what each source costs more (P, m) since other outputs use it."""
        others = self.filled.sum(1) - self.filled[:, output]
        load: Floats = (self.problem.compat @ others[:, :, None])[:, :, 0]
        kind = self.problem.weights.tau_type
        if kind == "hard":
            load = load * (load > self.tau)
        elif kind == "soft":
            load = np.maximum(load - self.tau, 0.0)
        paid: Floats = 2 * self.gamma * load + self.gamma * self.discouraged[:, output]
        return paid

    def halves_on_offer(self, output: int) -> Ints:
        """Return pairs (P, 3, 2) among the three most used sources, -1 for none."""
        filled = self.filled[:, output]
        top = np.argsort(-filled, axis=1, kind="stable")[:, :3]
        there = filled[self._parts, top] > 0
        if self.sources < 3:
            room = ((0, 0), (0, 3 - self.sources))
            top, there = np.pad(top, room), np.pad(there, room)
        # A single source, or a third one that is not used, makes no pair.
        offered = there[:, [1, 2, 2]]
        table: Ints = np.where(offered[..., None], top[:, [[0, 1], [0, 2], [1, 2]]], -1)
        return table

    def settle(self, costs: Floats, spread: Floats, labels: Ints) -> tuple[Ints, Floats, Floats]:
        """Let even, then odd cells take their cheapest label, until they stay.

        Returns:
            Labels (P, N), and the costs (P,) before and after.
        """
        count = np.arange(costs.shape[1])[:, None]

        def field(labels: Ints) -> tuple[Floats, Floats]:
            beside = costs + spread @ ((labels[:, None] == count) @ self._adjacent)
            at = (self._parts, labels, self._cells)
            # Every edge is seen from both its ends.
            return beside, (costs[at] + beside[at]).sum(1) / 2

        beside, before = field(labels)
        after, quiet = before, 0
        for turn in range(2 * self.problem.weights.sweeps):
            fresh = np.where(self._even == (turn % 2 == 0), beside.argmin(1), labels)
            if np.array_equal(fresh, labels):
                quiet += 1
                if quiet == 2:
                    break
                continue
            labels, quiet = fresh, 0
            beside, after = field(labels)
        return labels, before, after

    def cost_of(self, unary: Floats, cells: Ints) -> Floats:
        """Return the cost (P,) of one output's cells (P, N, 2)."""
        each = unary[self._parts[:, :, None], cells, self._cells[:, None]].mean(2)
        each = each - _HALF_BONUS * (cells[..., 0] != cells[..., 1])
        grid = cells.reshape(len(cells), self.problem.side, self.problem.side, 2)
        border = distance(grid[:, 1:], grid[:, :-1]).sum((1, 2))
        border += distance(grid[:, :, 1:], grid[:, :, :-1]).sum((1, 2))
        total: Floats = each.sum(1) + self.beta * border
        return total

    def objective(self) -> Floats:
        """Return the objective (P,) without thresholds."""
        alone = [
            self.cost_of(self.problem.cost, self.cells[:, o]) * self.problem.real[:, o]
            for o in range(self.sources)
        ]
        total = self.filled.sum(1)
        cross = np.einsum("pi,pij,pj->p", total, self.problem.compat, total)
        own = np.einsum("poi,pij,poj->p", self.filled, self.problem.compat, self.filled)
        value: Floats = np.sum(alone, 0) + self.gamma * (cross - own)
        return value


def label_costs(unary: Floats, table: Ints) -> Floats:
    """Return the cost (P, L, N) of whole sources and of the halves in a table."""
    parts, sources, places = unary.shape
    costs = np.empty((parts, sources + _EXTRA, places))
    costs[:, :sources] = unary
    row = np.arange(parts)[:, None]
    mean = (unary[row, table[:, :, 0]] + unary[row, table[:, :, 1]]) / 2 - _HALF_BONUS
    costs[:, sources:] = np.where(table[:, :, :1] >= 0, mean, _NEVER)
    return costs


def label_distances(table: Ints, sources: int) -> Floats:
    """Return the distances (P, L, L) of all whole sources, then of the halves in a table.

    The halves on offer are pairs of three sources: any two of them share one. What is not on
    offer gets distances that have no effect.
    """
    apart = np.ones((len(table), sources + _EXTRA, sources + _EXTRA))
    apart[:, sources:, sources:] = 0.25
    row, slot = np.arange(len(table))[:, None], sources + np.arange(_EXTRA)
    for parent in (table[:, :, 0], table[:, :, 1]):
        apart[row, slot, parent] = 0.25
        apart[row, parent, slot] = 0.25
    every = np.arange(sources + _EXTRA)
    apart[:, every, every] = 0.0
    return apart


def nearest_labels(cells: Ints, table: Ints | None, costs: Floats) -> tuple[Ints, bool]:
    """Return labels (P, N) for cells (P, N, 2), and whether all of them are on offer.

    A half that is not on offer becomes the cheapest label of its cell.
    """
    first, second = cells[..., 0], cells[..., 1]
    whole = first == second
    if whole.all():
        return first, True
    labels: Ints = np.where(whole, first, -1)
    if table is not None:
        low, high = np.sort(cells, -1)[:, None].transpose(3, 0, 1, 2)
        pair = np.sort(table, -1)[:, :, None]
        match = (low == pair[..., 0]) & (high == pair[..., 1])
        slot = costs.shape[1] - _EXTRA + match.argmax(1)
        labels = np.where(~whole & match.any(1), slot, labels)
    exact = bool((labels >= 0).all())
    return (labels, True) if exact else (np.where(labels < 0, costs.argmin(1), labels), False)


def cells_of(labels: Ints, table: Ints | None, sources: int) -> Ints:
    """Return the two sources (P, N, 2) that labels (P, N) stand for."""
    if table is None:
        return np.repeat(labels[..., None], 2, axis=-1)
    slot = np.maximum(labels - sources, 0)
    halves = np.take_along_axis(table, slot[..., None], 1)
    cells: Ints = np.where((labels < sources)[..., None], labels[..., None], halves)
    return cells


def same_sets(filled: Floats, real: NDArray[np.bool_]) -> Floats:
    """Return 1 (P, output, source) where a source should be avoided.

    Of two outputs made of the same sources, more than one, the former avoids the first of
    them and the latter the second.

    Example:
        >>> filled = np.array([[[8.0, 8.0, 0.0], [4.0, 12.0, 0.0], [0.0, 0.0, 16.0]]])
        >>> same_sets(filled, np.ones((1, 3), bool))[0].astype(int).tolist()
        [[1, 0, 0], [0, 1, 0], [0, 0, 0]]
    """
    avoid = np.zeros_like(filled)
    sets = filled > 0
    for part in range(len(filled)):
        seen: dict[bytes, int] = {}
        for output in np.flatnonzero(real[part]):
            chosen = np.flatnonzero(sets[part, output])
            if len(chosen) < 2:
                continue
            first = seen.setdefault(chosen.tobytes(), int(output))
            if first != output:
                avoid[part, first, chosen[0]] = 1
                avoid[part, output, chosen[1]] = 1
    return avoid
