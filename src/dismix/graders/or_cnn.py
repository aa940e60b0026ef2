"""OR-CNN (Niu et al., CVPR 2016): one yes-or-no question for each step between ranks.

Soft labels need no extension: the share of annotators who graded above k is the target of
question k. The paper's "SOR" loss has this form.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from dismix.graders.backbones import Backbone
from dismix.graders.base import Grades, full_precision, weighted_mean
from dismix.graders.pooled import PooledGrader, grades_from_levels
from dismix.graders.registry import register_grader
from dismix.labels import OrdinalTarget


class LevelsLoss(nn.Module):
    """Binary cross-entropy of C-1 logits against the levels, summed over k, mean over images.

    Used by OR-CNN and CORAL alike.

    Args:
        num_ranks: C.

    Example:
        >>> import torch
        >>> LevelsLoss(3)(torch.zeros(1, 2), torch.tensor([1]))
        tensor(1.3863)
    """

    def __init__(self, num_ranks: int) -> None:
        super().__init__()
        self.num_ranks = num_ranks

    def forward(
        self, logits: Tensor, target: Tensor | OrdinalTarget, weights: Tensor | None = None
    ) -> Tensor:
        """Return the loss of logits (B, C-1) against labels (B,), laws (B, C) or a target."""
        levels = OrdinalTarget.coerce(target, self.num_ranks).levels
        with full_precision(logits):
            each = F.binary_cross_entropy_with_logits(logits.float(), levels, reduction="none")
            return weighted_mean(each.sum(-1), weights)


@register_grader("or-cnn", "independent yes-or-no questions: above rank k? (Niu 2016)")
class ORCNNGrader(PooledGrader):
    """C-1 independent binary heads; the decision counts the yeses of the running minimum."""

    def __init__(self, backbone: Backbone, num_ranks: int, **hparams: Any) -> None:
        super().__init__(backbone, num_ranks, **hparams)
        self.head = nn.Linear(backbone.out_dim, num_ranks - 1)
        self.loss = LevelsLoss(num_ranks)

    def grades(self, logits: Tensor) -> Grades:
        """Return grades from logits (B, C-1)."""
        return grades_from_levels(logits.sigmoid())
