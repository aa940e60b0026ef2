"""How far votes depart from known true grades: flips, disagreement and wrong majorities."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dismix.data.annotators.votes import majority_vote


@dataclass(frozen=True)
class Variability:
    """How far votes depart from the true grade on some set of images.

    Attributes:
        images: Number of images.
        flipped_votes: Share of votes that differ from the true grade.
        flipped_images: Share of images with at least one such vote.
        non_unanimous: Share of images whose annotators do not all agree.
        wrong_majority: Share of images whose majority vote is not the true grade.
    """

    images: int
    flipped_votes: float
    flipped_images: float
    non_unanimous: float
    wrong_majority: float

    def __str__(self) -> str:
        if not self.images:
            return "no images"
        return (
            f"{self.images} images, flipped {self.flipped_votes:.1%} of votes and "
            f"{self.flipped_images:.1%} of images, not unanimous {self.non_unanimous:.1%}, "
            f"wrong majority {self.wrong_majority:.1%}"
        )


@dataclass(frozen=True)
class VariabilityReport:
    """Variability over all images, over the affected grades, and for each of those.

    Attributes:
        setting: How the votes were made, in words.
        overall: All images with votes.
        affected: Images whose true grade may flip.
        grades: The same for each affected grade, by its position from 0.
        numerals: (C,) what the text calls each grade; its position where there are none.
    """

    setting: str
    overall: Variability
    affected: Variability
    grades: dict[int, Variability]
    numerals: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON (NaN becomes None)."""
        parts = {"overall": self.overall, "affected": self.affected}
        parts |= {f"grade_{grade}": part for grade, part in self.grades.items()}
        tidy = {
            name: {k: None if math.isnan(v) else v for k, v in asdict(part).items()}
            for name, part in parts.items()
        }
        return {"setting": self.setting, **tidy}

    def __str__(self) -> str:
        called = {grade: self.numerals[grade] if self.numerals else grade for grade in self.grades}
        names = " and ".join(str(grade) for grade in called.values())
        each = "; ".join(f"grade {called[grade]}: {part}" for grade, part in self.grades.items())
        return (
            f"{self.setting}. Grades {names} together: {self.affected} ({each}). "
            f"All grades: {self.overall}."
        )


def measure_variability(
    votes: NDArray[np.float64],
    grades: ArrayLike,
    *,
    affected: Sequence[int] = (1, 2),
    setting: str = "Votes against true grades",
    numerals: Sequence[str] = (),
) -> VariabilityReport:
    """Compare votes with true grades.

    Args:
        votes: (N, A), NaN where an annotator did not vote; each row has a vote.
        grades: (N,) true grades.
        affected: The grades to report on their own.
        setting: Opening words of the report.
        numerals: (C,) what its text calls each grade; positions by default.

    Example:
        >>> votes = np.array([[0, 0, 0], [1, 2, 2], [2, 2, 1]], dtype=float)
        >>> measure_variability(votes, [0, 1, 2]).grades[1]
        Variability(images=1, flipped_votes=0.666..., flipped_images=1.0, non_unanimous=1.0, \
wrong_majority=1.0)
    """
    truth = np.asarray(grades, dtype=np.float64)
    every = np.ones(len(truth), dtype=bool)
    return VariabilityReport(
        setting=setting,
        overall=_variability(votes, truth, every),
        affected=_variability(votes, truth, np.isin(truth, list(affected))),
        grades={grade: _variability(votes, truth, truth == grade) for grade in affected},
        numerals=tuple(numerals),
    )


def _variability(
    votes: NDArray[np.float64], truth: NDArray[np.float64], rows: NDArray[np.bool_]
) -> Variability:
    votes, truth = votes[rows], truth[rows]
    if not len(truth):
        nan = float("nan")
        return Variability(0, nan, nan, nan, nan)
    voted = ~np.isnan(votes)
    flipped = voted & (votes != truth[:, None])
    num_ranks = int(max(np.nanmax(votes), truth.max(), 1)) + 1
    return Variability(
        images=len(truth),
        flipped_votes=float(flipped.sum() / voted.sum()),
        flipped_images=float(flipped.any(axis=1).mean()),
        non_unanimous=float((np.nanmax(votes, axis=1) != np.nanmin(votes, axis=1)).mean()),
        wrong_majority=float((majority_vote(votes, num_ranks) != truth).mean()),
    )
