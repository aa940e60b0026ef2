"""One grade from many votes: the majority, or Dawid and Skene's model of the annotators.

Dawid and Skene (1979) give each annotator a confusion matrix and estimate it together with the
true ranks by EM, so that votes of better annotators count more. Here the M-step is a maximum
a posteriori step under Dirichlet priors that expect annotators to be right more often than not.
Without that, EM goes astray where few images have two votes: with a flat prior a single
annotator's grades all end up in one rank. ``ordinal=True`` expects, beyond that, an error by one
rank rather than by three.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from dismix.data.annotators.votes import modal_rank, one_hot_votes, vote_shares
from dismix.errors import DisMixError
from dismix.registry import Registry

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Consensus:
    """What the annotators say together.

    Attributes:
        probs: (N, C) probability of each rank for each image.
        rank: (N,) most probable rank; ties as in ``dismix.laws``.
        annotator_confusion: (A, C, C) probability that annotator a votes k (column) on an image
            of consensus rank c (row); NaN in a row without images (majority only).
        prior: (C,) share of each rank.
        iterations: EM steps, 0 for the majority.
        converged: Whether the probabilities settled.
        log_posterior: Log posterior (up to a constant) after each step.
    """

    probs: Array
    rank: NDArray[np.int64]
    annotator_confusion: Array
    prior: Array
    iterations: int = 0
    converged: bool = True
    log_posterior: tuple[float, ...] = field(default=(), repr=False)


CONSENSUS: Registry[Callable[..., Consensus]] = Registry("consensus")


@CONSENSUS.register("majority")
def majority(votes: ArrayLike, num_ranks: int) -> Consensus:
    """Majority vote; every annotator counts the same.

    Args:
        votes: (N, A), NaN = gap; each image needs a vote.
        num_ranks: C.

    Example:
        >>> majority([[0, 0, 1], [1, 1, 1]], 2).rank
        array([0, 1])
    """
    shares = vote_shares(votes, num_ranks)
    rank = modal_rank(shares)
    hot = one_hot_votes(votes, num_ranks)
    counts = np.einsum("nc,nak->ack", np.eye(num_ranks)[rank], hot)
    total = counts.sum(axis=2, keepdims=True)
    confusion = np.divide(counts, total, out=np.full_like(counts, np.nan), where=total > 0)
    prior = np.bincount(rank, minlength=num_ranks) / len(rank)
    return Consensus(shares, rank, confusion, prior)


@CONSENSUS.register("dawid_skene")
def dawid_skene(
    votes: ArrayLike,
    num_ranks: int,
    *,
    ordinal: bool = False,
    strength: float = 5.0,
    decay: float = 0.25,
    max_iterations: int = 5000,
    tolerance: float = 1e-6,
) -> Consensus:
    """Weigh the annotators by the confusion matrices that explain their votes best.

    EM from the vote shares, without any random start, so equal votes give equal results. Votes
    alone cannot tell two ranks from the same two with their names exchanged: where most
    annotators are wrong most of the time, so is the consensus.

    Args:
        votes: (N, A), NaN = gap; each image needs a vote.
        num_ranks: C.
        ordinal: Expect errors at near ranks: each row of a confusion matrix has a prior
            proportional to ``decay ** |c - k|``, and EM starts from vote shares blurred by the
            same kernel. Otherwise half of the prior lies on the diagonal and half is even.
        strength: Prior votes for each row of each confusion matrix, and prior images, spread
            evenly, for the shares of the ranks. Positive. The more images have several votes, the
            less it matters.
        decay: See ``ordinal``; within (0, 1).
        max_iterations: Bound on EM steps, 1 or more.
        tolerance: Stop when no probability moves by more.

    Example:
        The third annotator contradicts the others everywhere and loses its weight.

        >>> votes = [[0, 0, 1], [0, 0, 1], [1, 1, 0], [1, 1, 0], [float("nan"), 1, 0]]
        >>> dawid_skene(votes, 2).rank
        array([0, 0, 1, 1, 1])
    """
    if max_iterations < 1:
        raise DisMixError(
            f"{max_iterations} EM steps estimate nothing",
            column="max_iterations",
            cure="ask for 1 or more",
        )
    if strength <= 0 or not 0 < decay < 1:
        raise DisMixError(
            f"strength {strength:g} must be positive and decay {decay:g} within (0, 1)",
            cure="use strength 5 and decay 0.25",
        )
    # Images with the same votes get the same law, so EM runs over the distinct rows of votes.
    hot, first, row, weight = _distinct(one_hot_votes(votes, num_ranks))
    probs = vote_shares(votes, num_ranks)[first]
    if ordinal:
        kernel = rank_kernel(num_ranks, decay)
        probs = probs @ kernel
    else:
        kernel = (np.eye(num_ranks) + 1 / num_ranks) / 2
    pseudo = strength * kernel
    trace: list[float] = []
    moved = np.inf
    while not trace or (moved > tolerance and len(trace) < max_iterations):
        prior, confusion = _maximise(probs * weight[:, None], hot, pseudo)
        updated, evidence = _expect(prior, confusion, hot)
        moved = float(np.abs(updated - probs).max())
        probs = updated
        trace.append(float(weight @ evidence) + _log_prior(prior, confusion, pseudo))
    return Consensus(
        probs[row],
        modal_rank(probs)[row],
        confusion,
        prior,
        len(trace),
        moved <= tolerance,
        tuple(trace),
    )


def rank_kernel(num_ranks: int, decay: float) -> Array:
    """Return (C, C) rows proportional to ``decay ** |c - k|`` that sum to one.

    Example:
        >>> rank_kernel(3, 0.5).round(2)
        array([[0.57, 0.29, 0.14],
               [0.25, 0.5 , 0.25],
               [0.14, 0.29, 0.57]])
    """
    ranks = np.arange(num_ranks)
    kernel = decay ** np.abs(ranks[:, None] - ranks).astype(np.float64)
    normal: Array = kernel / kernel.sum(axis=1, keepdims=True)
    return normal


def _distinct(hot: Array) -> tuple[Array, NDArray[np.int64], NDArray[np.int64], Array]:
    """Distinct rows (U, A, C), where each is first, which one each image has, and how many."""
    flat = hot.reshape(len(hot), -1)
    _, first, row, count = np.unique(
        flat, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    return hot[first], first, row.reshape(-1), count.astype(np.float64)


def _maximise(probs: Array, hot: Array, pseudo: Array) -> tuple[Array, Array]:
    """M-step: shares of the ranks (C,) and confusion matrices (A, C, C), with prior votes."""
    images, annotators, ranks = hot.shape
    counts = (probs.T @ hot.reshape(images, -1)).reshape(ranks, annotators, ranks)
    confusion = counts.transpose(1, 0, 2) + pseudo
    confusion /= confusion.sum(axis=2, keepdims=True)
    prior = probs.sum(axis=0) + pseudo.sum() / ranks**2
    return prior / prior.sum(), confusion


def _expect(prior: Array, confusion: Array, hot: Array) -> tuple[Array, Array]:
    """E-step: probabilities (N, C) of the ranks and log-likelihood (N,) of the votes."""
    images, annotators, ranks = hot.shape
    weights = np.log(confusion).transpose(0, 2, 1).reshape(annotators * ranks, ranks)
    joint = np.log(prior) + hot.reshape(images, -1) @ weights
    evidence = logsumexp(joint, axis=1)
    return np.exp(joint - evidence[:, None]), evidence


def _log_prior(prior: Array, confusion: Array, pseudo: Array) -> float:
    """Dirichlet log densities whose modes are the prior votes, without their constants."""
    ranks = pseudo.sum() / len(prior) ** 2 * np.log(prior).sum()
    return float(ranks + (pseudo * np.log(confusion)).sum())
