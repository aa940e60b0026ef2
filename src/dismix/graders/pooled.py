"""The common shape of simple graders: pooled features, dropout, a head, a loss on its output."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dismix.graders.backbones import Backbone
from dismix.graders.base import Grader, GraderConfig, Grades, Stage
from dismix.graders.choices import bounded
from dismix.labels import OrdinalTarget
from dismix.laws import probs_from_levels


@dataclass(frozen=True)
class PooledConfig(GraderConfig):
    """Settings of simple graders.

    Attributes:
        dropout: On the pooled features.
    """

    dropout: float = bounded(0.5, least=0, below=1)


class PooledGrader(Grader):
    """Base of graders whose loss needs nothing but the output of a head.

    A method sets ``head`` (d -> K) and ``loss`` (logits (B, K), target, weights) and says how
    logits become grades.
    """

    config_type: ClassVar[type[GraderConfig]] = PooledConfig
    head: nn.Module
    loss: nn.Module

    def __init__(self, backbone: Backbone, num_ranks: int, **hparams: Any) -> None:
        super().__init__(backbone, num_ranks, **hparams)
        self.dropout = nn.Dropout(self.config.dropout)

    def logits(self, images: Tensor) -> Tensor:
        """Return the head's output (B, K), float32, of images (B, channels, H, W)."""
        logits: Tensor = self.head(self.dropout(self.backbone(images)))
        return logits.float()

    def training_loss(
        self, images: Tensor, target: OrdinalTarget, stage: Stage, weights: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the method's loss on the head's output."""
        return {"loss": self.loss(self.logits(images), target, weights)}

    def grade(self, images: Tensor) -> Grades:
        """Return grades of images (B, channels, H, W); uncertainty is the entropy in nats."""
        return self.grades(self.logits(images))

    @abstractmethod
    def grades(self, logits: Tensor) -> Grades:
        """Return grades from the head's output (B, K)."""


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
