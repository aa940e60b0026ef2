"""The losses of geometric order learning (Lee et al., NeurIPS 2022).

Embeddings lie on a sphere beside M learned reference points, one for each rank. Three losses:
*order*, the direction from a lower to a higher image follows that from the lower to the higher
reference point; *metric*, distances to the reference points respect the ranks by a margin;
*centre*, an image lies at the point of its rank.

Beyond the release: every pair of the batch is used, in both directions, weighted as the
release's sampling would keep it on average; and soft labels: D is the Wasserstein distance of
two images' votes, a pair counts as separated with share min(1, D) and as similar with the rest,
margins shrink by the same share, and the centre of mixed votes is the normalised mean of the
points. All of it is the original for single grades.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dismix.graders.base import full_precision, weighted_mean
from dismix.graders.inputs import law_of, require_shape
from dismix.labels import OrdinalTarget

# Below this many ranks apart, which of two images is the higher one is noise.
MIN_GAP = 0.05
# Sums of vote shares are whole numbers only up to rounding.
_ROUND = 1e-4
# Cosines are multiplied by this before the softmax, as in the release.
_SHARPNESS = 20.0


def half_circle(points: int, dim: int, generator: torch.Generator | None = None) -> Tensor:
    """Return unit vectors (M, D), equally spaced on half of a random great circle.

    Example:
        >>> points = half_circle(5, 8, torch.Generator().manual_seed(0))
        >>> torch.cdist(points[:1], points).round(decimals=4)
        tensor([[0.0000, 0.7654, 1.4142, 1.8478, 2.0000]])
    """
    basis, _ = torch.linalg.qr(torch.randn(dim, 2, generator=generator))
    angle = math.pi * torch.arange(points) / (points - 1)
    points_on_circle: Tensor = torch.stack([angle.cos(), angle.sin()], 1) @ basis.T
    return points_on_circle


def enclosing_points(lower: Tensor, higher: Tensor, step: float) -> tuple[Tensor, Tensor]:
    """Return the last point at or below ``lower`` and the first at or above ``higher``.

    Args:
        lower: Ranks (P,).
        higher: Ranks (P,), above the lower ones.
        step: Ranks between two neighbouring points.

    Example:
        >>> enclosing_points(torch.tensor([1.2, 2.0]), torch.tensor([1.7, 3.0]), step=1.0)
        (tensor([1, 2]), tensor([2, 3]))
    """
    below = (lower / step + _ROUND).floor().long()
    above = (higher / step - _ROUND).ceil().long()
    return below, above


@dataclass(frozen=True)
class Pairs:
    """The pairs of a batch, P = B (B - 1) / 2.

    Attributes:
        low: (P,) positions of the image of lower expected rank.
        high: (P,) positions of the other.
        below: (P,) last reference point at or below the lower rank.
        above: (P,) first reference point at or above the higher rank.
        share: (P,) min(1, D).
        separated: (P,) share to which the pair counts as separated, beyond tau.
        ordered: (P,) bool, whether it is known which image is the higher.
        weight: (P,) product of the weights of the two images.
    """

    low: Tensor
    high: Tensor
    below: Tensor
    above: Tensor
    share: Tensor
    separated: Tensor
    ordered: Tensor
    weight: Tensor


def make_pairs(
    target: OrdinalTarget, points: int, tau: float = 0.0, weights: Tensor | None = None
) -> Pairs:
    """List the pairs of a batch.

    Args:
        target: B targets.
        points: M.
        tau: Distance in ranks up to which images count as similar.
        weights: (B,) or None.
    """
    rank, distance = target.rank, target.distance()
    i, j = torch.triu_indices(len(rank), len(rank), offset=1, device=rank.device).unbind()
    low, high = torch.where(rank[i] <= rank[j], i, j), torch.where(rank[i] <= rank[j], j, i)
    far = distance[low, high]
    step = (target.num_ranks - 1) / (points - 1)
    below, above = enclosing_points(rank[low], rank[high], step)
    ordered = (far >= MIN_GAP) & (rank[high] - rank[low] >= MIN_GAP)
    weight = torch.ones_like(far) if weights is None else weights[low] * weights[high]
    return Pairs(
        low, high, below, above, far.clamp_max(1.0), (far - tau).clamp(0.0, 1.0), ordered, weight
    )


class GOLLoss(nn.Module):
    """Order + metric + centre loss, with the reference points.

    Args:
        num_ranks: C.
        dim: Dimension D of the embeddings.
        points: Number M of reference points, by default C.
        gamma: Margin of the metric loss.
        tau: Distance in ranks up to which images count as similar.
        pairs_per_order: The release keeps up to this many pairs with the first image lower,
            higher, and similar; pairs are weighted as if drawn so. None counts all alike.

    Example:
        >>> loss = GOLLoss(num_ranks=3, dim=4)
        >>> labels = torch.tensor([0, 1, 2])
        >>> loss.parts(loss.reference_points, labels)["centre"].item()
        0.0
    """

    centres: Tensor

    def __init__(
        self,
        num_ranks: int,
        dim: int,
        *,
        points: int | None = None,
        gamma: float = 0.25,
        tau: float = 0.0,
        pairs_per_order: int | None = 32,
    ) -> None:
        super().__init__()
        self.num_ranks, self.points = num_ranks, points or num_ranks
        self.gamma, self.tau, self.pairs_per_order = gamma, tau, pairs_per_order
        self.raw_points = nn.Parameter(half_circle(self.points, dim))
        step = (num_ranks - 1) / (self.points - 1)
        gap = (torch.arange(num_ranks).unsqueeze(1) - step * torch.arange(self.points)).abs()
        nearest = (gap <= gap.amin(1, keepdim=True) + _ROUND).float()
        # Row c says which points stand for rank c: the nearest one, or two equally near.
        self.register_buffer("centres", nearest / nearest.sum(1, keepdim=True), persistent=False)

    @property
    def reference_points(self) -> Tensor:
        """Unit vectors (M, D)."""
        return F.normalize(self.raw_points.float(), dim=-1, eps=1e-8)

    def forward(
        self, embeddings: Tensor, target: Tensor | OrdinalTarget, weights: Tensor | None = None
    ) -> Tensor:
        """Return the loss; arguments as of :meth:`parts`."""
        return self.parts(embeddings, target, weights)["loss"]

    def parts(
        self, embeddings: Tensor, target: Tensor | OrdinalTarget, weights: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return "loss" and its parts.

        Args:
            embeddings: (B, D), normalised here.
            target: B targets.
            weights: (B,) or None.
        """
        law = law_of(target, self.num_ranks, weights)
        require_shape("embeddings", embeddings, {"B": len(law), "D": self.raw_points.shape[1]})
        with full_precision(embeddings):
            unit = F.normalize(embeddings.float(), dim=-1, eps=1e-8)
            pairs = make_pairs(law, self.points, self.tau, weights)
            order, metric = self.order(unit, pairs), self.metric(unit, pairs)
            centre = self.centre(unit, law, weights)
            total = order + metric + centre
        return {"loss": total, "order": order, "metric": metric, "centre": centre}

    def order(self, unit: Tensor, pairs: Pairs) -> Tensor:
        """Return the order loss, the mean over separated pairs and both directions."""
        points, last = self.reference_points, self.points - 1
        below, above = pairs.below.clamp(0, last), pairs.above.clamp(0, last)
        upward = _unit(unit[pairs.high] - unit[pairs.low])
        right = (upward * _unit(points[above] - points[below])).sum(-1)
        # At either end there is no point beyond, and the way back stands in for it.
        before = torch.where(below > 0, below - 1, below)
        away_low = _unit(points[before] - points[torch.where(below > 0, below, below + 1)])
        after = torch.where(above < last, above + 1, above)
        away_high = _unit(points[after] - points[torch.where(above < last, above, above - 1)])
        wrong_low = (upward * away_low).sum(-1)
        wrong_high = -(upward * away_high).sum(-1)
        each = F.softplus(_SHARPNESS * (wrong_low - right))
        each = 0.5 * (each + F.softplus(_SHARPNESS * (wrong_high - right)))
        return weighted_mean(each, pairs.share * pairs.ordered * pairs.weight)

    def metric(self, unit: Tensor, pairs: Pairs) -> Tensor:
        """Return the metric loss, the mean over pairs of the sum over reference points."""
        points = self.reference_points
        apart = torch.cdist(unit, points, compute_mode="donot_use_mm_for_euclid_dist")
        low, high = apart[pairs.low], apart[pairs.high]
        number = torch.arange(self.points, device=unit.device)
        under = number <= pairs.below.unsqueeze(1)
        over = number >= pairs.above.unsqueeze(1)
        margin = (self.gamma * pairs.share).unsqueeze(1)
        hinge = (low - high + margin).clamp_min(0) * under + (high - low + margin).clamp_min(
            0
        ) * over
        slack = 0.0 if self.tau == 0 else self.gamma
        alike = ((low - high).abs() - slack).clamp_min(0)
        separated = pairs.separated * pairs.ordered * pairs.weight
        similar = (1.0 - pairs.separated) * pairs.weight
        separated = separated * self._kept(separated, 2)
        similar = similar * self._kept(similar, 1)
        total = (separated * hinge.sum(1) + similar * alike.sum(1)).sum()
        return total / (separated.sum() + similar.sum()).clamp_min(1e-12)

    def centre(self, unit: Tensor, target: OrdinalTarget, weights: Tensor | None) -> Tensor:
        """Return the mean distance to the point of each image's votes."""
        place = target.probs @ self.centres @ self.reference_points
        # Votes for opposite ranks may cancel: then no direction is right.
        known = (place.norm(dim=-1) >= 1e-3).float()
        each = (unit - _unit(place)).norm(dim=-1)
        return weighted_mean(each, known if weights is None else known * weights)

    def _kept(self, weight: Tensor, orders: int) -> Tensor | float:
        """Return the chance that the release keeps a pair of a kind with ``orders`` orders."""
        if self.pairs_per_order is None:
            return 1.0
        count = (weight > 0).sum().clamp_min(1)
        return (self.pairs_per_order * orders / count).clamp_max(1.0)


def _unit(vectors: Tensor) -> Tensor:
    return F.normalize(vectors, dim=-1, eps=1e-8)
