"""The loss of moving window regression (Shin et al., CVPR 2022).

A regressor sees two reference images, at the ends of a window of ranks, and a third image, and
says where in the window the third lies: rho from -1 (lower end) to 1 (upper end).

Beyond the release: windows of arithmetic ranks [r-1, r+1], because the release's geometric
windows have no rank inside them on a scale of few grades (``scheme="geometric"`` keeps them);
targets for votes are the mean of the votes' own rho; triplets are drawn inside a batch, so that
each image is encoded once instead of three times, with a few remembered features of each rank
for ends that a batch lacks.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from dismix.graders.base import full_precision, weighted_mean, without_ignored
from dismix.graders.inputs import law_of, require_shape
from dismix.labels import OrdinalTarget

Scheme = Literal["arithmetic", "geometric"]

# The window's centre lies -2, -1, 0, 1 or 2 ranks from the third image with chances 10, 20, 40,
# 20 and 10 %, the release's bands; these are the sums of the chances.
CHANCES = (0.1, 0.3, 0.7, 0.9)
# Ends whose own votes put them closer than this, in positions, make no window.
_MIN_WIDTH = 0.5
_MIN_MAJORITY = 0.5


@dataclass(frozen=True)
class Windows:
    """The windows of a scale.

    Attributes:
        positions: (C,) where ranks lie on the axis of regression.
        low: (W,) long, rank at the lower end of each window.
        high: (W,) long, rank at the upper end.
        scheme: Of the positions: ranks, or logarithms of ranks counted from one.
    """

    positions: Tensor
    low: Tensor
    high: Tensor
    scheme: Scheme = "arithmetic"

    @classmethod
    def of(cls, num_ranks: int, scheme: Scheme = "arithmetic") -> "Windows":
        """Lay windows over 0..C-1.

        Example:
            >>> windows = Windows.of(5)
            >>> windows.low.tolist(), windows.high.tolist()
            ([0, 1, 2], [2, 3, 4])
        """
        ranks = torch.arange(num_ranks)
        if scheme == "geometric":
            return cls((ranks + 1).float().log(), ranks[:-1], ranks[1:], scheme)
        low = torch.arange(max(1, num_ranks - 2))
        return cls(ranks.float(), low, (low + 2).clamp_max(num_ranks - 1))

    def around(self, rank: Tensor) -> Tensor:
        """Return the window whose centre is nearest to each rank, the upper one on ties."""
        centre = 0.5 * (self.low + self.high).float()
        return (rank - centre[0] + 0.5).floor().long().clamp(0, len(self.low) - 1)

    def rank(self, position: Tensor) -> Tensor:
        """Return the ranks, clipped to 0..C-1, at positions of any shape."""
        rank = position.exp() - 1.0 if self.scheme == "geometric" else position
        return rank.clamp(0, len(self.positions) - 1)


def relative_rank(probs: Tensor, positions: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the mean over votes of rho, where each image lies in its window.

    Args:
        probs: Votes (n, C).
        positions: Of the ranks (C,).
        low: Positions (n,) of the lower ends.
        high: Positions (n,) of the upper ends, above the lower.

    Example:
        >>> law = torch.tensor([[0.0, 0.5, 0.5, 0.0]])
        >>> relative_rank(law, torch.arange(4.0), torch.tensor([0.0]), torch.tensor([2.0]))
        tensor([0.5000])
    """
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    rho = (positions - middle.unsqueeze(1)) / half.unsqueeze(1).clamp_min(1e-6)
    return (probs * rho.clamp(-1.0, 1.0)).sum(-1)


def absolute_rank(rho: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Invert :func:`relative_rank` for a single position inside the window."""
    return 0.5 * (low + high) + rho * 0.5 * (high - low)


class RhoRegressor(nn.Module):
    """Maps features of a window's ends and of an image to rho in (-1, 1).

    Args:
        dim: D of the features.
        hidden: Width of the two hidden layers.
        dropout: Before the last layer.
    """

    def __init__(self, dim: int, hidden: int = 512, dropout: float = 0.5) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(3 * dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Dropout(dropout), nn.Linear(hidden, 1), nn.Tanh(),
        )  # fmt: skip

    def forward(self, low: Tensor, high: Tensor, image: Tensor) -> Tensor:
        """Return rho (n,) from three features (n, D)."""
        rho: Tensor = self.layers(torch.cat([low, high, image], -1))
        return rho.squeeze(-1).float()


@dataclass(frozen=True)
class Triplets:
    """Positions in a pool of n features; the third image is one of the batch.

    Attributes:
        low: (m,) image at the lower end.
        high: (m,) image at the upper end.
        image: (m,) the image between.
        valid: (m,) bool, False where an end was not to be had.
    """

    low: Tensor
    high: Tensor
    image: Tensor
    valid: Tensor


def draw_triplets(
    target: OrdinalTarget,
    ends: OrdinalTarget,
    windows: Windows,
    *,
    repeats: int = 1,
    generator: torch.Generator | None = None,
) -> Triplets:
    """Draw windows around every image, and images at their ends.

    Args:
        target: B targets.
        ends: Targets of the pool: the B images, then those remembered. Only clean images with
            a majority serve as ends, those of the batch first, never the image itself.
        windows: Of the scale.
        repeats: Windows for each image.
        generator: On the targets' device.
    """
    device = target.probs.device
    image = torch.arange(len(target), device=device).repeat(repeats)
    chance = torch.rand(len(image), device=device, generator=generator)
    offset = torch.stack([chance > limit for limit in CHANCES]).sum(0) - 2
    window = windows.around((target.hard[image] + offset).float())
    serves = ends.clean & (ends.probs.amax(1) >= _MIN_MAJORITY)
    found = []
    for wanted in (windows.low[window], windows.high[window]):
        luck = torch.rand(len(image), len(ends), device=device, generator=generator)
        luck[:, : len(target)] += 1.0
        fits = serves & (ends.hard == wanted.unsqueeze(1))
        fits &= torch.arange(len(ends), device=device) != image.unsqueeze(1)
        found.append(luck.masked_fill(~fits, -1.0).max(1))
    place = ends.probs @ windows.positions
    # Geometric windows are narrower than one rank: half of the window's nominal width.
    least = _MIN_WIDTH * (windows.positions[windows.high] - windows.positions[windows.low])[window]
    (low_luck, low), (high_luck, high) = found
    wide = place[high] - place[low] >= least.clamp_max(_MIN_WIDTH)
    return Triplets(low, high, image, (low_luck >= 0) & (high_luck >= 0) & wide)


class MWRLoss(nn.Module):
    """Squared error of rho over triplets drawn in the batch.

    Args:
        num_ranks: C.
        regressor: Called with features (low, high, image), returns rho (m,).
        scheme: Of the windows.
        repeats: Triplets for each image.
        memory: Features remembered of each rank.
    """

    _positions: Tensor
    _low: Tensor
    _high: Tensor

    def __init__(
        self,
        num_ranks: int,
        regressor: nn.Module,
        *,
        scheme: Scheme = "arithmetic",
        repeats: int = 4,
        memory: int = 8,
    ) -> None:
        super().__init__()
        self.num_ranks, self.regressor = num_ranks, regressor
        self.repeats, self.memory, self.scheme = repeats, memory, scheme
        windows = Windows.of(num_ranks, scheme)
        for name in ("positions", "low", "high"):
            self.register_buffer(f"_{name}", getattr(windows, name), persistent=False)
        self._remembered: tuple[Tensor, OrdinalTarget] | None = None

    @property
    def windows(self) -> Windows:
        """The windows, on the module's device."""
        return Windows(self._positions, self._low, self._high, self.scheme)

    def forget(self) -> None:
        """Drop the remembered features."""
        self._remembered = None

    def forward(
        self,
        features: Tensor,
        target: Tensor | OrdinalTarget,
        weights: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the loss, 0 when no window has both ends.

        Args:
            features: (B, D).
            target: B targets.
            weights: (B,) or None, of the third images.
            generator: Of the draws, on the features' device.
        """
        law = law_of(target, self.num_ranks, weights)
        require_shape("features", features, {"B": len(law), "D": None})
        weights, features, law = without_ignored(weights, features, law)
        if len(law) == 0:
            return features.sum() * 0.0
        with full_precision(features):
            features = features.float()
            windows = self.windows
            pool, ends = self._pool(features, law)
            drawn = draw_triplets(law, ends, windows, repeats=self.repeats, generator=generator)
            place = ends.probs @ windows.positions
            low, high = place[drawn.low], place[drawn.high]
            wanted = relative_rank(law.probs[drawn.image], windows.positions, low, high)
            rho = self.regressor(pool[drawn.low], pool[drawn.high], pool[drawn.image])
            weight = drawn.valid.float()
            if weights is not None:
                weight = weight * weights[drawn.image]
            # Without a window there is no target; its placeholder must not reach the mean.
            wanted = torch.where(drawn.valid, wanted, torch.zeros_like(wanted))
            loss = weighted_mean((rho - wanted).square(), weight)
        if self.training:
            self._remember(features.detach(), law)
        return loss

    def _pool(self, features: Tensor, target: OrdinalTarget) -> tuple[Tensor, OrdinalTarget]:
        if self._remembered is None:
            return features, target
        kept, ends = self._remembered
        pool = torch.cat([features, kept.to(features)])
        return pool, OrdinalTarget.cat([target, ends.to(features.device)])

    def _remember(self, features: Tensor, target: OrdinalTarget) -> None:
        """Keep the newest clean features of each rank, without asking the device how many."""
        features, target = self._pool(features, target)
        serves = target.clean & (target.probs.amax(1) >= _MIN_MAJORITY)
        ranks = torch.arange(self.num_ranks, device=features.device)
        of_rank = serves.unsqueeze(1) & (target.hard.unsqueeze(1) == ranks)
        age = torch.arange(len(features), 0, -1, device=features.device).unsqueeze(1)
        found, newest = (of_rank * age).topk(min(self.memory, len(features)), dim=0)
        newest = newest.flatten()
        ends = OrdinalTarget(target.probs[newest], found.flatten() > 0)
        self._remembered = (features[newest].detach(), ends)
