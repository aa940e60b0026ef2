"""Moving window regression (Shin et al., CVPR 2022): where an image lies between two others.

How ours differs: see `dismix.graders.mwr_loss` and `dismix.graders.mwr_search`. Only the global
regressor is here (the release cannot train the local ones), with a dropout of 0.5.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from dismix.graders.backbones import Backbone
from dismix.graders.base import (
    Grader,
    GraderConfig,
    Grades,
    LabelledBatches,
    Stage,
    full_precision,
)
from dismix.graders.choices import bounded
from dismix.graders.mwr_loss import MWRLoss, RhoRegressor, Scheme
from dismix.graders.mwr_search import choose_pairs, search
from dismix.graders.neighbours import nearest_neighbours
from dismix.graders.registry import Preset, register_grader
from dismix.labels import OrdinalTarget


@dataclass(frozen=True)
class MWRConfig(GraderConfig):
    """Settings of MWR.

    Attributes:
        scheme: "arithmetic" windows two ranks wide, or the release's "geometric" ones, which
            hold no rank inside them on a scale of few grades.
        hidden: Width of the regressor.
        dropout: In the regressor.
        repeats: Triplets for each image of a batch.
        memory: Features of each rank remembered within an epoch.
        neighbours: Training images whose mean rank starts the search.
        pairs: Reference pairs of each window.
        candidates: Pairs tried to find those.
        probes: Training images on which pairs are compared.
    """

    scheme: Scheme = "arithmetic"
    hidden: int = bounded(512, least=1)
    dropout: float = bounded(0.5, least=0, below=1)
    repeats: int = bounded(4, least=1)
    memory: int = bounded(8, least=0)
    neighbours: int = bounded(5, least=1)
    pairs: int = bounded(5, least=1)
    candidates: int = bounded(32, least=1)
    probes: int = bounded(128, least=1)


_REFERENCE = Preset(
    "vgg16_bn", epochs=300, batch_size=48, weight_decay=0.0, schedule="constant",
    hparams={"scheme": "geometric", "dropout": 0.8, "repeats": 1},
)  # fmt: skip


@register_grader("mwr", "regression inside a moving window of ranks", reference=_REFERENCE)
class MWR(Grader):
    """A regressor over pairs of reference images, searched from the neighbours' rank.

    The mean estimate over the pairs decides, see `dismix.graders.cut_points`.
    """

    config_type: ClassVar[type[GraderConfig]] = MWRConfig
    min_batch = 2
    uses_reference = True
    by_rank = True

    def __init__(self, backbone: Backbone, num_ranks: int, **hparams: Any) -> None:
        super().__init__(backbone, num_ranks, **hparams)
        config: MWRConfig = self.config
        regressor = RhoRegressor(backbone.out_dim, config.hidden, config.dropout)
        self.loss = MWRLoss(
            num_ranks, regressor, scheme=config.scheme, repeats=config.repeats,
            memory=config.memory,
        )  # fmt: skip

    def start_epoch(self, seed: int) -> None:
        """Seed the draws and forget the features of the epoch before."""
        super().start_epoch(seed)
        self.loss.forget()

    def training_loss(
        self, images: Tensor, target: OrdinalTarget, stage: Stage, weights: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the squared error of rho over triplets drawn in the batch."""
        features = self.backbone(images)
        return {"loss": self.loss(features, target, weights, generator=self.draws)}

    def fit_reference(
        self, batches: LabelledBatches, validation: LabelledBatches | None = None
    ) -> None:
        """Take features of the training images and choose the pairs of each window.

        A rank that no training image has is replaced by the nearest one that is there.
        """
        found = [(self.backbone(images.to(self.device)), target) for images, target in batches]
        features = torch.cat([f.float() for f, _ in found])
        target = OrdinalTarget.cat([t.to(self.device) for _, t in found])
        config: MWRConfig = self.config
        # As in training, the regressor and the places of its windows are float32.
        with full_precision(features):
            pairs = choose_pairs(
                self.loss.regressor, features, target, self.loss.windows,
                count=config.pairs, candidates=config.candidates, probes=config.probes,
            )  # fmt: skip
        self.reference = {"features": features, "rank": target.rank, **pairs}

    def grade(self, images: Tensor) -> Grades:
        """Search from the neighbours' rank; uncertainty is the spread over pairs, in ranks."""
        known = self.require_reference()
        features = self.backbone(images).float()
        near = nearest_neighbours(features, known["features"], self.config.neighbours)
        start = known["rank"][near].mean(1)
        with full_precision(features):
            found = search(self.loss.regressor, features, start, known, self.loss.windows)
        return Grades.from_probabilities(
            found.probabilities, cuts=self.deciding_cuts, uncertainty=found.spread
        )
