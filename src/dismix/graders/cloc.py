"""CLOC (Pitawela et al., CVPR 2025): cross-entropy beside a contrast with learned margins.

How ours differs: see `dismix.graders.cloc_loss`. The release holds only the loss, so backbone,
learning rate and the length of the phases are our choices. Margins get a learning rate of their
own, by the number of steps: at the network's they barely move on small data sets and collapse on
large ones, since the loss pushes them down all the time.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from dismix.graders.backbones import Backbone
from dismix.graders.base import Grader, GraderConfig, Grades, Stage
from dismix.graders.choices import bounded
from dismix.graders.cloc_loss import CLOCLoss, Reduction
from dismix.graders.cross_entropy import soft_cross_entropy
from dismix.graders.registry import Preset, register_grader
from dismix.labels import OrdinalTarget


@dataclass(frozen=True)
class CLOCConfig(GraderConfig):
    """Settings of CLOC.

    Attributes:
        contrast_on: "logits" (the authors' example) or the pooled "features".
        weight: Of the contrast.
        margin: First value of every margin; None is 0.4, or less for more than five ranks.
        reduction: "mean", or "reference" for the release's scale.
        hard_contrast: Leave mixed images out of the contrast.
        joint_share: Share of the epochs in which margins are learned.
        margin_travel: How far the margins' parameters may move in that time; from 0.4, margins
            that are always pushed down end at 0.16 with 1.25, and at their floor with 5.
        dropout: On the pooled features.
    """

    contrast_on: Literal["logits", "features"] = "logits"
    weight: float = bounded(1.0, least=0)
    margin: float | None = bounded(None, above=0.05)
    reduction: Reduction = "mean"
    hard_contrast: bool = False
    joint_share: float = bounded(0.25, above=0, below=1)
    margin_travel: float = bounded(1.25, above=0)
    dropout: float = bounded(0.5, least=0, below=1)


# Only the loss is published: the margins' start and the contrast's scale are the authors'.
_REFERENCE = Preset("resnet50", hparams={"reduction": "reference", "margin": 0.75, "dropout": 0.0})


@register_grader("cloc", "contrast with learned margins between ranks", reference=_REFERENCE)
class CLOC(Grader):
    """Backbone, dropout, a linear layer; the decision is the most probable rank."""

    config_type: ClassVar[type[GraderConfig]] = CLOCConfig

    def __init__(self, backbone: Backbone, num_ranks: int, **hparams: Any) -> None:
        super().__init__(backbone, num_ranks, **hparams)
        config: CLOCConfig = self.config
        share = config.joint_share
        self.stages = (
            Stage("joint", share, travel={"contrast": config.margin_travel}),
            Stage("fixed", 1.0 - share, trainable=("backbone", "dropout", "head")),
        )
        start = None if config.margin is None else [config.margin] * (num_ranks - 1)
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(backbone.out_dim, num_ranks)
        self.contrast = CLOCLoss(
            num_ranks, start, reduction=config.reduction, hard_contrast=config.hard_contrast
        )

    @property
    def margins(self) -> Tensor:
        """Learned margins (C-1,) between neighbouring ranks: small where they look alike."""
        return self.contrast.margins.detach()

    def on_stage_start(self, stage: Stage) -> None:
        """Hold the margins fast in the second stage."""
        self.contrast.fix_margins(stage.name == "fixed")

    def training_loss(
        self, images: Tensor, target: OrdinalTarget, stage: Stage, weights: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return cross-entropy + weighted contrast."""
        features = self.backbone(images)
        logits = self.head(self.dropout(features))
        entropy = soft_cross_entropy(logits, target.probs, weights)
        compared = logits if self.config.contrast_on == "logits" else features
        contrast = self.contrast(compared, target, weights)
        loss = entropy + self.config.weight * contrast
        return {"loss": loss, "task": entropy, "contrast": contrast}

    def grade(self, images: Tensor) -> Grades:
        """Return the softmax; uncertainty is its entropy in nats."""
        probs = self.head(self.backbone(images)).float().softmax(-1)
        return Grades.from_probabilities(probs, uncertainty=torch.special.entr(probs).sum(-1))
