"""Ordinal labels: one target type that every mixer and every grader shares.

An image graded by several annotators has no single label. Its target is a law over the C
ranks, from which each method takes the view it needs:

========  ===========  ===================================================================
view      shape        meaning
========  ===========  ===================================================================
probs     (B, C)       share of annotators who chose each rank (the "generic soft label")
levels    (B, C-1)     share who graded *above* k (the paper's ordinal soft label)
rank      (B,)         expected rank, the sum of the levels
hard      (B,)         majority; ties go to the rank nearest the mean, then to the lower
========  ===========  ===================================================================

The distance between two targets is the 1-Wasserstein distance. It equals ``|y - y'|`` for
single grades and does not take an image graded {0, 4} for one graded {2}, as the
difference of expected ranks would.

All of it is float32 whatever the images are, and works on any device.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dismix.errors import DisMixError
from dismix.given_numbers import given_numbers
from dismix.laws import levels_from_probs, majority_rank, two_point_law


@dataclass(frozen=True, eq=False)
class OrdinalTarget:
    """Targets of a batch: a law over the ranks for each image.

    Build it with :meth:`from_labels`, :meth:`from_votes`, :meth:`from_rank`,
    :meth:`from_probs` or :meth:`coerce`, which check their input: tensors, lists, NumPy arrays,
    columns of pandas. A data set of one's own gives ``target.probs[i]`` with image i.

    Attributes:
        probs: Class probabilities (B, C), float32, rows sum to one.
        clean: (B,) bool, False for the rows of mixed images.

    Example:
        >>> nan = float("nan")
        >>> target = OrdinalTarget.from_votes(torch.tensor([[3., 3., 4., 4.],
        ...                                                 [0., 1., 1., nan]]), num_ranks=5)
        >>> target.levels
        tensor([[1.0000, 1.0000, 1.0000, 0.5000],
                [0.6667, 0.0000, 0.0000, 0.0000]])
        >>> target.hard, target.rank
        (tensor([3, 1]), tensor([3.5000, 0.6667]))
        >>> target.distance()[0, 1]
        tensor(2.8333)
    """

    probs: Tensor
    clean: Tensor

    def __post_init__(self) -> None:
        if self.probs.ndim != 2 or self.probs.shape[1] < 2:
            raise DisMixError(f"target probabilities must be (B, C >= 2), got {_shape(self.probs)}")
        if self.clean.shape != self.probs.shape[:1]:
            raise DisMixError(f"clean must be ({len(self.probs)},), got {_shape(self.clean)}")

    @classmethod
    def from_probs(
        cls, probs: Tensor | Sequence[Sequence[float]], clean: Tensor | None = None
    ) -> "OrdinalTarget":
        """Build from class probabilities (B, C); rows must be non-negative and sum to one."""
        probs = given_numbers(probs, "probabilities")
        # Thirds in bfloat16 sum to 1.002.
        most = 1e-2 if probs.dtype in (torch.bfloat16, torch.float16) else 1e-3
        probs = probs.float()
        if probs.ndim == 2 and len(probs):
            wrong = (probs < -1e-6).any(1) | ((probs.sum(1) - 1).abs() > most)
            wrong |= ~probs.isfinite().all(1)
            if bool(wrong.any()):
                row = int(wrong.int().argmax())
                raise DisMixError(
                    f"target row {row} is not a probability law: {probs[row].tolist()}",
                    cure="each row must be non-negative and sum to 1",
                )
        probs = probs.clamp_min(0.0)
        probs = probs / probs.sum(-1, keepdim=True)
        if clean is None:
            clean = torch.ones(len(probs), dtype=torch.bool, device=probs.device)
        return cls(probs, clean)

    @classmethod
    def from_labels(cls, labels: Tensor | Sequence[int], num_ranks: int) -> "OrdinalTarget":
        """Build one-hot targets from hard labels (B,) in 0..C-1.

        Example:
            >>> OrdinalTarget.from_labels([2, 0], num_ranks=3).levels
            tensor([[1., 1.],
                    [0., 0.]])
        """
        labels = given_numbers(labels, "labels")
        if labels.is_floating_point() or labels.dtype == torch.bool or labels.ndim != 1:
            raise DisMixError(
                f"labels must be whole numbers of shape (B,), got {labels.dtype} {_shape(labels)}",
                cure="whole numbers stored as floats: labels.long(); for fractional ranks use"
                " OrdinalTarget.from_rank, for several annotators OrdinalTarget.from_votes",
            )
        labels = labels.long()
        _check_range(labels, num_ranks, "label")
        probs = torch.nn.functional.one_hot(labels, num_ranks).float()
        return cls(probs, torch.ones_like(labels, dtype=torch.bool))

    @classmethod
    def from_votes(
        cls, votes: Tensor | Sequence[Sequence[float]], num_ranks: int
    ) -> "OrdinalTarget":
        """Build from the votes of A annotators, with gaps.

        Args:
            votes: (B, A). Floating point with NaN, whole numbers with -1, or lists with None,
                where an annotator did not grade the image. Every row needs at least one vote.
            num_ranks: C.
        """
        votes = given_numbers(votes, "votes")
        if not votes.is_floating_point():
            # A byte of 255 is no -1.
            votes = votes.long()
        if votes.ndim != 2:
            raise DisMixError(f"votes must be (B, A), got {_shape(votes)}")
        voted = ~votes.isnan() if votes.is_floating_point() else votes != -1
        given = votes[voted]
        if votes.is_floating_point() and bool((given != given.round()).any()):
            value = float(given[given != given.round()][0])
            raise DisMixError(f"vote {value:g} is not a whole number", cure="use from_rank")
        _check_range(given, num_ranks, "vote", gap="NaN" if votes.is_floating_point() else "-1")
        if not bool(voted.any(1).all()):
            row = int((~voted.any(1)).int().argmax())
            raise DisMixError(f"image {row} has no vote", cure="drop it or give it a grade")
        ranks = votes.masked_fill(~voted, 0).long()
        counts = torch.nn.functional.one_hot(ranks, num_ranks) * voted.unsqueeze(-1)
        probs = counts.sum(1).float() / voted.sum(1, keepdim=True)
        return cls(probs, torch.ones(len(votes), dtype=torch.bool, device=votes.device))

    @classmethod
    def from_rank(cls, rank: Tensor | Sequence[float], num_ranks: int) -> "OrdinalTarget":
        """Build the two-point law on floor(r), floor(r)+1 with mean r, for (B,) ranks.

        Example:
            >>> OrdinalTarget.from_rank([1.25, 2.0], num_ranks=4).probs
            tensor([[0.0000, 0.7500, 0.2500, 0.0000],
                    [0.0000, 0.0000, 1.0000, 0.0000]])
        """
        rank = given_numbers(rank, "ranks").float()
        if rank.ndim != 1:
            raise DisMixError(f"ranks must be (B,), got {_shape(rank)}")
        _check_range(rank, num_ranks, "rank")
        probs = two_point_law(rank, num_ranks)
        return cls(probs, torch.ones(len(rank), dtype=torch.bool, device=rank.device))

    @classmethod
    def coerce(
        cls, target: "Tensor | Sequence[int] | OrdinalTarget", num_ranks: int
    ) -> "OrdinalTarget":
        """Accept whole-number labels (B,), probabilities (B, C) or a target as it is."""
        if isinstance(target, OrdinalTarget):
            if target.num_ranks != num_ranks:
                raise DisMixError(
                    f"target has {target.num_ranks} ranks, expected {num_ranks}",
                    cure="make both of the same ranks",
                )
            return target
        target = given_numbers(target, "targets")
        if target.ndim == 1:
            return cls.from_labels(target, num_ranks)
        if target.ndim != 2 or target.shape[1] != num_ranks or not target.is_floating_point():
            raise DisMixError(
                f"targets must be whole numbers (B,) or probabilities (B, {num_ranks}),"
                f" got {target.dtype} {_shape(target)}",
                cure="labels.squeeze(1) makes (B,) of (B, 1), labels.float() laws of one-hot rows",
            )
        return cls.from_probs(target)

    @property
    def num_ranks(self) -> int:
        """C."""
        return self.probs.shape[1]

    @property
    def levels(self) -> Tensor:
        """Ordinal soft label (B, C-1)."""
        return levels_from_probs(self.probs)

    @property
    def rank(self) -> Tensor:
        """Expected rank (B,)."""
        return self.levels.sum(-1)

    @property
    def hard(self) -> Tensor:
        """Majority (B,), long, see :func:`majority_rank`."""
        return majority_rank(self.probs)

    def distance(self, other: "OrdinalTarget | None" = None, gaps: Tensor | None = None) -> Tensor:
        """Return the 1-Wasserstein distances (B, B') to ``other``, by default to itself.

        Args:
            other: Targets of B' images.
            gaps: Widths (C-1,) of the steps between neighbouring ranks, 1 by default.
        """
        other = self if other is None else other
        if other.num_ranks != self.num_ranks:
            raise DisMixError(
                f"targets have {self.num_ranks} and {other.num_ranks} ranks and cannot be compared"
            )
        steps = (self.levels.unsqueeze(1) - other.levels.unsqueeze(0)).abs()
        return steps.sum(-1) if gaps is None else (steps * gaps).sum(-1)

    def mix(self, other: "OrdinalTarget", lam: Tensor | float) -> "OrdinalTarget":
        """Return the mixture ``lam * self + (1 - lam) * other``, row by row.

        Args:
            other: Targets of the same shape.
            lam: (B,) or a number within [0, 1]. Rows with 0 or 1 stay clean if their
                source is.
        """
        if other.probs.shape != self.probs.shape:
            raise DisMixError(
                f"cannot mix targets {_shape(self.probs)} with {_shape(other.probs)}",
                cure="both need the same batch and the same ranks",
            )
        lam = torch.as_tensor(lam, dtype=torch.float32, device=self.probs.device)
        # `not inside` rather than `outside`, so that NaN is caught too.
        if not bool(((lam >= 0) & (lam <= 1)).all()):
            raise DisMixError(f"lam must lie within [0, 1], got {lam.tolist()}")
        if lam.shape not in ((), (len(self.probs),)):
            raise DisMixError(f"lam must be a number or ({len(self.probs)},), got {_shape(lam)}")
        lam = lam.expand(len(self.probs))
        clean = torch.where(lam == 1, self.clean, other.clean & (lam == 0))
        weight = lam.unsqueeze(-1)
        return OrdinalTarget(weight * self.probs + (1 - weight) * other.probs, clean)

    def expand(self, views: int) -> "OrdinalTarget":
        """Repeat each row ``views`` times: (B * views, C), views of an image side by side."""
        return OrdinalTarget(
            self.probs.repeat_interleave(views, 0), self.clean.repeat_interleave(views, 0)
        )

    def to(self, device: torch.device | str) -> "OrdinalTarget":
        """Move to a device; the dtype stays float32."""
        return OrdinalTarget(self.probs.to(device), self.clean.to(device))

    def __getitem__(self, index: Tensor | slice | list[int]) -> "OrdinalTarget":
        if isinstance(index, int | np.integer):
            raise DisMixError(
                f"a target is of a batch, and target[{index}] of one image",
                cure=f"target[[{index}]] is a batch of one, target.probs[{index}] its law",
            )
        return OrdinalTarget(self.probs[index], self.clean[index])

    def __eq__(self, other: object) -> bool:
        """Whether both have the same laws and the same clean rows."""
        if not isinstance(other, OrdinalTarget):
            return NotImplemented
        return torch.equal(self.probs, other.probs) and torch.equal(self.clean, other.clean)

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self.probs)

    @staticmethod
    def cat(targets: Sequence["OrdinalTarget"]) -> "OrdinalTarget":
        """Concatenate along the batch."""
        return OrdinalTarget(
            torch.cat([t.probs for t in targets]), torch.cat([t.clean for t in targets])
        )


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def _check_range(values: Tensor, num_ranks: int, noun: str, *, gap: str = "") -> None:
    """Raise for values outside 0..C-1; ``gap`` is how to write one that is not known."""
    if num_ranks is None or isinstance(num_ranks, float | str):
        raise DisMixError(
            f"the number of ranks must be whole, got {num_ranks!r}", cure="give an int"
        )
    if num_ranks < 2:
        raise DisMixError(f"an ordinal scale needs at least 2 ranks, got {num_ranks}")
    # `not inside` rather than `outside`, so that NaN is caught too.
    wrong = ~((values >= 0) & (values <= num_ranks - 1))
    if bool(wrong.any()):
        value = values[wrong].flatten()[0].item()
        cure = "check the number of ranks, or number the ranks from 0"
        if gap and value < 0:
            cure = f"write {gap} where an annotator did not grade the image"
        raise DisMixError(f"{noun} {value:g} is outside 0..{num_ranks - 1}", cure=cure)
