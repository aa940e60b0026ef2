"""What a grader says about images, whatever its method: a law, a rank, a decision."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from dismix.graders.cut_points import decide
from dismix.laws import majority_rank, probs_from_levels


@dataclass(frozen=True)
class Grades:
    """What a grader says about B images.

    Attributes:
        probabilities: (B, C), rows sum to one.
        rank: (B,) float, the method's own point estimate.
        label: (B,) long, by the method's decision rule.
        uncertainty: (B,) or None, in the method's own unit; larger is less certain.
    """

    probabilities: Tensor
    rank: Tensor
    label: Tensor
    uncertainty: Tensor | None = None

    @classmethod
    def from_probabilities(
        cls,
        probabilities: Tensor,
        *,
        cuts: Tensor | None = None,
        uncertainty: Tensor | None = None,
    ) -> "Grades":
        """Take the expected rank, and decide for the most probable one or by cut points.

        Args:
            probabilities: (B, C).
            cuts: (C-1,) where the expected rank goes over to the next grade; None, and NaN,
                decide for the most probable one, and of equal ones for that nearest the
                expected rank: laws made of a few neighbours' votes tie often.
            uncertainty: (B,) or None.

        Example:
            >>> law = torch.tensor([[0.45, 0.1, 0.45, 0.0]])
            >>> Grades.from_probabilities(law).label.tolist()
            [0]
            >>> Grades.from_probabilities(law, cuts=torch.tensor([0.5, 1.5, 2.5])).label.tolist()
            [1]
        """
        rank = expected_rank(probabilities)
        return cls(probabilities, rank, decided(probabilities, rank, cuts), uncertainty)

    @staticmethod
    def cat(parts: Iterable["Grades"]) -> "Grades":
        """Concatenate along the batch."""
        listed = list(parts)
        unsure = [p.uncertainty for p in listed if p.uncertainty is not None]
        return Grades(
            torch.cat([p.probabilities for p in listed]),
            torch.cat([p.rank for p in listed]),
            torch.cat([p.label for p in listed]),
            torch.cat(unsure) if len(unsure) == len(listed) else None,
        )

    def to(self, device: torch.device | str) -> "Grades":
        """Move to a device."""
        unsure = None if self.uncertainty is None else self.uncertainty.to(device)
        return Grades(
            self.probabilities.to(device), self.rank.to(device), self.label.to(device), unsure
        )

    def __len__(self) -> int:
        return len(self.label)


def decided(probabilities: Tensor, rank: Tensor, cuts: Tensor | None) -> Tensor:
    """Return the decisions (B,) of laws (B, C) and places (B,), see `Grades.from_probabilities`."""
    mode = majority_rank(probabilities)
    if cuts is None:
        return mode
    # A choice of values, not of code: exported graders make it too.
    return torch.where(cuts.isnan().any().to(rank.device), mode, decide(rank, cuts))


def expected_rank(probabilities: Tensor) -> Tensor:
    """Return the mean rank (B,) of laws (B, C).

    Example:
        >>> expected_rank(torch.tensor([[0.25, 0.5, 0.25]]))
        tensor([1.])
    """
    ranks = torch.arange(probabilities.shape[-1], device=probabilities.device)
    return (probabilities.float() * ranks).sum(-1)


def grades_from_levels(levels: Tensor) -> Grades:
    """Return grades from P(rank > k), (B, C-1); the decision counts levels above one half.

    Levels that are not monotone are replaced by their running minimum first.

    Example:
        >>> grades_from_levels(torch.tensor([[0.9, 0.6, 0.2]])).label.tolist()
        [2]
    """
    levels = _running_minimum(levels)
    probs = probs_from_levels(levels)
    return Grades(probs, levels.sum(-1), (levels > 0.5).sum(-1), entropy(probs))


def _running_minimum(levels: Tensor) -> Tensor:
    """Do what `monotone_levels` does, in operations that ONNX has."""
    columns = [levels.float()[:, 0]]
    for k in range(1, levels.shape[1]):
        columns.append(torch.minimum(columns[-1], levels.float()[:, k]))
    return torch.stack(columns, 1)


def entropy(probabilities: Tensor) -> Tensor:
    """Return the entropy (B,) of laws (B, C), in nats.

    Example:
        >>> entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
        tensor([0.6931, 0.0000])
    """
    total: Tensor = torch.special.entr(probabilities).sum(-1)
    return total
