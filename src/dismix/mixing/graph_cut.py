"""The exact minimum of a grid energy, as one minimum cut.

A label l of L is L-1 yes/no variables a_k = [l >= k]. The quadratic penalty is then a sum of
absolute differences and of unary terms:

    (l - l')^2 = sum_ij |a_i - b_j| + sum_k (2k - 1 - K)(a_k + b_k),        K = L - 1

and an edge without limit forbids a_(k+1) without a_k. The authors of PuzzleMix call a library
that may be used for research only and finds the minimum only nearly; this is exact, and all
images of a batch are one graph for scipy.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dismix.mixing.grid_energy import GridEnergy

_FORBIDDEN = 2**29
# Capacities are whole numbers of 32 bits; the largest is scaled to this.
_SCALE = 2**26

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def _pairs(numbers: Ints) -> tuple[Ints, Ints]:
    """Return both ends of all edges of grids (B, h, w) of cell numbers."""
    first = [numbers[:, :-1].ravel(), numbers[:, :, :-1].ravel()]
    second = [numbers[:, 1:].ravel(), numbers[:, :, 1:].ravel()]
    return np.concatenate(first), np.concatenate(second)


def _arcs(grid: GridEnergy) -> tuple[Ints, Ints, Floats]:
    """Return tails, heads and capacities of the cut's graph, all images in one.

    Node 0 is the source and node 1 the sink; a variable on the sink's side is 1.
    """
    unary = grid.unary.detach().double().cpu().numpy()
    batch, labels, height, width = unary.shape
    count, cells = labels - 1, height * width
    number = np.arange(batch * cells).reshape(batch, height, width)
    first, second = _pairs(number)
    weight = np.concatenate(
        [x.detach().double().cpu().numpy().ravel() for x in (grid.down, grid.right)]
    )
    degree = grid.degree().detach().double().cpu().numpy()
    tails, heads, capacity = [], [], []

    def add(tail: Any, head: Any, value: Any) -> None:
        tails.append(np.broadcast_to(tail, np.shape(value)).ravel())
        heads.append(np.broadcast_to(head, np.shape(value)).ravel())
        capacity.append(np.ravel(value))

    for k in range(1, count + 1):
        node = 2 + (k - 1) * batch * cells + number
        term = unary[:, k] - unary[:, k - 1] + (2 * k - 1 - count) * degree / count**2
        # Paid when the variable is 1: an arc from the source is cut on the sink's side.
        add(0, node, np.maximum(term, 0))
        add(node, 1, np.maximum(-term, 0))
        if k > 1:
            # 1 for a_k with 0 for a_(k-1) means that the arc below is cut.
            add(node - batch * cells, node, np.full(node.shape, np.inf))
        for j in range(1, count + 1):
            ends = 2 + (k - 1) * batch * cells + first, 2 + (j - 1) * batch * cells + second
            add(ends[0], ends[1], weight / count**2)
            add(ends[1], ends[0], weight / count**2)
    return np.concatenate(tails), np.concatenate(heads), np.concatenate(capacity)


def solve_exactly(grid: GridEnergy) -> Tensor:
    """Return labellings (B, h, w) of least energy.

    Example:
        >>> unary = torch.tensor([[0.0, 5.0], [1.0, 1.0], [5.0, 0.0]]).view(1, 3, 1, 2)
        >>> grid = GridEnergy(unary, torch.zeros(1, 0, 2), torch.full((1, 1, 1), 8.0))
        >>> solve_exactly(grid)
        tensor([[[1, 1]]])
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    batch, labels, height, width = grid.unary.shape
    tails, heads, capacity = _arcs(grid)
    limited = np.isfinite(capacity)
    largest = max(float(capacity[limited].max(initial=0.0)), 1e-30)
    whole = np.full(len(capacity), _FORBIDDEN, dtype=np.int64)
    whole[limited] = np.rint(capacity[limited] / largest * _SCALE)
    used = whole > 0
    nodes = 2 + (labels - 1) * batch * height * width
    graph = csr_matrix(
        (whole[used].astype(np.int32), (tails[used], heads[used])), shape=(nodes, nodes)
    )
    flow = maximum_flow(graph, 0, 1).flow
    residual = graph - flow
    residual.data = np.maximum(residual.data, 0)
    residual.eliminate_zeros()
    reached = np.zeros(nodes, dtype=bool)
    reached[breadth_first_order(residual, 0, return_predecessors=False)] = True
    ones = ~reached[2:].reshape(labels - 1, batch, height, width)
    return torch.from_numpy(ones.sum(0)).to(grid.unary.device)
