"""The common shape of simple graders: pooled features, dropout, a head, a loss on its output."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from dismix.graders.backbones import Backbone
from dismix.graders.base import Grader, GraderConfig, Grades, Stage
from dismix.graders.choices import bounded
from dismix.graders.logits_loss import LogitsLoss
from dismix.labels import OrdinalTarget


@dataclass(frozen=True)
class PooledConfig(GraderConfig):
    """Settings of simple graders.

    Attributes:
        dropout: On the pooled features.
    """

    dropout: float = bounded(0.5, least=0, below=1)


class PooledGrader(Grader):
    """Base of graders whose loss needs nothing but the output of a head.

    A method sets ``head`` (d -> K) and ``loss`` (logits (B, K), target, weights), which also says
    how logits become grades.
    """

    config_type: ClassVar[type[GraderConfig]] = PooledConfig
    head: nn.Module
    loss: LogitsLoss

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
        return self.loss.grades(self.logits(images))
