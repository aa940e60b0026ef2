"""The loss of Rank-N-Contrast (Zha et al., NeurIPS 2023).

For an anchor i and another image j, all images at least as far from i in label as j is must be
less similar to i than j: a softmax over them. Similarity is the negative distance of features,
which are not normalised.

Beyond the release: label distances are Wasserstein distances of the votes, equal distances
are recognised with a tolerance, and the softmax is computed in float32 as a running
log-sum-exp along each row sorted by label distance, which cannot overflow and needs no
(n, n, n) tensor.
"""

import torch
from torch import Tensor, nn

from dismix.graders.base import full_precision, weighted_mean, without_ignored
from dismix.graders.inputs import law_of, require_shape
from dismix.labels import OrdinalTarget

# Distances of vote shares are ratios of small integers: equal, or farther apart than this.
_TIE = 1e-5


class RnCLoss(nn.Module):
    """Rank-N-Contrast over all pairs of a batch.

    Args:
        num_ranks: C.
        temperature: Divides the distances of features.
        min_gap: Label distances are rounded to multiples of it, so that tiny differences
            between mixes are not ranked; 0 ranks them all.

    Example:
        >>> features = torch.tensor([[0.0], [1.0], [3.0]])
        >>> RnCLoss(num_ranks=3)(features, torch.tensor([0, 1, 2]))
        tensor(0.3726)
    """

    def __init__(self, num_ranks: int, *, temperature: float = 2.0, min_gap: float = 0.0) -> None:
        super().__init__()
        self.num_ranks = num_ranks
        self.temperature, self.min_gap = temperature, min_gap

    def forward(
        self, features: Tensor, target: Tensor | OrdinalTarget, weights: Tensor | None = None
    ) -> Tensor:
        """Return the loss, 0 for fewer than two images.

        Args:
            features: (n, D); of several views of an image, one row each.
            target: n targets, see :meth:`OrdinalTarget.expand` for views.
            weights: (n,) or None.
        """
        law = law_of(target, self.num_ranks, weights)
        require_shape("features", features, {"n": len(law), "D": None})
        with full_precision(features):
            weights, features, law = without_ignored(weights, features.float(), law)
            if len(features) < 2:
                return features.sum() * 0.0
            distance = law.distance()
            if self.min_gap > 0:
                distance = (distance / self.min_gap).round() * self.min_gap
            # The matrix product form of cdist loses the small distances that matter most.
            apart = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")
            similar = without_diagonal(-apart / self.temperature)
            each = _row_losses(similar, without_diagonal(distance))
            return weighted_mean(each.mean(1), weights)


def without_diagonal(matrix: Tensor) -> Tensor:
    """Return a square matrix (n, n) without its diagonal, (n, n-1).

    Example:
        >>> without_diagonal(torch.arange(9).view(3, 3))
        tensor([[1, 2],
                [3, 5],
                [6, 7]])
    """
    count = len(matrix)
    return matrix.flatten()[1:].view(count - 1, count + 1)[:, :-1].reshape(count, count - 1)


def _row_losses(similar: Tensor, distance: Tensor) -> Tensor:
    """Return log(sum of exp over the images at least as far) - similarity, (n, m)."""
    far_first, order = distance.sort(dim=1, descending=True, stable=True)
    similar = similar.gather(1, order)
    running = torch.logcumsumexp(similar, dim=1)
    # Images as far as j, within the tolerance, all stand in its denominator.
    last = torch.searchsorted(-far_first, _TIE - far_first, right=True) - 1
    return running.gather(1, last) - similar
