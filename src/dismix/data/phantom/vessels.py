"""The vessel tree of a retina: four arcades out of the optic disc, with twigs."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]


@dataclass(frozen=True)
class Tree:
    """Every straight stretch of a vessel tree.

    Attributes:
        stretches: Both ends of each, in field radii at zoom 1, (K, 2, 2).
        widths: Calibres in field radii at zoom 1, (K,).
        strengths: Amounts of vessel colour, 1 for veins and less for arteries, (K,).
    """

    stretches: Points
    widths: NDArray[np.float64]
    strengths: NDArray[np.float64]


@dataclass(frozen=True)
class _Vessel:
    """One unbranched vessel: (K, 2) points and a calibre per stretch, (K - 1,)."""

    path: Points
    widths: NDArray[np.float64]


# Bends and end of each arcade, counted from the disc; the first two arch around the macula.
_ARCADES = np.array(
    [
        ((0.02, -0.34), (0.42, -0.78), (1.35, -0.42)),
        ((0.02, 0.34), (0.42, 0.78), (1.35, 0.42)),
        ((-0.02, -0.3), (-0.2, -0.5), (-0.36, -0.95)),
        ((-0.02, 0.3), (-0.2, 0.5), (-0.36, 0.95)),
    ]
)
_STEPS = 9
_ALONG = np.linspace(0, 1, 22)[:, None]


# Both eyes of a patient have the same tree and are drawn one after the other.
@lru_cache(maxsize=4)
def vessel_tree(seed: int, disc_x: float, disc_y: float, calibre: float) -> Tree:
    """Grow the tree of one person: a vein and an artery per arcade, and their twigs.

    Args:
        seed: Seed of the tree.
        disc_x: Optic disc, in field radii at zoom 1.
        disc_y: Optic disc, in field radii at zoom 1.
        calibre: Width of the largest vessel, in field radii at zoom 1.

    Returns:
        The tree.

    Example:
        >>> vessel_tree(0, -0.6, 0.0, 0.03).stretches.shape[1:]
        (2, 2)
    """
    rng = np.random.default_rng(seed)
    disc = np.array([disc_x, disc_y])
    found: list[tuple[_Vessel, float]] = []
    for arcade in _ARCADES:
        for strength, spread, size in ((1.0, 1.0, calibre), (0.75, 1.09, 0.75 * calibre)):
            bends = disc + arcade * spread + rng.normal(0, 0.05, (3, 2))
            path = _curve(np.vstack([disc + rng.normal(0, 0.02, 2), bends]), rng)
            trunk = _Vessel(path, np.linspace(size, 0.45 * size, len(path) - 1))
            found += [(vessel, strength) for vessel in (trunk, *_twigs(trunk, rng, 4, 2))]
    return Tree(
        np.concatenate([np.stack([v.path[:-1], v.path[1:]], axis=1) for v, _ in found]),
        np.concatenate([v.widths for v, _ in found]),
        np.concatenate([np.full(len(v.widths), strength) for v, strength in found]),
    )


def _curve(control: Points, rng: np.random.Generator) -> Points:
    """Cubic Bezier curve through four control points, slightly tortuous: (K, 2)."""
    t = _ALONG
    a, b, c, d = control
    path = (1 - t) ** 3 * a + 3 * (1 - t) ** 2 * t * b + 3 * (1 - t) * t**2 * c + t**3 * d
    phase, waves = rng.uniform(0, 2 * math.pi, 2), rng.uniform(2, 5, 2)
    wiggle = 0.014 * np.sin(2 * math.pi * waves * t + phase) * np.sin(math.pi * t)
    return np.asarray(path + wiggle)


def _twigs(trunk: _Vessel, rng: np.random.Generator, count: int, depth: int) -> Iterator[_Vessel]:
    """Yield branches that leave a trunk on alternating sides and turn back along it."""
    places = np.linspace(0.22, 0.85, count) + rng.uniform(-0.06, 0.06, count)
    turn = 1.0 if rng.random() < 0.5 else -1.0
    for place in places:
        i = int(place * (len(trunk.path) - 2))
        dx, dy = trunk.path[i + 1] - trunk.path[i]
        angle = math.atan2(dy, dx) + turn * rng.uniform(0.4, 0.8)
        length = rng.uniform(0.28, 0.55) * (1.0 if depth == 2 else 0.5)
        drift = 0.05 * rng.normal(0, 1, _STEPS).cumsum()
        bend = angle - turn * rng.uniform(0.0, 0.09) * np.arange(_STEPS) + drift
        path = np.empty((_STEPS + 1, 2))
        path[0] = 0
        path[1:, 0], path[1:, 1] = np.cos(bend).cumsum(), np.sin(bend).cumsum()
        path = trunk.path[i] + path * (length / _STEPS)
        size = 0.55 * float(trunk.widths[i])
        twig = _Vessel(path, size * np.linspace(1, 0.4, _STEPS))
        yield twig
        if depth > 1:
            yield from _twigs(twig, rng, 1, depth - 1)
        turn = -turn
