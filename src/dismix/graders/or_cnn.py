"""OR-CNN (Niu et al., CVPR 2016): one yes-or-no question for each step between ranks.

Soft labels need no extension: the share of annotators who graded above k is the target of
question k. The paper's "SOR" loss has this form.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from dismix.graders.backbones import Backbone
from dismix.graders.base import weighted_mean
from dismix.graders.grades import Grades, grades_from_levels
from dismix.graders.logits_loss import LogitsLoss
from dismix.graders.pooled import PooledGrader
from dismix.graders.registry import register_grader
from dismix.labels import OrdinalTarget


class LevelsLoss(LogitsLoss):
    """Binary cross-entropy of C-1 logits against the levels, summed over k, mean over images.

    Used by OR-CNN and CORAL alike; the logits' sigmoid are the levels.

    Args:
        num_ranks: C.

    Example:
        >>> import torch
        >>> LevelsLoss(3)(torch.zeros(1, 2), torch.tensor([1]))
        tensor(1.3863)
    """

    form = "C-1"

    def compare(self, logits: Tensor, law: OrdinalTarget, weights: Tensor | None) -> Tensor:
        """Return the loss of logits (B, C-1)."""
        each = F.binary_cross_entropy_with_logits(logits, law.levels, reduction="none")
        return weighted_mean(each.sum(-1), weights)

    def read(self, logits: Tensor) -> Grades:
        """Return the grades of logits (B, C-1)."""
        return grades_from_levels(logits.sigmoid())


@register_grader("or-cnn", "independent yes-or-no questions: above rank k? (Niu 2016)")
class ORCNNGrader(PooledGrader):
    """C-1 independent binary heads; the decision counts the yeses of the running minimum."""

    def __init__(self, backbone: Backbone, num_ranks: int, **hparams: Any) -> None:
        super().__init__(backbone, num_ranks, **hparams)
        self.head = nn.Linear(backbone.out_dim, num_ranks - 1)
        self.loss = LevelsLoss(num_ranks)
