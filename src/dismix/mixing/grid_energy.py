"""Energies of labels on grids: unary costs, and edges that want neighbours to be alike.

PuzzleMix chooses for each block of a grid how much of it comes from which image:

    E(l) = sum_cells unary(l) + sum_edges w * ((l - l') / (L - 1))^2

over labels l in 0..L-1. Weights are non-negative, so the exact minimum is one minimum cut
(:mod:`dismix.mixing.graph_cut`); :mod:`dismix.mixing.message_passing` comes near it on a GPU.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

# Order of the four neighbours of a cell; 3 - d is the opposite of d.
UP, LEFT, RIGHT, DOWN = range(4)


@dataclass(frozen=True)
class GridEnergy:
    """B problems of one size.

    Attributes:
        unary: (B, L, h, w) cost of each label in each cell.
        down: (B, h-1, w) weight of the edge from cell (y, x) to (y+1, x).
        right: (B, h, w-1) weight of the edge from cell (y, x) to (y, x+1).
    """

    unary: Tensor
    down: Tensor
    right: Tensor

    @property
    def labels(self) -> int:
        """L."""
        return self.unary.shape[1]

    def degree(self) -> Tensor:
        """Return the sum (B, h, w) of the weights at each cell."""
        return self.edges().sum(1)

    def edges(self) -> Tensor:
        """Return the weights (B, 4, h, w) of the edges at each cell, 0 beyond the border."""
        pad = torch.nn.functional.pad
        up, left = pad(self.down, (0, 0, 1, 0)), pad(self.right, (1, 0))
        right, down = pad(self.right, (0, 1)), pad(self.down, (0, 0, 0, 1))
        return torch.stack([up, left, right, down], 1)

    def penalty(self) -> Tensor:
        """Return the cost (L, L) of two labels on an edge of weight one."""
        step = torch.arange(self.labels, device=self.unary.device, dtype=self.unary.dtype)
        return ((step[:, None] - step) / max(self.labels - 1, 1)) ** 2

    def value(self, labels: Tensor) -> Tensor:
        """Return the energies (B,) of labellings (B, h, w).

        Example:
            >>> unary = torch.tensor([0.0, 1.0, 3.0]).view(1, 3, 1, 1).expand(1, 3, 1, 2)
            >>> grid = GridEnergy(unary, torch.zeros(1, 0, 2), torch.full((1, 1, 1), 8.0))
            >>> grid.value(torch.tensor([[[0, 1]]]))
            tensor([3.])
        """
        chosen = self.unary.gather(1, labels.unsqueeze(1)).sum((1, 2, 3))
        share = labels.to(self.unary.dtype) / max(self.labels - 1, 1)
        down = (self.down * share.diff(dim=1) ** 2).sum((1, 2))
        right = (self.right * share.diff(dim=2) ** 2).sum((1, 2))
        return chosen + down + right
