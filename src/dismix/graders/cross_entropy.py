"""Plain soft cross-entropy: the baseline that every other method is measured against."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from dismix.graders.backbones import Backbone
from dismix.graders.base import full_precision, weighted_mean
from dismix.graders.logits_loss import LogitsLoss
from dismix.graders.pooled import PooledGrader
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


class SoftCrossEntropyLoss(LogitsLoss):
    """Cross-entropy of logits (B, C); their softmax are the probabilities.

    Args:
        num_ranks: C.

    Example:
        >>> import torch
        >>> SoftCrossEntropyLoss(3)(torch.zeros(2, 3), torch.tensor([0, 2]))
        tensor(1.0986)
    """

    def compare(self, logits: Tensor, law: OrdinalTarget, weights: Tensor | None) -> Tensor:
        """Return the cross-entropy of logits (B, C)."""
        return soft_cross_entropy(logits, law.probs, weights)


@register_grader("ce", "plain soft cross-entropy, the baseline")
class CrossEntropyGrader(PooledGrader):
    """Linear layer and softmax; the decision is the most probable rank."""

    def __init__(self, backbone: Backbone, num_ranks: int, **hparams: Any) -> None:
        super().__init__(backbone, num_ranks, **hparams)
        self.head = nn.Linear(backbone.out_dim, num_ranks)
        self.loss = SoftCrossEntropyLoss(num_ranks)
