"""The multi-margin N-pair loss of CLOC (Pitawela et al., CVPR 2025).

Images of the same rank must be more similar (cosine) than images of other ranks, by a margin
that is the sum of learned margins between the ranks in between.

Beyond the release: the mean over negatives, positives and anchors as the paper intends (the
release divides once more by the number of negatives: ``reduction="reference"``); a soft form
in which two images of votes at distance D < 1 are partly positive, partly negative, and
margins are Wasserstein distances with the learned margins as steps.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dismix.graders.base import full_precision, weighted_mean, without_ignored
from dismix.graders.inputs import law_of, require_shape
from dismix.labels import OrdinalTarget

Reduction = Literal["mean", "reference"]

# Cosines differ by at most 2; margins that sum to more can never all hold.
MAX_SUM_OF_MARGINS = 1.6
LEAST_MARGIN = 0.05


def default_margins(num_ranks: int) -> list[float]:
    """Return margins of 0.4 between neighbours, less where their sum would be too much.

    Example:
        >>> default_margins(5)
        [0.4, 0.4, 0.4, 0.4]
    """
    return [min(0.4, MAX_SUM_OF_MARGINS / (num_ranks - 1))] * (num_ranks - 1)


class CLOCLoss(nn.Module):
    """Multi-margin N-pair loss with learned margins.

    The hinge grows with every margin, so on single grades the gradient can only shrink them:
    train them for a while, then call :meth:`fix_margins`.

    Args:
        num_ranks: C.
        margins: C-1 starting values above 0.05, by default those of `default_margins`.
        reduction: "mean", or "reference" for the release's extra division by the number of
            negatives of each anchor.
        hard_contrast: Leave mixed images out of this term.

    Example:
        >>> loss = CLOCLoss(num_ranks=3, margins=[0.5, 0.5])
        >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> round(loss(features, torch.tensor([0, 0, 2])).item(), 4)
        0.0
        >>> round(loss(features, torch.tensor([0, 2, 2])).item(), 4)
        1.0
    """

    def __init__(
        self,
        num_ranks: int,
        margins: Sequence[float] | None = None,
        *,
        reduction: Reduction = "mean",
        hard_contrast: bool = False,
    ) -> None:
        super().__init__()
        start = default_margins(num_ranks) if margins is None else list(margins)
        # softplus inverted, above the floor that keeps margins from collapsing to nothing.
        raw = [math.log(math.expm1(max(value - LEAST_MARGIN, 1e-4))) for value in start]
        self.raw_margins = nn.Parameter(torch.tensor(raw, dtype=torch.float32))
        self.num_ranks = num_ranks
        self.reduction, self.hard_contrast = reduction, hard_contrast

    @property
    def margins(self) -> Tensor:
        """Margins (C-1,) between neighbouring ranks."""
        return LEAST_MARGIN + F.softplus(self.raw_margins.float())

    def fix_margins(self, fixed: bool = True) -> None:
        """Stop (or resume) learning the margins."""
        self.raw_margins.requires_grad_(not fixed)

    def forward(
        self, features: Tensor, target: Tensor | OrdinalTarget, weights: Tensor | None = None
    ) -> Tensor:
        """Return the loss; anchors without a positive and a negative count as 0.

        Args:
            features: (B, D), features or logits; only their direction matters.
            target: B targets.
            weights: (B,) or None.
        """
        law = law_of(target, self.num_ranks, weights)
        require_shape("features", features, {"B": len(law), "D": None})
        with full_precision(features):
            if self.hard_contrast:
                clean = law.clean.float()
                weights = clean if weights is None else weights * clean
            weights, features, law = without_ignored(weights, features, law)
            unit = F.normalize(features.float(), dim=-1, eps=1e-8)
            each = self._anchor_losses(unit @ unit.T, law)
            return weighted_mean(each, weights)

    def _anchor_losses(self, similar: Tensor, target: OrdinalTarget) -> Tensor:
        distance = target.distance()
        margin = target.distance(gaps=self.margins)
        positive = (1.0 - distance).clamp_min(0.0).masked_fill(_eye(distance), 0.0)
        negative = distance.clamp_max(1.0)
        if self.hard_contrast:
            positive, negative = positive * target.clean, negative * target.clean
        # gap[i, p, k]: how much more similar to i the negative k is than the positive p.
        gap = (similar + margin).unsqueeze(1) - (similar + margin).unsqueeze(2)
        pairs = positive.unsqueeze(2) * negative.unsqueeze(1)
        total = (gap.clamp_min(0.0) * pairs).sum((1, 2))
        each = total / pairs.sum((1, 2)).clamp_min(1e-12)
        if self.reduction == "reference":
            each = each / negative.sum(1).clamp_min(1.0)
        return each


def _eye(matrix: Tensor) -> Tensor:
    return torch.eye(len(matrix), dtype=torch.bool, device=matrix.device)
