"""CORN (Shi et al., 2023): conditional questions, "above k, given above k-1?".

Soft form, ours: question k counts with weight s_{k-1}, the share of annotators who passed
the question before, and has the target s_k / s_{k-1}. On single grades it is the authors' loss.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dismix.graders.backbones import Backbone
from dismix.graders.grades import Grades, grades_from_levels
from dismix.graders.logits_loss import LogitsLoss
from dismix.graders.pooled import PooledGrader
from dismix.graders.registry import register_grader
from dismix.labels import OrdinalTarget


class CornLoss(LogitsLoss):
    """CORN's loss on conditional logits, soft labels allowed.

    The levels are the running product of the logits' sigmoid.

    Args:
        num_ranks: C.

    Example:
        Rank 0 is asked the first question only.

        >>> CornLoss(3)(torch.tensor([[0.0, 9.0]]), torch.tensor([0]))
        tensor(0.6931)
    """

    form = "C-1"

    def compare(self, logits: Tensor, law: OrdinalTarget, weights: Tensor | None) -> Tensor:
        """Return the loss of conditional logits (B, C-1)."""
        passed = law.levels
        asked = torch.cat([torch.ones_like(passed[:, :1]), passed[:, :-1]], 1)
        each = -passed * F.logsigmoid(logits) - (asked - passed) * F.logsigmoid(-logits)
        if weights is not None:
            each, asked = each * weights[:, None], asked * weights[:, None]
        return each.sum() / asked.sum().clamp_min(1e-12)

    def read(self, logits: Tensor) -> Grades:
        """Return the grades of conditional logits (B, C-1)."""
        return grades_from_levels(F.logsigmoid(logits).cumsum(-1).exp())


@register_grader("corn", "conditional questions: above k, given above k-1? (Shi 2023)")
class CornGrader(PooledGrader):
    """Conditional binary heads; levels are their running product."""

    def __init__(self, backbone: Backbone, num_ranks: int, **hparams: Any) -> None:
        super().__init__(backbone, num_ranks, **hparams)
        self.head = nn.Linear(backbone.out_dim, num_ranks - 1)
        self.loss = CornLoss(num_ranks)
