"""Laws over ordered ranks, and the views of them that methods take.

A law is a vector of C probabilities. Its levels ``s_k = P(rank > k)`` say the same in C-1 numbers,
and the paper's losses are written in those; `dismix.labels.OrdinalTarget` has both.
"""

import torch
from torch import Tensor

#: Vote shares are ratios of small integers: two of them are equal or differ by far more.
TIE = 1e-5


def levels_from_probs(probs: Tensor) -> Tensor:
    """Return ``s_k = P(rank > k)``.

    Args:
        probs: Class probabilities (..., C).

    Returns:
        Levels (..., C-1), non-increasing in k, within [0, 1].

    Example:
        >>> levels_from_probs(torch.tensor([0.25, 0.25, 0.5, 0.0, 0.0]))
        tensor([0.7500, 0.5000, 0.0000, 0.0000])
    """
    # Summing the non-negative upper tail keeps the levels monotone in floating point too.
    tail = probs.float().flip(-1).cumsum(-1).flip(-1)
    return tail[..., 1:].clamp(0.0, 1.0)


def probs_from_levels(levels: Tensor) -> Tensor:
    """Invert :func:`levels_from_probs`; levels must be non-increasing.

    Args:
        levels: Levels (..., C-1), see :func:`monotone_levels` for those of a network.

    Returns:
        Class probabilities (..., C).

    Example:
        >>> probs_from_levels(torch.tensor([1.0, 1.0, 1.0, 0.5]))
        tensor([0.0000, 0.0000, 0.0000, 0.5000, 0.5000])
    """
    levels = levels.float()
    one = torch.ones_like(levels[..., :1])
    return torch.cat([one, levels], -1) - torch.cat([levels, torch.zeros_like(one)], -1)


def monotone_levels(levels: Tensor) -> Tensor:
    """Return the running minimum, the paper's fail-safe for levels that a network made.

    Args:
        levels: Levels (..., C-1).

    Example:
        >>> monotone_levels(torch.tensor([0.9, 0.4, 0.6, 0.1]))
        tensor([0.9000, 0.4000, 0.4000, 0.1000])
    """
    return levels.float().cummin(-1).values


def majority_rank(probs: Tensor, tie: float = TIE) -> Tensor:
    """Return the modal rank; ties go to the rank nearest the mean, then to the lower one.

    Args:
        probs: Class probabilities (B, C).
        tie: Up to what difference probabilities count as equal: more where they were rounded.

    Returns:
        Ranks (B,), long.

    Example:
        Votes {0, 2, 2, 3, 3} tie between 2 and 3; their mean is 2.0.

        >>> majority_rank(torch.tensor([[0.2, 0.0, 0.4, 0.4, 0.0]]))
        tensor([2])
    """
    # paper: it says "majority" and is silent on ties, which {1, 1, 2, 2} makes common.
    ranks = torch.arange(probs.shape[-1], device=probs.device, dtype=torch.float32)
    probs = probs.float()
    modal = probs >= probs.amax(-1, keepdim=True) - tie
    gap = (ranks - (probs * ranks).sum(-1, keepdim=True)).abs()
    gap = gap.masked_fill(~modal, torch.inf)
    nearest = gap <= gap.amin(-1, keepdim=True) + tie
    return nearest.int().argmax(-1)


def levels_of_ranks(ranks: Tensor, num_ranks: int) -> Tensor:
    """Return the levels (B, C-1) of ranks (B,), whole or fractional.

    Example:
        >>> levels_of_ranks(torch.tensor([0.0, 1.5]), 4)
        tensor([[0.0000, 0.0000, 0.0000],
                [1.0000, 0.5000, 0.0000]])
    """
    steps = torch.arange(num_ranks - 1, device=ranks.device)
    return (ranks[:, None].float() - steps).clamp(0.0, 1.0)


def two_point_law(rank: Tensor, num_ranks: int) -> Tensor:
    """Return the laws (..., C) on the two neighbours of each rank, clipped to 0..C-1.

    Example:
        >>> two_point_law(torch.tensor([1.25, 7.0]), 4)
        tensor([[0.0000, 0.7500, 0.2500, 0.0000],
                [0.0000, 0.0000, 0.0000, 1.0000]])
    """
    ranks = torch.arange(num_ranks, device=rank.device)
    inside = rank.float().clamp(0, num_ranks - 1)
    return (1.0 - (inside.unsqueeze(-1) - ranks).abs()).clamp_min(0.0)
