"""Nearly the minimum of a grid energy, for whole batches on a GPU without waiting for it.

Min-sum belief propagation, then sweeps in which even and odd cells in turn take their best
label given their neighbours. The best of three candidates is kept: that, the sweeps from the
best labels of single cells, and the best single label for all cells.

Each step handles all four directions at once: on a GPU these small grids cost launches, not
arithmetic.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dismix.mixing.grid_energy import DOWN, LEFT, RIGHT, UP, GridEnergy


@dataclass(frozen=True)
class FlatGrid:
    """B labelling problems on grids of N cells, laid out for batched steps.

    Attributes:
        unary: (B, L, N).
        edges: (B, 4, N) weights towards the four neighbours, 0 beyond the border.
        penalty: (B, L, L) or (1, L, L), symmetric cost of two labels on an edge.
        near: (4, N) the neighbours' numbers; what wraps round has weight 0.
        even: (N,) bool, the cells of one colour of the chess board.
    """

    unary: Tensor
    edges: Tensor
    penalty: Tensor
    near: Tensor
    even: Tensor

    @classmethod
    def of(cls, grid: GridEnergy) -> "FlatGrid":
        """Lay out a grid energy."""
        height, width = grid.unary.shape[-2:]
        near, even = board(height, width, grid.unary.device)
        return cls(
            grid.unary.flatten(2), grid.edges().flatten(2), grid.penalty().unsqueeze(0), near, even
        )

    def value(self, labels: Tensor) -> Tensor:
        """Return the energies (B,) of labellings (B, N)."""
        chosen = self.unary.gather(1, labels.unsqueeze(1)).squeeze(1)
        given = self.neighbour_cost(labels).gather(1, labels.unsqueeze(1)).squeeze(1)
        # Every edge is seen from both its ends.
        return (chosen + given / 2).sum(1)

    def neighbour_cost(self, labels: Tensor) -> Tensor:
        """Return what each label would pay (B, L, N) beside the labels (B, N) around it."""
        around = labels[:, self.near]
        count = self.penalty.shape[-1]
        rows = self.penalty.expand(len(labels), -1, -1)
        index = around.flatten(1).unsqueeze(2).expand(-1, -1, count)
        paid = rows.gather(1, index).view(*around.shape, count)
        return (self.edges.unsqueeze(3) * paid).sum(1).transpose(1, 2)

    def twice(self) -> "FlatGrid":
        """Return the same problems one after another, for two candidates at once."""
        penalty = self.penalty
        if len(penalty) > 1:
            penalty = torch.cat([penalty, penalty])
        return replace(
            self,
            unary=torch.cat([self.unary, self.unary]),
            edges=torch.cat([self.edges, self.edges]),
            penalty=penalty,
        )


def board(height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the cells up, left, right and down of each cell (4, N), and one colour (N,)."""
    cells = torch.arange(height * width, device=device).view(height, width)
    shift = {UP: (1, 0), LEFT: (1, 1), RIGHT: (-1, 1), DOWN: (-1, 0)}
    near = torch.stack([cells.roll(*shift[d]).flatten() for d in range(4)])
    even = (cells // width + cells % width) % 2 == 0
    return near, even.flatten()


def propagate(grid: FlatGrid, rounds: int) -> Tensor:
    """Return beliefs (B, L, N) after rounds of min-sum messages, damped by a half."""
    batch, labels, cells = grid.unary.shape
    cost = grid.edges[:, :, None, None] * grid.penalty[:, None, :, :, None]
    place = grid.near[:, None, :].expand(batch, 4, labels, cells)
    messages = grid.unary.new_zeros(batch, 4, labels, cells)
    for _ in range(rounds):
        belief = grid.unary + messages.sum(1)
        # What a neighbour believes without what it heard from here.
        known = (belief.unsqueeze(1) - messages.flip(1)).gather(3, place)
        fresh = (known.unsqueeze(2) + cost).amin(3)
        messages = torch.lerp(messages, fresh - fresh.amin(2, keepdim=True), 0.5)
    return grid.unary + messages.sum(1)


def sweep(grid: FlatGrid, labels: Tensor, sweeps: int) -> Tensor:
    """Let even, then odd cells take their best label, some times; energy never rises."""
    for _ in range(sweeps):
        for colour in (grid.even, ~grid.even):
            best = (grid.unary + grid.neighbour_cost(labels)).argmin(1)
            labels = torch.where(colour, best, labels)
    return labels


def best_of(grid: FlatGrid, candidates: list[Tensor]) -> Tensor:
    """Return for each problem the candidate (B, N) of least energy."""
    stacked = torch.stack(candidates)
    energy = torch.stack([grid.value(c) for c in candidates])
    chosen = energy.argmin(0).view(1, -1, 1).expand(1, *stacked.shape[1:])
    return stacked.gather(0, chosen).squeeze(0)


def solve_flat(grid: FlatGrid, rounds: int = 15, sweeps: int = 5) -> Tensor:
    """Return labels (B, N), the best of three candidates; 0 rounds leave out the messages."""
    alone = grid.unary.argmin(1)
    uniform = grid.unary.sum(2).argmin(1, keepdim=True).expand_as(alone)
    if not rounds:
        return best_of(grid, [sweep(grid, alone, sweeps), uniform])
    heard = propagate(grid, rounds).argmin(1)
    first, second = sweep(grid.twice(), torch.cat([heard, alone]), sweeps).chunk(2)
    return best_of(grid, [first, second, uniform])


def solve_nearly(grid: GridEnergy, rounds: int | None = None, sweeps: int = 5) -> Tensor:
    """Return labellings (B, h, w) of nearly the least energy, on the grid's device.

    Args:
        grid: The energies.
        rounds: Of messages; by default twice the longer side, at most 15: what every cell
            knows has then crossed a small grid.
        sweeps: Of even and odd cells.

    Example:
        >>> unary = torch.tensor([[0.0, 5.0], [1.0, 1.0], [5.0, 0.0]]).view(1, 3, 1, 2)
        >>> grid = GridEnergy(unary, torch.zeros(1, 0, 2), torch.full((1, 1, 1), 8.0))
        >>> solve_nearly(grid)
        tensor([[[1, 1]]])
    """
    height, width = grid.unary.shape[-2:]
    if rounds is None:
        rounds = min(15, 2 * max(height, width))
    return solve_flat(FlatGrid.of(grid), rounds, sweeps).view(-1, height, width)
