"""Where a place between ranks becomes a grade: cut points, fitted on validation.

MWR and RnC place an image on the line of ranks. So do POE and GOL, which have a law over the ranks
as well; its most probable one, the mode, is a grade that needs no fitting. Which of the two decides
for them is asked of the validation split too: cut points where they are surely better there on
images that they were not fitted on, else the mode (`choose_cuts`).

# paper: their authors' releases take the nearest rank, cutting half-way between two. But places
# shrink towards the middle of the scale, since votes disagree and an image that may be 0 or 2
# lies at 1; and a grade that hardly anybody has may lie between two that many have. Then most
# images get a grade that fits few. Cut points that fit the validation split cost nothing and
# use no test image; on held-out halves of KOA's they gave POE 47 instead of 16 and RnC 48 instead
# of 28 per cent with 62 images to fit on, with small networks (`results/graders`).

Few images make a jagged choice: it is made on resampled sets and averaged.
"""

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Cuts = Literal["fitted", "nearest"]
Decide = Literal["auto", "mode", "rank"]
#: How methods decide that were saved before they had the choice.
DECIDED_BEFORE: Decide = "rank"
#: Fewer images than that say nothing; cuts stay half-way.
LEAST = 20
RESAMPLES = 25
#: What a rank of error costs, a wrong grade costing 1.
COST_OF_A_RANK = 0.5
#: Parts of the images that `choose_cuts` holds out in turn.
PARTS = 5
#: Standard errors by which cut points must be better than the mode to be taken. On held-out
#: photographs the two differ by little, and a bare comparison was worse than the mode alone
#: (`results/graders`).
SURELY = 1.0


def nearest_cuts(num_ranks: int) -> Tensor:
    """Return the cut points (C-1,) of the nearest rank.

    Example:
        >>> nearest_cuts(4)
        tensor([0.5000, 1.5000, 2.5000])
    """
    return torch.arange(num_ranks - 1) + 0.5


def rule_of(config: Any) -> Decide:
    """Return how a method decides: methods that have the choice name it ``decide``."""
    rule: Decide = getattr(config, "decide", "rank")
    return rule


def first_cuts(num_ranks: int, decide: Decide) -> Tensor:
    """Return the cut points (C-1,) of a method before any are fitted; NaN: its mode decides.

    Example:
        >>> first_cuts(3, "auto"), first_cuts(3, "rank")
        (tensor([nan, nan]), tensor([0.5000, 1.5000]))
    """
    near = nearest_cuts(num_ranks)
    return torch.full_like(near, torch.nan) if decide == "auto" else near


def decide(rank: Tensor, cuts: Tensor) -> Tensor:
    """Return the grades (B,) of places (B,): how many of the cut points (C-1,) they reach.

    Example:
        >>> decide(torch.tensor([-0.2, 0.5, 2.5, 9.0]), nearest_cuts(4))
        tensor([0, 1, 3, 3])
    """
    return (rank.float().unsqueeze(-1) >= cuts.to(rank.device)).sum(-1)


def fit_cuts(rank: Tensor, grade: Tensor, num_ranks: int, seed: int = 0) -> Tensor:
    """Return cut points (C-1,) for places (N,) of images with known grades (N,).

    Means of the best cut points of resampled sets (`best_cuts`); half-way for few images.

    Example:
        >>> place = torch.linspace(0.8, 2.2, 100)
        >>> grade = torch.tensor([0] * 40 + [1] * 10 + [2] * 50)
        >>> fit_cuts(place, grade, 3).round(decimals=1)
        tensor([1.4000, 1.5000])
    """
    if len(rank) < LEAST:
        return nearest_cuts(num_ranks)
    places, grades = rank.double().cpu().numpy(), grade.cpu().numpy()
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(RESAMPLES):
        rows = rng.integers(len(places), size=len(places))
        found.append(best_cuts(places[rows], grades[rows], num_ranks))
    return torch.from_numpy(np.mean(found, axis=0)).float()


def choose_cuts(
    rank: Tensor,
    mode: Tensor,
    grade: Tensor,
    num_ranks: int,
    seed: int = 0,
    surely: float = SURELY,
) -> Tensor:
    """Return cut points (C-1,), or NaN where the mode is as good a grade.

    Cut points are fitted on four fifths of the images and judged on the others, in turn, by what
    a wrong grade costs (`best_cuts`). They are taken where they cost less than the mode by more
    than a standard error of the difference, and then fitted on all images.

    Args:
        rank: (N,) places.
        mode: (N,) most probable ranks.
        grade: (N,) known grades.
        num_ranks: C.
        seed: Of the parts and of the resamples.
        surely: Standard errors by which cut points must be better.

    Example:
        >>> grade = torch.arange(60) % 3
        >>> choose_cuts(grade + 0.4, torch.ones(60).long(), grade, 3).round(decimals=1)
        tensor([0.9000, 1.9000])
        >>> choose_cuts(grade + 0.4, grade, grade, 3)
        tensor([nan, nan])
    """
    rank, mode, grade = rank.cpu(), mode.cpu(), grade.cpu()
    near = first_cuts(num_ranks, "auto")
    # Of fewer, too few would be left to fit on when a part is held out.
    if len(rank) < LEAST * PARTS / (PARTS - 1):
        return near
    part = np.random.default_rng(seed).permutation(len(rank)) % PARTS
    gain = torch.zeros(len(rank), dtype=torch.float64)
    for number in range(PARTS):
        held = torch.from_numpy(part == number)
        cuts = fit_cuts(rank[~held], grade[~held], num_ranks, seed)
        found = decide(rank[held], cuts)
        gain[held] = (_cost(mode[held], grade[held]) - _cost(found, grade[held])).double()
    if gain.mean() <= surely * gain.std() / len(gain) ** 0.5:
        return near
    return fit_cuts(rank, grade, num_ranks, seed)


def _cost(label: Any, grade: Any) -> Any:
    """Return what each decision costs; tensors or arrays of one shape, or that broadcast."""
    off = abs(label - grade)
    return (off > 0) + COST_OF_A_RANK * off


def best_cuts(
    places: NDArray[np.float64], grades: NDArray[np.int64], num_ranks: int
) -> NDArray[np.float64]:
    """Return the cut points (C-1,) with the least cost, in order.

    A wrong grade costs 1 and half of each rank it is off. Grades take turns along the sorted
    places, so the best place to go on to the next grade is a running maximum.

    Args:
        places: (N,).
        grades: (N,) 0..C-1.
        num_ranks: C.
    """
    order = np.argsort(places, kind="stable")
    sorted_places, sorted_grades = places[order], grades[order]
    worth = -_cost(np.arange(num_ranks)[:, None], sorted_grades)
    # total[c, i]: of giving grade c to the first i images.
    total = np.concatenate([np.zeros((num_ranks, 1)), worth.cumsum(1)], axis=1)
    apart = np.concatenate([[True], np.diff(sorted_places) > 0, [True]])
    best, came_from = total[0], []
    for grade in range(1, num_ranks):
        gain = np.where(apart, best - total[grade], -np.inf)
        running = np.maximum.accumulate(gain)
        new = np.concatenate([[True], gain[1:] > running[:-1]])
        came_from.append(np.maximum.accumulate(np.where(new, np.arange(len(gain)), 0)))
        best = running + total[grade]
    # Beyond the outermost images a cut lies where no place does.
    below = np.concatenate([[-0.5], sorted_places])
    above = np.concatenate([sorted_places, [num_ranks - 0.5]])
    at, cuts = len(places), np.empty(num_ranks - 1)
    for grade in range(num_ranks - 1, 0, -1):
        at = came_from[grade - 1][at]
        cuts[grade - 1] = (below[at] + above[at]) / 2
    return cuts
