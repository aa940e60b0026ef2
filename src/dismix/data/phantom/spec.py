"""What a phantom set is made of, checked at the door."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dismix.data.phantom.canvas import MIN_SIZE
from dismix.errors import DisMixError
from dismix.registry import near_names

Subject = Literal["knee", "fundus"]
SPLITS = ("train", "val", "test")

# Share of votes that hit the true rank; the rest goes to its neighbours.
CONFUSIONS: dict[str, float] = {"exact": 1.0, "mild": 0.85, "strong": 0.6}


@dataclass(frozen=True)
class PhantomSpec:
    """Everything that fixes a phantom set, to the byte.

    Attributes:
        subject: "knee" (grey radiographs) or "fundus" (colour photographs).
        num_ranks: Number of ranks C, two or more.
        train: Number of training images; left and right of a patient follow each other.
        val: Number of validation images.
        test: Number of test images.
        size: Side of the pictures in pixels, 32 or more.
        annotators: Number of annotators A; 0 leaves only the true grade.
        confusion: "exact", "mild" or "strong", or C rows of C probabilities: row r says how
            an image of true rank r is voted.
        rank_balance: C weights of the ranks, or None for equal shares.
        jitter: Half-width of the severities within a rank; below one half, so that ranks
            stay apart.
        seed: Seed of the set.

    Example:
        >>> PhantomSpec(num_ranks=3, confusion="strong").confusion_matrix()
        array([[0.6, 0.4, 0. ],
               [0.2, 0.6, 0.2],
               [0. , 0.4, 0.6]])
    """

    subject: Subject = "knee"
    num_ranks: int = 5
    train: int = 1000
    val: int = 200
    test: int = 500
    size: int = 64
    annotators: int = 5
    confusion: str | Sequence[Sequence[float]] = "mild"
    rank_balance: Sequence[float] | None = None
    jitter: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        # Tuples, so that equal specs compare equal, hash and survive a trip through JSON.
        if not isinstance(self.confusion, str):
            rows = tuple(tuple(float(p) for p in row) for row in self.confusion)
            object.__setattr__(self, "confusion", rows)
        if self.rank_balance is not None:
            object.__setattr__(self, "rank_balance", tuple(float(w) for w in self.rank_balance))
        self._check_numbers()
        self._check_balance()
        self._check_confusion()

    def _check_numbers(self) -> None:
        subjects = list(get_args(Subject))
        if self.subject not in subjects:
            raise DisMixError(
                f"unknown subject '{self.subject}'",
                column="subject",
                cure=near_names(self.subject, subjects),
            )
        least = {"num_ranks": 2, "train": 0, "val": 0, "test": 0, "size": MIN_SIZE}
        for name, low in {**least, "annotators": 0, "seed": 0}.items():
            value = getattr(self, name)
            if not isinstance(value, int) or value < low:
                raise DisMixError(
                    f"{value} is not allowed", column=name, cure=f"give a whole number >= {low}"
                )
        if self.train + self.val + self.test == 0:
            raise DisMixError("a set without images", column="train", cure="ask for one or more")
        if not 0 <= self.jitter < 0.5:
            raise DisMixError(
                f"{self.jitter:g} lets ranks overlap",
                column="jitter",
                cure="give 0 <= jitter < 0.5",
            )

    def _check_balance(self) -> None:
        weights = self.rank_balance
        if weights is None:
            return
        usable = all(math.isfinite(w) and w >= 0 for w in weights) and sum(weights) > 0
        if len(weights) != self.num_ranks or not usable:
            raise DisMixError(
                "does not weigh the ranks",
                column="rank_balance",
                cure=f"give {self.num_ranks} numbers >= 0, not all zero",
            )

    def _check_confusion(self) -> None:
        if isinstance(self.confusion, str):
            if self.confusion not in CONFUSIONS:
                raise DisMixError(
                    f"unknown confusion '{self.confusion}'",
                    column="confusion",
                    cure=near_names(self.confusion, sorted(CONFUSIONS)),
                )
            return
        shape = (self.num_ranks, self.num_ranks)
        even = len({len(row) for row in self.confusion}) == 1
        matrix = np.array(self.confusion) if even else np.empty(0)
        if matrix.shape != shape or not ((matrix >= 0) & (matrix <= 1)).all():
            raise DisMixError(
                "is no confusion matrix",
                column="confusion",
                cure=f"give {shape[0]} rows of {shape[1]} probabilities",
            )
        wrong = np.flatnonzero(np.abs(matrix.sum(axis=1) - 1) > 1e-6)
        if len(wrong):
            raise DisMixError(
                f"the row of rank {wrong[0]} sums to {matrix[wrong[0]].sum():g}",
                column="confusion",
                cure="every row must sum to 1",
            )

    def confusion_matrix(self) -> NDArray[np.float64]:
        """Return (C, C): row r holds the probabilities of the votes on true rank r."""
        if not isinstance(self.confusion, str):
            return np.array(self.confusion, dtype=np.float64)
        right = CONFUSIONS[self.confusion]
        matrix = np.eye(self.num_ranks) * right
        for rank in range(self.num_ranks):
            near = [r for r in (rank - 1, rank + 1) if 0 <= r < self.num_ranks]
            matrix[rank, near] = (1 - right) / len(near)
        return matrix

    def count(self, split: str) -> int:
        """Return the number of images of a split."""
        return int(getattr(self, split))

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "PhantomSpec":
        """Rebuild a spec from :meth:`to_json`'s values.

        Raises:
            DisMixError: For unknown fields or values that are not allowed.
        """
        names = [field.name for field in fields(cls)]
        for name in content:
            if name not in names:
                raise DisMixError("unknown field", column=name, cure=near_names(name, names))
        return cls(**content)
