"""Plain soft cross-entropy: the baseline that every other method is measured against."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from dismix.graders.backbones import Backbone
from dismix.graders.base import Grades, full_precision, weighted_mean
from dismix.graders.pooled import PooledGrader, entropy
from dismix.graders.registry import register_grader
from dismix.labels import OrdinalTarget


def soft_cross_entropy(logits: Tensor, probs: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the mean cross-entropy of logits (B, C) against laws (B, C), in float32.

    Args:
        logits: (B, C).
        probs: (B, C), rows sum to one.
        weights: (B,) or None.

    Example:
        >>> import torch
        >>> soft_cross_entropy(torch.zeros(1, 4), torch.tensor([[0.5, 0.5, 0.0, 0.0]]))
        tensor(1.3863)
    """
    with full_precision(logits):
        each = F.cross_entropy(logits.float(), probs.float(), reduction="none")
        return weighted_mean(each, weights)


class SoftCrossEntropyLoss(nn.Module):
    """Cross-entropy for users with a loop of their own.

    Args:
        num_ranks: C.

    Example:
        >>> import torch
        >>> SoftCrossEntropyLoss(3)(torch.zeros(2, 3), torch.tensor([0, 2]))
        tensor(1.0986)
    """

    def __init__(self, num_ranks: int) -> None:
        super().__init__()
        self.num_ranks = num_ranks

    def forward(
        self, logits: Tensor, target: Tensor | OrdinalTarget, weights: Tensor | None = None
    ) -> Tensor:
        """Return the loss of logits (B, C) against labels (B,), laws (B, C) or a target."""
        law = OrdinalTarget.coerce(target, self.num_ranks)
        return soft_cross_entropy(logits, law.probs, weights)


@register_grader("ce", "plain soft cross-entropy, the baseline")
class CrossEntropyGrader(PooledGrader):
    """Linear layer and softmax; the decision is the most probable rank."""

    def __init__(self, backbone: Backbone, num_ranks: int, **hparams: Any) -> None:
        super().__init__(backbone, num_ranks, **hparams)
        self.head = nn.Linear(backbone.out_dim, num_ranks)
        self.loss = SoftCrossEntropyLoss(num_ranks)

    def grades(self, logits: Tensor) -> Grades:
        """Return the softmax of logits (B, C)."""
        probs = logits.softmax(-1)
        return Grades.from_probabilities(probs, uncertainty=entropy(probs))
