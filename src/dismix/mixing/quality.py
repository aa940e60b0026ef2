"""How good mixes are, measured rather than assumed.

Pairs of training images are mixed at a few ratios by every policy, and by Mixup and CutMix beside
them; a reader that took no part in training the generator says which rank each picture shows:
here a judge (`dismix.generator.judge`), in `benchmarks/mixing_phantom.py` the measured severity.

Numbers of a method:

- ``agreement``: share of pictures read as the nearest whole intended rank, strictly between the
  ends of lam, where a pixel mixer merely shows a real training image;
- ``error``: mean distance of the reading from the intended rank, likewise;
- ``slope``: of the reading on the intended rank, within pairs (1 is right, 0 is no effect);
- ``monotone``: share of pairs whose reading never turns back from one ratio to the next;
- ``preserved``: share of pictures of the preserving policies read as their giver's rank;
- ``distance``: distance to the nearest real image of the intended rank, sources left out, in units
  of that distance for real images.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dismix.errors import DisMixError
from dismix.generator.images import SplitImages
from dismix.labels import OrdinalTarget
from dismix.mixing.engine import MixEngine
from dismix.mixing.pairwise import mix_pairs
from dismix.mixing.policies import mix_targets
from dismix.mixing.policy_draws import GROUPS, POLICIES, PolicyDraws
from dismix.progress import Progress, steps_of

Floats = NDArray[np.float64]
#: Images (B, channels, H, W) in [-1, 1] on the CPU -> values (B,) or features (B, F).
Reader = Callable[[Tensor], Floats]
LAMS = (1.0, 0.75, 0.5, 0.25, 0.0)
BESIDE = ("mixup", "cutmix")
_BATCH = 64


@dataclass(frozen=True)
class RankPairs:
    """Pairs of stored images to mix.

    Attributes:
        first: (P,) rows.
        second: (P,) rows.
        from_second: (P,) bool, what is not interpolated comes from the second.
    """

    first: Tensor
    second: Tensor
    from_second: Tensor

    def __len__(self) -> int:
        return len(self.first)


def draw_rank_pairs(ranks: Tensor, count: int, seed: int, gaps: Sequence[int] = (1,)) -> RankPairs:
    """Draw pairs whose ranks lie ``gaps`` apart, in both directions.

    Args:
        ranks: (N,) whole ranks.
        count: P.
        seed: Of the draw.
        gaps: Distances that may occur.

    Example:
        >>> pairs = draw_rank_pairs(torch.tensor([0, 1, 2]), 4, seed=0, gaps=(2,))
        >>> sorted({*pairs.first.tolist(), *pairs.second.tolist()})
        [0, 2]
    """
    rng = torch.Generator().manual_seed(seed)
    wanted = torch.tensor([*gaps])
    # By rank, not image by image: a table of all pairs would not fit for large sets.
    found = {
        rank: torch.nonzero(torch.isin((ranks - rank).abs(), wanted)).flatten()
        for rank in sorted({*ranks.tolist()})
    }
    usable = torch.tensor([rank for rank, rows in found.items() if len(rows)], dtype=torch.long)
    first = torch.nonzero(torch.isin(ranks, usable)).flatten()
    if len(first) == 0:
        raise DisMixError(f"no two images lie {gaps} ranks apart", cure="check the split")
    chosen = first[torch.randint(len(first), (count,), generator=rng)]
    uniform = torch.rand(count, generator=rng, dtype=torch.float64)
    second = torch.empty_like(chosen)
    for rank in usable.tolist():
        here = ranks[chosen] == rank
        second[here] = found[rank][(uniform[here] * len(found[rank])).long()]
    return RankPairs(chosen, second, torch.rand(count, generator=rng) < 0.5)


@dataclass(frozen=True)
class Readings:
    """What a reader saw.

    Attributes:
        read: (L, P) readings at L ratios.
        intended: (L, P) ranks of the labels.
        distance: (L, P) relative distances to real images, or None.
    """

    read: Floats
    intended: Floats
    distance: Floats | None = None

    def numbers(self, *, preserving: bool) -> dict[str, float]:
        """Return the numbers of the module's head."""
        inner = slice(1, -1) if len(self.read) > 2 else slice(None)
        read, intended = self.read[inner], self.intended[inner]
        near = np.floor(read + 0.5) == np.floor(intended + 0.5)
        found = {"agreement": float(near.mean()), "error": float(np.abs(read - intended).mean())}
        if preserving:
            found["preserved"] = float(near.mean())
        else:
            found["slope"] = within_slope(self.read, self.intended)
            found["monotone"] = monotone_share(self.read, self.intended)
        if self.distance is not None:
            found["distance"] = float(np.nanmean(self.distance[inner]))
        return found


def within_slope(read: Floats, intended: Floats) -> float:
    """Return the slope of readings on intended ranks (L, P), each pair about its own mean.

    Example:
        >>> ranks = np.array([[0.0, 2.0], [1.0, 3.0]])
        >>> within_slope(0.5 * ranks + np.array([3.0, 7.0]), ranks)
        0.5
    """
    x, y = intended - intended.mean(0), read - read.mean(0)
    total = float((x * x).sum())
    return float((x * y).sum() / total) if total > 0 else 0.0


def monotone_share(read: Floats, intended: Floats) -> float:
    """Return the share of pairs whose reading never goes against the intended direction.

    Example:
        >>> read = np.array([[0.0, 0.0], [0.2, 0.5], [0.9, 0.4]])
        >>> monotone_share(read, np.array([[0.0, 0.0], [0.5, 0.5], [1.0, 1.0]]))
        0.5
    """
    steps = np.diff(read, axis=0) * np.sign(np.diff(intended, axis=0))
    return float((steps >= -1e-6).all(axis=0).mean())


def make_mixes(
    engine: MixEngine,
    train: SplitImages,
    method: str,
    pairs: RankPairs,
    lam: float,
    seed: int = 0,
    *,
    detail: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Mix pairs by a policy, or by a mixer of two images.

    Args:
        engine: Generator and stored codes.
        train: The stored images.
        method: A policy or a mixer's name.
        pairs: P pairs.
        lam: Share of the first.
        seed: Of what a mixer draws beside the ratio.
        detail: Share of the images' detail that policies give back, see `MixEngine.mix`.

    Returns:
        Pictures (P, channels, H, W) in [-1, 1] on the CPU, and the ranks (P,) of their labels.
    """
    ranks, count = engine.store.target.hard, len(pairs)
    hard = [
        OrdinalTarget.from_labels(ranks[r], engine.num_ranks) for r in (pairs.first, pairs.second)
    ]
    if method not in POLICIES:
        first, second = (train.images(rows, "cpu") for rows in (pairs.first, pairs.second))
        share = torch.full((count,), lam)
        made, shown = mix_pairs(method, first, second, OrdinalTarget.cat(hard), share, seed)
        return made, shown * hard[0].rank + (1 - shown) * hard[1].rank
    draws = PolicyDraws(
        policy=torch.full((count,), POLICIES.index(method)),
        lam=torch.full((count,), float(lam)),
        from_partner=pairs.from_second,
        partner=pairs.second,
        asked=ranks[pairs.second],
        adjacent=torch.ones(count, dtype=torch.bool),
    )
    made = torch.cat(
        [
            engine.mix(
                draws[part],
                engine.stored(pairs.first[part], detail=detail > 0),
                (hard[0][part], hard[1][part]),
                detail=detail,
            ).cpu()
            for start in range(0, count, _BATCH)
            for part in [slice(start, start + _BATCH)]
        ]
    )
    return made, mix_targets(draws, *hard).rank


def read_method(
    engine: MixEngine,
    train: SplitImages,
    method: str,
    pairs: RankPairs,
    reader: Reader,
    *,
    lams: Sequence[float] = LAMS,
    features: "RealFeatures | None" = None,
    detail: float = 0.0,
    step: Callable[[], None] = lambda: None,
) -> Readings:
    """Mix by one method at several ratios and read the results; ``step`` is called after each."""
    read, intended, distances = [], [], []
    for lam in lams:
        made, ranks = make_mixes(engine, train, method, pairs, lam, detail=detail)
        read.append(reader(made))
        intended.append(ranks.double().numpy())
        if features is not None:
            distances.append(features.distance(made, ranks, pairs))
        step()
    return Readings(np.stack(read), np.stack(intended), np.stack(distances) if distances else None)


class RealFeatures:
    """Real images in a feature space, by rank.

    Args:
        extract: Images -> features (B, F).
        train: The stored images.
        ranks: (N,) their whole ranks.
        most: Real images used at most; more add time, not truth.
        progress: Called as ``progress("looking at real images", done, images)``.
    """

    def __init__(
        self,
        extract: Reader,
        train: SplitImages,
        ranks: Tensor,
        most: int = 2000,
        progress: Progress | None = None,
    ) -> None:
        self.extract, self.ranks = extract, ranks
        self.rows = torch.linspace(0, len(train) - 1, min(most, len(train))).long()
        parts: list[Floats] = []
        for part in torch.split(self.rows, _BATCH):
            parts.append(extract(train.images(part, "cpu")))
            if progress is not None:
                done = min(len(parts) * _BATCH, len(self.rows))
                progress("looking at real images", done, len(self.rows))
        self.vectors = np.concatenate(parts)
        own = ranks[self.rows]
        alone = self._nearest(self.vectors, own, self.rows[:, None])
        #: Distance of a real image to the nearest other one of its rank.
        self.unit = float(np.nanmean(alone))

    def distance(self, images: Tensor, intended: Tensor, pairs: RankPairs) -> Floats:
        """Return relative distances (P,) of mixes to real images of their intended ranks."""
        vectors = np.concatenate([self.extract(part) for part in torch.split(images, _BATCH)])
        sources = torch.stack([pairs.first, pairs.second], 1)
        ranks = torch.floor(intended + 0.5).long()
        return self._nearest(vectors, ranks, sources) / self.unit

    def _nearest(self, vectors: Floats, ranks: Tensor, left_out: Tensor) -> Floats:
        squares = (
            (vectors**2).sum(1)[:, None] + (self.vectors**2).sum(1) - 2 * vectors @ self.vectors.T
        )
        other = (self.ranks[self.rows] != ranks[:, None]).numpy()
        source = (self.rows[None, :, None] == left_out[:, None, :]).any(2).numpy()
        squares[other | source] = np.inf
        best = np.sqrt(np.maximum(squares.min(1), 0))
        return np.where(np.isfinite(best), best, np.nan)


def measure_mixes(
    engine: MixEngine,
    train: SplitImages,
    reader: Reader,
    *,
    pairs: RankPairs,
    beside: Sequence[str] = BESIDE,
    features: RealFeatures | None = None,
    detail: float = 0.0,
    progress: Progress | None = None,
) -> tuple[dict[str, dict[str, float]], dict[str, Readings]]:
    """Measure every policy and the mixers beside it on the same pairs and ratios.

    Args:
        engine: Generator and stored codes.
        train: The stored images.
        reader: Says which rank a picture shows.
        pairs: What to mix.
        beside: Other mixers.
        features: Feature space of the distances; None leaves them out.
        detail: See `make_mixes`.
        progress: Called as ``progress("measuring mixes", done, methods times ratios)``.

    Returns:
        Numbers by method, and the readings they come from.
    """
    methods = [*engine.policies("combined"), *beside]
    numbers: dict[str, dict[str, float]] = {}
    readings: dict[str, Readings] = {}
    step = steps_of(progress, "measuring mixes", len(methods) * len(LAMS))
    for method in methods:
        found = read_method(
            engine, train, method, pairs, reader, features=features, detail=detail, step=step
        )
        readings[method] = found
        numbers[method] = found.numbers(preserving=method in GROUPS["preserving"])
    return numbers, readings


def baseline(
    engine: MixEngine,
    train: SplitImages,
    reader: Reader,
    most: int = 500,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return what the reader says of real images and of their reconstructions: its ceiling."""
    ranks = engine.store.target.hard
    rows = torch.linspace(0, len(train) - 1, min(most, len(train))).long()
    wanted = ranks[rows].double().numpy()[None]
    read, rebuilt = [], []
    for part in torch.split(rows, _BATCH):
        read.append(reader(train.images(part, "cpu")))
        rebuilt.append(reader(engine.decode(engine.stored(part).codes).cpu()))
        if progress is not None:
            done = min(len(read) * _BATCH, len(rows))
            progress("reading real images", done, len(rows))
    return {
        name: Readings(np.concatenate(values)[None], wanted).numbers(preserving=True)
        for name, values in (("real images", read), ("reconstructions", rebuilt))
    }
