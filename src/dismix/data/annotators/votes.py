"""Votes as numbers: an (N, A) array of ranks 0..C-1, NaN where an annotator did not vote."""

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from dismix.errors import DisMixError
from dismix.laws import TIE, majority_rank


def one_hot_votes(votes: ArrayLike, num_ranks: int) -> NDArray[np.float64]:
    """Check votes and return them one-hot; a gap is a row of zeros.

    Args:
        votes: (N, A), NaN = gap.
        num_ranks: C.

    Returns:
        (N, A, C) zeros and ones.

    Example:
        >>> one_hot_votes([[0, float("nan")]], 2)
        array([[[1., 0.],
                [0., 0.]]])
    """
    array = np.asarray(votes, dtype=np.float64)
    if array.ndim != 2:
        raise DisMixError(
            f"votes must be (N, A), got {array.shape}", cure="give one column for each annotator"
        )
    ranks = np.arange(num_ranks)
    hot: NDArray[np.bool_] = array[:, :, None] == ranks
    wrong = ~np.isnan(array) & ~hot.any(axis=2)
    if wrong.any():
        image, annotator = (int(i) for i in np.argwhere(wrong)[0])
        raise DisMixError(
            f"vote {array[image, annotator]:g} of annotator {annotator} on image {image} is no "
            f"rank of 0..{num_ranks - 1}",
            cure="number the ranks from 0 and leave a cell empty where nobody voted",
        )
    return hot.astype(np.float64)


def vote_shares(votes: ArrayLike, num_ranks: int) -> NDArray[np.float64]:
    """Return the share of votes for each rank, (N, C); each image needs a vote.

    Example:
        >>> vote_shares([[0, 1, 1, 1]], 3)
        array([[0.25, 0.75, 0.  ]])
    """
    counts = one_hot_votes(votes, num_ranks).sum(axis=1)
    total = counts.sum(axis=1, keepdims=True)
    if not total.all():
        raise DisMixError(
            f"image {int(np.argmin(total))} has no vote",
            cure="leave out images that nobody graded",
        )
    shares: NDArray[np.float64] = counts / total
    return shares


def modal_rank(probs: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the most probable rank (N,) by the rule of ``dismix.laws`` for ties.

    Example:
        >>> modal_rank(np.array([[0.2, 0.0, 0.4, 0.4]]))
        array([2])
    """
    ranks: NDArray[np.int64] = majority_rank(torch.from_numpy(probs)).numpy()
    return ranks


def count_ties(probs: NDArray[np.float64]) -> tuple[int, int]:
    """Count the images whose most probable rank is no single one.

    Args:
        probs: (N, C), such as shares of votes.

    Returns:
        Ties, and those of them whose ranks are equally near the mean: these go to the lower rank.

    Example:
        The second image has 2 and 3, of which 2 is nearer to the mean; the third has 1 and 2.

        >>> count_ties(vote_shares([[0, 0, 1, 1, 1], [0, 2, 2, 3, 3], [1, 1, 2, 2, np.nan]], 4))
        (2, 1)
    """
    # As `majority_rank` has it, which chooses the lowest of `nearest`.
    most = probs >= probs.max(axis=1, keepdims=True) - TIE
    ranks = np.arange(probs.shape[1])
    away = np.where(most, np.abs(ranks - (probs @ ranks)[:, None]), np.inf)
    nearest = away <= away.min(axis=1, keepdims=True) + TIE
    return int((most.sum(axis=1) > 1).sum()), int((nearest.sum(axis=1) > 1).sum())


def majority_vote(votes: ArrayLike, num_ranks: int) -> NDArray[np.int64]:
    """Return the majority (N,); ties go to the rank nearest the mean, then to the lower.

    Example:
        >>> majority_vote([[1, 1, 2, 2], [0, 4, 4, 0]], 5)
        array([1, 0])
    """
    return modal_rank(vote_shares(votes, num_ranks))
