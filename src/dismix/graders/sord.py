"""SORD (Diaz and Marathe, CVPR 2019): cross-entropy against labels blurred along the ranks.

An image with several votes gets the mixture of its votes' blurred labels.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from dismix.graders.backbones import Backbone
from dismix.graders.base import GraderConfig
from dismix.graders.choices import bounded
from dismix.graders.cross_entropy import soft_cross_entropy
from dismix.graders.logits_loss import LogitsLoss
from dismix.graders.pooled import PooledConfig, PooledGrader
from dismix.graders.registry import register_grader
from dismix.labels import OrdinalTarget

Metric = Literal["squared", "absolute"]


def sord_matrix(num_ranks: int, alpha: float = 2.0, metric: Metric = "squared") -> Tensor:
    """Return the blurred label of every rank as rows (C, C): softmax of -alpha * distance.

    Example:
        >>> sord_matrix(3, alpha=1.0, metric="absolute")[0]
        tensor([0.6652, 0.2447, 0.0900])
    """
    ranks = torch.arange(num_ranks).float()
    gaps = (ranks[:, None] - ranks[None, :]).abs()
    return torch.softmax(-alpha * (gaps.square() if metric == "squared" else gaps), -1)


class SordLoss(LogitsLoss):
    """Cross-entropy of logits (B, C) against blurred labels.

    Args:
        num_ranks: C.
        alpha: Steepness; large values leave the labels as they are.
        metric: "squared" or "absolute" distance between ranks.

    Example:
        >>> SordLoss(3)(torch.zeros(1, 3), torch.tensor([1]))
        tensor(1.0986)
    """

    blur: Tensor

    def __init__(self, num_ranks: int, alpha: float = 2.0, metric: Metric = "squared") -> None:
        super().__init__(num_ranks)
        self.register_buffer("blur", sord_matrix(num_ranks, alpha, metric), persistent=False)

    def compare(self, logits: Tensor, law: OrdinalTarget, weights: Tensor | None) -> Tensor:
        """Return the cross-entropy of logits (B, C) against the blurred law."""
        # Not a matrix product: GPUs may round the factors of one.
        blurred = (law.probs.unsqueeze(-1) * self.blur.to(law.probs)).sum(1)
        return soft_cross_entropy(logits, blurred, weights)


@dataclass(frozen=True)
class SordConfig(PooledConfig):
    """Settings of SORD.

    Attributes:
        alpha: Steepness of the blur.
        metric: "squared" or "absolute" distance between ranks.
    """

    alpha: float = bounded(2.0, above=0)
    metric: Metric = "squared"


@register_grader("sord", "cross-entropy against labels blurred along the ranks (Diaz 2019)")
class SordGrader(PooledGrader):
    """Linear layer and softmax; the decision is the most probable rank."""

    config_type: ClassVar[type[GraderConfig]] = SordConfig

    def __init__(self, backbone: Backbone, num_ranks: int, **hparams: Any) -> None:
        super().__init__(backbone, num_ranks, **hparams)
        self.head = nn.Linear(backbone.out_dim, num_ranks)
        self.loss = SordLoss(num_ranks, self.config.alpha, self.config.metric)
