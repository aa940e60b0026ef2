"""Geometric order learning (Lee et al., NeurIPS 2022): neighbours on an ordered sphere.

How ours differs: see `dismix.graders.gol_loss`. The number of neighbours is chosen on the
validation images, not on those that are reported; it is odd, and halves are rounded up. The
release drops the last activation of its VGG16; here a linear layer after the pooled features
makes the embedding signed for any backbone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dismix.errors import DisMixError
from dismix.graders.backbones import Backbone
from dismix.graders.base import Grader, GraderConfig, Grades, LabelledBatches, Stage
from dismix.graders.choices import bounded
from dismix.graders.cut_points import Decide
from dismix.graders.gol_loss import GOLLoss
from dismix.graders.neighbours import nearest_neighbours
from dismix.graders.registry import Preset, register_grader
from dismix.labels import OrdinalTarget
from dismix.laws import levels_from_probs

DEFAULT_NEIGHBOURS = 5


@dataclass(frozen=True)
class GOLConfig(GraderConfig):
    """Settings of GOL.

    Attributes:
        dim: Dimension of the sphere's space; 0 takes the pooled features as they are, which
            only signed features allow.
        points: Number of reference points; None is one for each rank.
        gamma: Margin of the metric loss.
        tau: Distance in ranks up to which images count as similar. The release's 1 would
            declare neighbouring grades equal.
        pairs_per_order: See `GOLLoss`.
        neighbours: Candidates for the number of neighbours, chosen among on validation.
        decide: For the most probable rank ("mode"), where the expected rank lies between cut
            points ("rank"), or as is better on validation ("auto"). # paper: the release rounds
            the expected rank; on held-out photographs that hits less often (`results/graders`).
    """

    dim: int = bounded(512, least=0)
    points: int | None = bounded(None, least=2)
    gamma: float = bounded(0.25, least=0)
    tau: float = bounded(0.0, least=0)
    pairs_per_order: int | None = bounded(32, least=1)
    neighbours: tuple[int, ...] = bounded((1, 3, 5, 7, 11, 15), least=1)
    decide: Decide = "auto"


_REFERENCE = Preset(
    "vgg16_bn", epochs=100, batch_size=32, weight_decay=5e-4, final_lr=1e-3,
    hparams={"decide": "rank"},
)  # fmt: skip


@register_grader(
    "gol", "neighbours on an ordered sphere", reference=_REFERENCE,
    dismix=Preset(weight_decay=5e-4, hparams={"decide": "auto"}),
)  # fmt: skip
class GOL(Grader):
    """Unit embeddings; the law is the mean of the votes of the nearest training images."""

    config_type: ClassVar[type[GraderConfig]] = GOLConfig
    min_batch = 2
    uses_reference = True
    by_rank_with = ("decide", ("rank", "auto"))

    def __init__(self, backbone: Backbone, num_ranks: int, **hparams: Any) -> None:
        super().__init__(backbone, num_ranks, **hparams)
        config: GOLConfig = self.config
        if config.dim == 0 and backbone.relu_out:
            raise DisMixError(
                f"features of '{backbone.name}' are never negative and cannot fill a sphere",
                column="dim",
                cure="set dim to 512",
            )
        dim = config.dim or backbone.out_dim
        if dim < 2:
            raise DisMixError("a sphere needs two dimensions", column="dim", cure="set dim to 512")
        self.project = nn.Linear(backbone.out_dim, dim) if config.dim else nn.Identity()
        self.loss = GOLLoss(
            num_ranks, dim, points=config.points, gamma=config.gamma, tau=config.tau,
            pairs_per_order=config.pairs_per_order,
        )  # fmt: skip

    def embed(self, images: Tensor) -> Tensor:
        """Return unit embeddings (B, D) of images, float32."""
        return F.normalize(self.project(self.backbone(images)).float(), dim=-1, eps=1e-8)

    def training_loss(
        self, images: Tensor, target: OrdinalTarget, stage: Stage, weights: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return order + metric + centre loss."""
        return self.loss.parts(self.embed(images), target, weights)

    def fit_reference(
        self, batches: LabelledBatches, validation: LabelledBatches | None = None
    ) -> None:
        """Embed the training images and choose the number of neighbours on validation.

        The number with the least ranked probability score wins: it uses the votes, and is far
        steadier on few images than the accuracy. Without validation images it is 5.
        """
        embeddings, probs = self._embed_all(batches)
        known = {"embeddings": embeddings, "probs": probs}
        count = min(DEFAULT_NEIGHBOURS, len(probs))
        if validation is not None:
            seen, votes = self._embed_all(validation)
            if len(seen):
                count = best_count(self.config.neighbours, seen, votes, embeddings, probs)
        self.reference = {**known, "neighbours": torch.tensor(count, device=probs.device)}

    def grade(self, images: Tensor) -> Grades:
        """Average the votes of the nearest training images; uncertainty is their spread."""
        known = self.require_reference()
        near = nearest_neighbours(self.embed(images), known["embeddings"], int(known["neighbours"]))
        probs = known["probs"][near].mean(1)
        return Grades.from_probabilities(
            probs, cuts=self.deciding_cuts, uncertainty=rank_spread(probs)
        )

    def _embed_all(self, batches: LabelledBatches) -> tuple[Tensor, Tensor]:
        found = [(self.embed(images.to(self.device)), target.probs) for images, target in batches]
        if not found:
            return torch.zeros(0, device=self.device), torch.zeros(0, device=self.device)
        return torch.cat([f for f, _ in found]), torch.cat([p.to(self.device) for _, p in found])


def best_count(
    candidates: Sequence[int], seen: Tensor, votes: Tensor, reference: Tensor, probs: Tensor
) -> int:
    """Return the number of neighbours with the least ranked probability score.

    Args:
        candidates: Numbers to try; those beyond N are left out.
        seen: Embeddings (V, D) of validation images.
        votes: Their targets (V, C).
        reference: Embeddings (N, D).
        probs: Their targets (N, C).
    """
    usable = [count for count in sorted(candidates) if count <= len(probs)] or [len(probs)]
    # Distances of all to all would grow with both.
    parts = [nearest_neighbours(part, reference, usable[-1]) for part in torch.split(seen, 256)]
    near = torch.cat(parts)
    wanted = levels_from_probs(votes)
    scores = []
    for count in usable:
        levels = levels_from_probs(probs[near[:, :count]].mean(1))
        scores.append(float((levels - wanted).square().sum(-1).mean()))
    return usable[scores.index(min(scores))]


def rank_spread(probs: Tensor) -> Tensor:
    """Return the standard deviation (B,) of the rank under laws (B, C).

    Example:
        >>> rank_spread(torch.tensor([[0.5, 0.0, 0.5]]))
        tensor([1.])
    """
    ranks = torch.arange(probs.shape[-1], device=probs.device).float()
    mean = (probs * ranks).sum(-1, keepdim=True)
    return (probs * (ranks - mean).square()).sum(-1).sqrt()
