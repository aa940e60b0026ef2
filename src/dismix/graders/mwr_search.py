"""Predicting with moving window regression: reference pairs, and the search over windows.

Every window has a few pairs of training images at its ends, those with which the regressor is
most often right. An image starts at the rank of its nearest neighbours; its place in the window
around that rank is the next estimate, and so on until a window comes back.

Beyond the release: estimates are not rounded inside the search (on few grades it would end in
a step or two, or never), pairs are chosen among a sample (all of them are too many), and the
law is the mean over pairs of the two ranks around each estimate.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dismix.graders.mwr_loss import Windows, absolute_rank, relative_rank
from dismix.labels import OrdinalTarget
from dismix.laws import two_point_law


@dataclass(frozen=True)
class Found:
    """Result of a search.

    Attributes:
        probabilities: (B, C).
        spread: (B,) deviation of the estimates over the pairs, in ranks.
    """

    probabilities: Tensor
    spread: Tensor


def choose_pairs(
    regressor: nn.Module,
    features: Tensor,
    target: OrdinalTarget,
    windows: Windows,
    *,
    count: int = 5,
    candidates: int = 32,
    probes: int = 128,
) -> dict[str, Tensor]:
    """Choose for every window the pairs with the least squared error of rho.

    Args:
        regressor: In evaluation mode.
        features: (N, D) of the training images.
        target: Of the same.
        windows: Of the scale.
        count: Pairs to keep, P.
        candidates: Pairs to try.
        probes: Training images to try them on.

    Returns:
        "low" and "high", features (W, P, D); "low_place" and "high_place", their positions
        (W, P).
    """
    device = features.device
    place = target.probs @ windows.positions
    # On the CPU, where a seed means the same on every machine.
    generator = torch.Generator().manual_seed(0)
    seen = torch.randperm(len(features), generator=generator)[:probes].to(device)
    chosen = []
    for low_rank, high_rank in zip(windows.low.tolist(), windows.high.tolist(), strict=True):
        low = _draw(_images_near(target, low_rank), candidates, generator)
        high = _draw(_images_near(target, high_rank), candidates, generator)
        errors = torch.stack([
            _error(regressor, features, target.probs, windows.positions, place, a, b, seen)
            for a, b in zip(low, high, strict=True)
        ])  # fmt: skip
        # Too few images give fewer candidates than pairs: the best are then repeated.
        best = errors.argsort().repeat(count)[:count] if len(errors) < count else errors.argsort()
        chosen.append(torch.stack([low[best[:count]], high[best[:count]]]))
    low, high = torch.stack(chosen, 1)
    return {
        "low": features[low], "high": features[high],
        "low_place": place[low], "high_place": place[high],
    }  # fmt: skip


def search(
    regressor: nn.Module,
    features: Tensor,
    start: Tensor,
    pairs: Mapping[str, Tensor],
    windows: Windows,
) -> Found:
    """Move each image's window until it comes back to one it has been at.

    Args:
        regressor: In evaluation mode.
        features: (B, D).
        start: Ranks (B,).
        pairs: From `choose_pairs`.
        windows: Of the scale.
    """
    estimates = _estimates(regressor, features, pairs, windows)
    # Sizes from shapes, not from len(): a batch may be symbolic in an export.
    row = torch.arange(features.shape[0], device=features.device)
    window = windows.around(start)
    seen = torch.zeros_like(estimates[..., 0], dtype=torch.bool)
    # Estimates of a window do not change, so the search ends when none is new.
    for _ in range(len(windows.low)):
        seen = seen.scatter(1, window.unsqueeze(1), True)
        following = windows.around(estimates[row, window].mean(-1))
        window = torch.where(seen[row, following], window, following)
    final = estimates[row, window]
    law = two_point_law(final, len(windows.positions)).mean(1)
    return Found(law, final.std(1, correction=0))


def _estimates(
    regressor: nn.Module, features: Tensor, pairs: Mapping[str, Tensor], windows: Windows
) -> Tensor:
    """Return the ranks (B, W, P) that every pair of every window gives."""
    shape = (features.shape[0], *pairs["low"].shape)
    flat = [pairs["low"].expand(shape), pairs["high"].expand(shape)]
    flat += [features[:, None, None].expand(shape)]
    rho = regressor(*(part.flatten(0, 2) for part in flat)).reshape(shape[:-1])
    return windows.rank(absolute_rank(rho, pairs["low_place"], pairs["high_place"]))


def _images_near(target: OrdinalTarget, rank: int) -> Tensor:
    """Return the images of a rank, or of the nearest rank that has any."""
    hard = target.hard
    gap = (hard - rank).abs()
    return torch.nonzero(gap == gap.min()).flatten()


def _draw(images: Tensor, count: int, generator: torch.Generator) -> Tensor:
    chosen = torch.randint(len(images), (count,), generator=generator)
    return images[chosen.to(images.device)]


def _error(
    regressor: nn.Module,
    features: Tensor,
    probs: Tensor,
    positions: Tensor,
    place: Tensor,
    low: Tensor,
    high: Tensor,
    seen: Tensor,
) -> Tensor:
    """Return the mean squared error of rho over the images seen, with one pair."""
    shape = (len(seen), features.shape[1])
    rho = regressor(features[low].expand(shape), features[high].expand(shape), features[seen])
    ends = place[low].expand(len(seen)), place[high].expand(len(seen))
    error = (rho - relative_rank(probs[seen], positions, *ends)).square().mean()
    # Ends that the votes put in the wrong order make no window.
    return torch.where(place[high] > place[low], error, error + 1e3)
