"""CORAL (Cao et al., 2020): OR-CNN whose questions share one direction, so they never conflict."""

from typing import Any

import torch
from torch import Tensor, nn

from dismix.graders.backbones import Backbone
from dismix.graders.base import Stage
from dismix.graders.or_cnn import LevelsLoss
from dismix.graders.pooled import PooledGrader
from dismix.graders.registry import register_grader


class CoralHead(nn.Module):
    """One score and C-1 thresholds.

    Args:
        in_features: d.
        num_ranks: C.

    Example:
        >>> CoralHead(8, 5)(torch.zeros(2, 8)).shape
        torch.Size([2, 4])
    """

    def __init__(self, in_features: int, num_ranks: int) -> None:
        super().__init__()
        self.score = nn.Linear(in_features, 1, bias=False)
        # Falling from the start, as the authors' code does: lower steps are passed more often.
        steps = torch.arange(num_ranks - 1, 0, -1).float() / (num_ranks - 1)
        self.bias = nn.Parameter(steps)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits (B, C-1) of features (B, d)."""
        logits: Tensor = self.score(features) + self.bias
        return logits


@register_grader("coral", "one score, C-1 thresholds: consistent by construction (Cao 2020)")
class CoralGrader(PooledGrader):
    """A score against thresholds; the decision counts the thresholds passed.

    Thresholds are ordered where the loss is least; until then the running minimum is taken.
    """

    # A threshold has to travel several units, which Adam at 1e-4 does in 10,000s of steps.
    stages = (Stage("fit", 1.0, lr_scale={"head.bias": 30.0}),)

    def __init__(self, backbone: Backbone, num_ranks: int, **hparams: Any) -> None:
        super().__init__(backbone, num_ranks, **hparams)
        self.head = CoralHead(backbone.out_dim, num_ranks)
        self.loss = LevelsLoss(num_ranks)
