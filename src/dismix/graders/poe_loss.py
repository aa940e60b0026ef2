"""The loss of probabilistic ordinal embeddings (Li et al., CVPR 2021).

Every image is a diagonal Gaussian. The loss has three parts: the task's cross-entropy over
draws of the embedding, the divergence from N(0, I), and a triplet term that asks Gaussians
of far ranks to lie farther apart than those of near ranks.

Beyond the paper: differences of labels are Wasserstein distances of the votes, and a triplet
counts only when its two differences differ by ``min_gap``, which changes nothing for single
grades and keeps mixes of nearly equal rank from being pushed apart by a full margin.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dismix.graders.base import full_precision, weighted_mean, without_ignored
from dismix.graders.cross_entropy import soft_cross_entropy
from dismix.graders.inputs import law_of, require_shape
from dismix.labels import OrdinalTarget

# exp(+-10) of a log-variance is far outside what training reaches and safe in float32.
MAX_LOG_VARIANCE = 10.0


@dataclass(frozen=True)
class Gaussians:
    """Diagonal Gaussians of a batch.

    Attributes:
        mean: (B, D).
        log_variance: (B, D).
    """

    mean: Tensor
    log_variance: Tensor

    def float(self) -> "Gaussians":
        """Return float32 values with bounded variance."""
        bound = MAX_LOG_VARIANCE
        return Gaussians(self.mean.float(), self.log_variance.float().clamp(-bound, bound))

    def __getitem__(self, index: Tensor) -> "Gaussians":
        return Gaussians(self.mean[index], self.log_variance[index])


def j_divergence(first: Gaussians, second: Gaussians) -> Tensor:
    """Return KL(first||second) + KL(second||first), row by row (B,).

    Example:
        >>> a, b = torch.zeros(1, 2), torch.ones(1, 2)
        >>> j_divergence(Gaussians(a, a), Gaussians(b, a))
        tensor([2.])
    """
    far = (first.mean - second.mean).square()
    ratio = first.log_variance - second.log_variance
    spread = torch.exp(-first.log_variance) + torch.exp(-second.log_variance)
    return 0.5 * (torch.exp(ratio) + torch.exp(-ratio) - 2.0 + far * spread).sum(-1)


def divergence_from_normal(gaussians: Gaussians) -> Tensor:
    """Return KL(N(mean, variance) || N(0, I)) of each row (B,)."""
    mean, log_variance = gaussians.mean, gaussians.log_variance
    return 0.5 * (mean.square() + log_variance.exp() - log_variance - 1.0).sum(-1)


@dataclass(frozen=True)
class Triplets:
    """For every image i of a batch, the neighbour j = i + 1 and the image k it is held against.

    Attributes:
        second: (B,) positions j.
        third: (B,) positions k.
        sign: (B,) the sign of D_ij - D_ik, 0 where no third image serves.
    """

    second: Tensor
    third: Tensor
    sign: Tensor


def choose_triplets(target: OrdinalTarget, min_gap: float = 0.5) -> Triplets:
    """Take the next image as the second and the nearest useful difference as the third.

    Args:
        target: B targets.
        min_gap: Least difference between D_ij and D_ik, in ranks.

    Example:
        >>> found = choose_triplets(OrdinalTarget.from_labels([0, 1, 3], num_ranks=4))
        >>> found.third.tolist(), found.sign.tolist()
        ([2, 0, 1], [-1.0, 1.0, 1.0])
    """
    distance = target.distance()
    count = len(distance)
    here = torch.arange(count, device=distance.device)
    second = (here + 1) % count
    gap = (distance - distance[here, second].unsqueeze(1)).abs()
    # Equal distances, the second image's own among them, order nothing whatever min_gap is.
    gap = gap.masked_fill(gap < max(min_gap, 1e-5), torch.inf).fill_diagonal_(torch.inf)
    best, third = gap.min(1)
    sign = torch.sign(distance[here, second] - distance[here, third])
    return Triplets(second, third, torch.where(best.isfinite(), sign, torch.zeros_like(sign)))


class POELoss(nn.Module):
    """Cross-entropy + ``alpha`` * divergence from N(0, I) + ``beta`` * triplets.

    Args:
        num_ranks: C.
        alpha: Weight of the divergence, a sum over the D dimensions.
        beta: Weight of the triplets, whose distances are sums over D too.
        margin: By how much triplets must hold.
        min_gap: Least difference of label distances that makes a triplet, in ranks.

    Example:
        >>> same = Gaussians(torch.zeros(3, 8), torch.zeros(3, 8))
        >>> POELoss(num_ranks=3)(torch.zeros(5, 3, 3), same, torch.tensor([0, 1, 2]))
        tensor(1.0991)
    """

    def __init__(
        self,
        num_ranks: int,
        *,
        alpha: float = 1e-4,
        beta: float = 1e-4,
        margin: float = 5.0,
        min_gap: float = 0.5,
    ) -> None:
        super().__init__()
        self.num_ranks = num_ranks
        self.alpha, self.beta, self.margin, self.min_gap = alpha, beta, margin, min_gap

    def forward(
        self,
        logits: Tensor,
        gaussians: Gaussians,
        target: Tensor | OrdinalTarget,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Return the loss; arguments as of :meth:`parts`."""
        return self.parts(logits, gaussians, target, weights)["loss"]

    def parts(
        self,
        logits: Tensor,
        gaussians: Gaussians,
        target: Tensor | OrdinalTarget,
        weights: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return "loss" and its parts, unscaled.

        Args:
            logits: (T, B, C) of T draws, or (B, C).
            gaussians: Of the B images.
            target: B targets. Their order matters: the second image of a triplet is the
                next one of the batch, so batches must be shuffled.
            weights: (B,) or None.
        """
        law = law_of(target, self.num_ranks, weights)
        sizes: dict[str, int | None] = {"B": len(law), "C": self.num_ranks}
        require_shape("logits", logits, sizes if logits.ndim < 3 else {"T": None, **sizes})
        for name, values in vars(gaussians).items():
            require_shape(f"gaussians.{name}", values, {"B": len(law), "D": None})
        with full_precision(gaussians.mean):
            gaussians = gaussians.float()
            draws = logits if logits.ndim == 3 else logits.unsqueeze(0)
            task = soft_cross_entropy(
                draws.flatten(0, 1),
                law.probs.repeat(len(draws), 1),
                None if weights is None else weights.repeat(len(draws)),
            )
            normal = weighted_mean(divergence_from_normal(gaussians), weights)
            order = self.order(gaussians, law, weights)
            loss = task + self.alpha * normal + self.beta * order
        return {"loss": loss, "task": task, "normal": normal, "order": order}

    def order(
        self, gaussians: Gaussians, target: OrdinalTarget, weights: Tensor | None = None
    ) -> Tensor:
        """Return the mean of the violated triplets, 0 when none is."""
        weights, gaussians, target = without_ignored(weights, gaussians, target)
        if len(target) == 0:
            return gaussians.mean.sum() * 0.0
        chosen = choose_triplets(target, self.min_gap)
        near = j_divergence(gaussians, gaussians[chosen.second])
        far = j_divergence(gaussians, gaussians[chosen.third])
        hinge = (chosen.sign * (far - near) + self.margin).clamp_min(0.0)
        active = ((chosen.sign != 0) & (hinge > 0)).float()
        return weighted_mean(hinge, active if weights is None else active * weights)
