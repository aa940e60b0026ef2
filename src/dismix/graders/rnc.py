"""Rank-N-Contrast (Zha et al., NeurIPS 2023): first features ordered by rank, then a head.

How ours differs: see `dismix.graders.rnc_loss`. The encoder usually starts from pretrained
weights (the authors' starts from nothing, which some hundred images do not allow), pools
adaptively, and the head may be a classifier.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from dismix.graders.backbones import Backbone
from dismix.graders.base import Grader, GraderConfig, Grades, Stage, full_precision, weighted_mean
from dismix.graders.choices import bounded
from dismix.graders.cross_entropy import soft_cross_entropy
from dismix.graders.registry import Preset, register_grader
from dismix.graders.rnc_loss import RnCLoss
from dismix.labels import OrdinalTarget
from dismix.laws import two_point_law


@dataclass(frozen=True)
class RnCConfig(GraderConfig):
    """Settings of Rank-N-Contrast.

    Attributes:
        temperature: Divides the distances of features.
        min_gap: Grid on label distances, in ranks; 0 ranks every difference.
        head: "regression" of the rank (the authors') or "classification".
        encode_share: Share of the epochs that train the encoder.
        head_lr: Factor on the learning rate for the head.
    """

    temperature: float = bounded(2.0, above=0)
    min_gap: float = bounded(0.0, least=0)
    head: Literal["regression", "classification"] = "regression"
    encode_share: float = bounded(0.75, above=0, below=1)
    head_lr: float = bounded(10.0, above=0)


_REFERENCE = Preset(
    "resnet18", epochs=500, batch_size=256, lr=0.5, weight_decay=1e-4, optimizer="sgd",
    final_lr=1e-3, hparams={"encode_share": 0.8, "head_lr": 0.1},
)  # fmt: skip


@register_grader("rnc", "features whose distances follow the ranks", reference=_REFERENCE)
class RnC(Grader):
    """An encoder trained by contrast over two views, then a linear head on frozen features.

    The regression decides, see `dismix.graders.cut_points`, or the most probable rank.
    """

    config_type: ClassVar[type[GraderConfig]] = RnCConfig
    min_batch = 2
    by_rank_with = ("head", ("regression",))

    def __init__(self, backbone: Backbone, num_ranks: int, **hparams: Any) -> None:
        super().__init__(backbone, num_ranks, **hparams)
        config: RnCConfig = self.config
        share = config.encode_share
        self.stages = (
            Stage("encode", share, trainable=("backbone",), views=2),
            Stage("head", 1.0 - share, trainable=("head",), lr_scale={"head": config.head_lr}),
        )
        self.head = nn.Linear(backbone.out_dim, 1 if self.by_rank else num_ranks)
        if self.by_rank:
            # The middle of the scale is nearer to every rank than the usual start at 0.
            nn.init.constant_(self.head.bias, (num_ranks - 1) / 2)
        self.contrast = RnCLoss(num_ranks, temperature=config.temperature, min_gap=config.min_gap)

    def training_loss(
        self, images: Tensor, target: OrdinalTarget, stage: Stage, weights: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the contrast in the first stage, the head's loss in the second."""
        if images.ndim == 5:
            views = images.shape[1]
            images, target = images.flatten(0, 1), target.expand(views)
            weights = None if weights is None else weights.repeat_interleave(views)
        if stage.name == "encode":
            return {"loss": self.contrast(self.backbone(images), target, weights)}
        with torch.no_grad():
            features = self.backbone(images)
        out = self.head(features)
        if self.config.head == "classification":
            return {"loss": soft_cross_entropy(out, target.probs, weights)}
        with full_precision(out):
            each = (out.squeeze(-1).float() - target.rank).abs()
            return {"loss": weighted_mean(each, weights)}

    def grade(self, images: Tensor) -> Grades:
        """Return the head's law; of a regression the two-point law with its mean."""
        out = self.head(self.backbone(images)).float()
        if self.config.head == "classification":
            probs = out.softmax(-1)
            return Grades.from_probabilities(probs, uncertainty=torch.special.entr(probs).sum(-1))
        return Grades.from_probabilities(
            two_point_law(out.squeeze(-1), self.num_ranks), cuts=self.cuts
        )
