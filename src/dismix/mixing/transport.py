"""Move blocks to where the mask shows them, step G of PuzzleMix.

Each image's blocks are assigned to the places its mask gives it: every block bids for its
cheapest place, the cheapest bidder for a place wins, losers raise their cost there and bid
again. A partial permutation after n rounds. The authors multiply n^2 x n^2 matrices with all
pixels (12 GiB at batch 64 and n = 16); ours gathers blocks by number.
"""

import torch
from torch import Tensor


def distances(side: int, device: torch.device) -> Tensor:
    """Return squared distances (N, N) of the cells of an n x n grid, 1 along a whole side.

    Example:
        >>> distances(2, torch.device("cpu"))[0]
        tensor([0., 1., 1., 2.])
    """
    cells = torch.arange(side * side, device=device)
    place = torch.stack([cells // side, cells % side], 1).float()
    return ((place[:, None] - place) ** 2).sum(2) / max(side - 1, 1) ** 2


def assign(saliency: Tensor, wanted: Tensor, side: int, t_eps: float) -> Tensor:
    """Return for each place the number (B, N) of the block that moves there.

    Args:
        saliency: (B, N) of the blocks.
        wanted: (B, N) bool, places that the mask shows.
        side: n, with N = n * n.
        t_eps: Price of moving; a large one moves nothing.

    Example:
        The salient block 0 is wanted only at place 3, and goes there.

        >>> s = torch.tensor([[0.9, 0.03, 0.03, 0.04]])
        >>> assign(s, torch.tensor([[False, False, False, True]]), 2, t_eps=0.2)[0, 3]
        tensor(0)
    """
    batch, cells = saliency.shape
    cost = t_eps * distances(side, saliency.device) - saliency.unsqueeze(2) * wanted.unsqueeze(1)
    number = torch.arange(cells, device=saliency.device).expand(batch, cells)
    holder = number
    for _ in range(side):
        price, bid = cost.min(2)
        best = torch.full_like(price, torch.inf).scatter_reduce(1, bid, price, "amin")
        cheapest = price <= best.gather(1, bid)
        # Of equal bidders the first wins.
        claim = number.masked_fill(~cheapest, cells)
        taker = torch.full_like(number, cells).scatter_reduce(1, bid, claim, "amin")
        lost = taker.gather(1, bid) != number
        cost.scatter_add_(2, bid.unsqueeze(2), lost.unsqueeze(2).to(cost.dtype))
        holder = taker
    # A place nobody took keeps its own block; it is one the mask hides.
    return torch.where(holder < cells, holder, number)


def move_blocks(images: Tensor, source: Tensor, side: int) -> Tensor:
    """Return images (B, channels, H, W) whose place j shows the block ``source[:, j]``."""
    batch, channels, height, width = images.shape
    tall, wide = height // side, width // side
    blocks = images.reshape(batch, channels, side, tall, side, wide)
    blocks = blocks.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    rows = torch.arange(batch, device=images.device).unsqueeze(1)
    moved = blocks[rows, source].reshape(batch, side, side, channels, tall, wide)
    return moved.permute(0, 3, 1, 4, 2, 5).reshape(images.shape)
