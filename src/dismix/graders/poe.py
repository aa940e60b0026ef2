"""Probabilistic ordinal embeddings (Li et al., CVPR 2021): an image is a Gaussian.

How ours differs: see `dismix.graders.poe_loss`. Draws at prediction are the same for every
image and every call, so that grades depend on the image alone and the model can be exported.
The reference preset keeps the authors' 4096 dimensions behind a 7 x 7 grid of features.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dismix.graders.backbones import Backbone
from dismix.graders.base import Grader, GraderConfig, Grades, Stage
from dismix.graders.choices import bounded
from dismix.graders.cut_points import Decide
from dismix.graders.poe_loss import Gaussians, POELoss
from dismix.graders.registry import Preset, register_grader
from dismix.labels import OrdinalTarget


@dataclass(frozen=True)
class POEConfig(GraderConfig):
    """Settings of POE.

    Attributes:
        dim: Dimension of the Gaussians.
        grid: Side of the pooled feature map that is read; 1 is a global average.
        samples: Draws T of each image, in training and in prediction.
        alpha: Weight of the divergence from N(0, I).
        beta: Weight of the triplets. Where embeddings say nothing yet, violated triplets are
            satisfied best by pulling all of them together: eight times this weight keeps a
            network that starts from nothing from learning.
        margin: Of the triplets.
        min_gap: Least difference of label distances that makes a triplet, in ranks.
        dropout: On the features and on the draws.
        decide: For the most probable rank ("mode"), where the expected rank lies between cut
            points ("rank"), or as is better on validation ("auto"). # paper: the release rounds
            the expected rank; on held-out photographs that hits less often (`results/graders`).
    """

    dim: int = bounded(512, least=1)
    grid: int = bounded(1, least=1)
    samples: int = bounded(50, least=1)
    alpha: float = bounded(1e-4, least=0)
    beta: float = bounded(1e-4, least=0)
    margin: float = bounded(5.0, least=0)
    min_gap: float = bounded(0.5, least=0)
    dropout: float = bounded(0.5, least=0, below=1)
    decide: Decide = "auto"


_REFERENCE = Preset(
    "vgg16", epochs=50, batch_size=32, weight_decay=0.0, schedule="step",
    hparams={"dim": 4096, "grid": 7, "decide": "rank"},
)  # fmt: skip


@register_grader(
    "poe", "probabilistic embeddings", reference=_REFERENCE,
    dismix=Preset(hparams={"decide": "auto"}),
)  # fmt: skip
class POE(Grader):
    """Features, a mean and a variance for each image, a linear layer on draws."""

    config_type: ClassVar[type[GraderConfig]] = POEConfig
    min_batch = 2
    by_rank_with = ("decide", ("rank", "auto"))
    noise: Tensor

    def __init__(self, backbone: Backbone, num_ranks: int, **hparams: Any) -> None:
        super().__init__(backbone, num_ranks, **hparams)
        config: POEConfig = self.config
        self.hidden = nn.Linear(backbone.out_dim * config.grid**2, config.dim)
        self.mean = nn.Linear(config.dim, config.dim)
        # Variances start at one whatever the features are; means that start far below, as with
        # torch's own first weights, drown in the draws. The authors' mean layer is pretrained.
        for layer in (self.hidden, self.mean):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
        self.log_variance = nn.Linear(config.dim, config.dim)
        self.norm = nn.BatchNorm1d(config.dim, eps=1e-3, affine=False)
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(config.dim, num_ranks)
        self.loss = POELoss(
            num_ranks, alpha=config.alpha, beta=config.beta, margin=config.margin,
            min_gap=config.min_gap,
        )  # fmt: skip
        drawn = torch.randn(
            config.samples, 1, config.dim, generator=torch.Generator().manual_seed(0)
        )
        self.register_buffer("noise", drawn, persistent=False)

    def embed(self, images: Tensor) -> Gaussians:
        """Return the Gaussians of images (B, channels, H, W), float32."""
        grid = self.config.grid
        features = F.adaptive_avg_pool2d(self.backbone.forward_map(images), grid).flatten(1)
        hidden = self.dropout(F.relu(self.hidden(features)))
        spread = self.log_variance(hidden).float()
        # Batch statistics need two images; one alone is normalised as in evaluation.
        if self.training and len(spread) < 2:
            spread = F.batch_norm(spread, self.norm.running_mean, self.norm.running_var, eps=1e-3)
        else:
            spread = self.norm(spread)
        return Gaussians(F.relu(self.mean(hidden)), spread).float()

    def training_loss(
        self, images: Tensor, target: OrdinalTarget, stage: Stage, weights: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the loss over ``samples`` draws of each image."""
        gaussians = self.embed(images)
        shape = (self.config.samples, *gaussians.mean.shape)
        noise = torch.randn(shape, device=gaussians.mean.device, generator=self.draws)
        logits = self.head(self.dropout(_draws(gaussians, noise)))
        return self.loss.parts(logits, gaussians, target, weights)

    def grade(self, images: Tensor) -> Grades:
        """Average over the draws; uncertainty is the harmonic mean of the variances."""
        gaussians = self.embed(images)
        probs = self.head(_draws(gaussians, self.noise)).float().softmax(-1).mean(0)
        variance = 1.0 / torch.exp(-gaussians.log_variance).mean(-1)
        return Grades.from_probabilities(probs, cuts=self.deciding_cuts, uncertainty=variance)


def _draws(gaussians: Gaussians, noise: Tensor) -> Tensor:
    """Return mean + deviation * noise, (T, B, D)."""
    return gaussians.mean + (0.5 * gaussians.log_variance).exp() * noise
