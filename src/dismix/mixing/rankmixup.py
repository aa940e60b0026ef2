"""RankMixup's loss (Noh et al., ICCV 2023): confidence ordered as the mixing ratio is.

A loss and not a mixer: the classifier learns from clean images alone; mixes only say that
confidence must fall with the share of the dominant image. "Rank" is the rank of confidences,
nothing ordinal about the grades.

How ours differs from the authors' release: soft labels; any of our mixers makes the mixes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dismix.errors import DisMixError
from dismix.mixing.base import Mixer, Targets
from dismix.mixing.hooks import HiddenMixer


def ranking_loss(
    clean: Tensor, mixed: Tensor, target: Tensor, margin: float, rows: Tensor | None = None
) -> Tensor:
    """Return the mean hinge by which a mix is more confident than its clean image (MRL).

    Args:
        clean: Scores (B, C) of the images.
        mixed: Scores (B, C) of the mixes.
        target: Mixed targets (B, C); rows that are one rank only do not count.
        margin: By how much a mix must be less confident.
        rows: (B,) bool, those that were mixed; all by default. Soft labels of images left alone
            would otherwise count as mixes.

    Example:
        >>> clean, mixed = torch.tensor([[4.0, 0.0]]), torch.tensor([[3.0, 0.0]])
        >>> ranking_loss(clean, mixed, torch.tensor([[0.6, 0.4]]), margin=2.0)
        tensor(1.)
    """
    # paper: the mean is over all images, those that do not count included.
    counts = target.amax(1) < 1 - 1e-6
    if rows is not None:
        counts = counts & rows
    hinge = F.relu(mixed.float().amax(1) - clean.float().amax(1) + margin)
    return (hinge * counts).mean()


def ndcg_loss(clean: Tensor, mixed: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
    """Return how far confidences are from the order and size of the ratios (M-NDCG).

    Args:
        clean: Scores (B, C) of the images.
        mixed: Scores (B, C) of each view of mixes.
        targets: Mixed targets (B, C) of each view.

    Example:
        A model whose confidences equal the ratios pays nothing.

        >>> clean, half = torch.tensor([[50.0, 0.0]]), torch.tensor([[0.0, 0.0]])
        >>> ndcg_loss(clean, [half], [torch.tensor([[0.5, 0.5]])]).item()
        0.0
    """
    sure = torch.stack([F.softmax(m.float(), 1).amax(1) for m in mixed], 1)
    ratio = torch.stack([t.amax(1) for t in targets], 1)
    order = ratio.argsort(dim=1, descending=True, stable=True)
    sure = torch.cat([F.softmax(clean.float(), 1).amax(1, keepdim=True), sure.gather(1, order)], 1)
    ideal = torch.cat([torch.ones_like(ratio[:, :1]), ratio.gather(1, order)], 1)
    place = torch.arange(sure.shape[1], device=sure.device, dtype=torch.float32)
    discount = torch.log2(place + 2)
    gained, wanted = (sure / discount).sum(1), (ideal / discount).sum(1)
    return 1 - torch.minimum(gained / wanted, wanted / gained).mean()


@dataclass(frozen=True)
class RankMixupParts:
    """The loss (to be minimised) and its two parts."""

    loss: Tensor
    cross_entropy: Tensor
    ranking: Tensor


class RankMixupLoss(nn.Module):
    """Cross-entropy of the clean images and the ranking of confidences.

    Args:
        mix: Makes the mixes of pixels; it should have ``p=1`` and give soft targets.
        kind: "mrl" or "mndcg".
        margin: Of "mrl"; the authors use 2 for CIFAR and 1 for Tiny-ImageNet.
        weight: Of the ranking.
        views: Mixes of each image; by default 1 for "mrl" and 3 for "mndcg".
    """

    def __init__(
        self,
        mix: Mixer,
        *,
        kind: Literal["mrl", "mndcg"] = "mrl",
        margin: float = 2.0,
        weight: float = 0.1,
        views: int | None = None,
    ) -> None:
        super().__init__()
        if kind not in ("mrl", "mndcg"):
            raise DisMixError(f"unknown kind '{kind}'", cure="choose mrl or mndcg")
        if mix.target_form not in ("soft", "unimodal"):
            raise DisMixError("RankMixup needs targets (B, C)", cure="give the mixer target='soft'")
        if isinstance(mix, HiddenMixer):
            raise DisMixError(
                f"RankMixup needs mixed images, and {mix.method} mixes inside the model",
                cure="choose for example mixup or cutmix",
            )
        self.mix, self.kind, self.margin, self.weight = mix, kind, margin, weight
        self.views = views if views is not None else (1 if kind == "mrl" else 3)
        if self.views < 1:
            raise DisMixError(f"views is {self.views}", cure="give 1 or more")

    def forward(self, model: nn.Module, images: Tensor, targets: Targets) -> RankMixupParts:
        """Return the loss of a batch; the model is passed the images and their mixes."""
        given: dict[str, Any] = {"model": model} if self.mix.needs_saliency else {}
        made = [self.mix(images, targets, return_info=True, **given) for _ in range(self.views)]
        soft = [t if isinstance(t, Tensor) else t.probs for _, t, _ in made]
        sources = made[0][2].sources.probs
        scores = model(torch.cat([images, *[x for x, _, _ in made]])).chunk(1 + self.views)
        entropy = -(sources * F.log_softmax(scores[0].float(), 1)).sum(1).mean()
        if self.kind == "mrl":
            each = [
                ranking_loss(scores[0], s, t, self.margin, info.mixed)
                for s, t, (_, _, info) in zip(scores[1:], soft, made, strict=True)
            ]
            ranking = torch.stack(each).mean()
        else:
            ranking = ndcg_loss(scores[0], scores[1:], soft)
        return RankMixupParts(entropy + self.weight * ranking, entropy, ranking)
