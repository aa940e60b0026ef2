"""Where lesions lie on a retina and what they are, as severity grows.

The seed fixes one long list of lesions, mildest first; severity says how far down the list
to go. So the same eye at a higher severity keeps the lesions that it had and gains others,
and the covered area follows the severity exactly.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dismix.data.phantom.factors import LESION_LOAD, FundusFactors

# Radii in field radii. Dots are microaneurysms, blots haemorrhages, "hard" hard exudates and
# "wool" cotton-wool spots; each row is a stage of the disease with the shares of dark kinds.
_RADII = {"dot": (0.026, 0.04), "blot": (0.055, 0.1), "hard": (0.028, 0.046), "wool": (0.065, 0.09)}
_STAGES = ((0.9, 0.1, 0.0), (0.7, 0.3, 0.05), (0.6, 0.4, 0.15), (0.5, 0.5, 0.15))
_RIM = 0.86


@dataclass(frozen=True)
class Lesion:
    """One lesion.

    Attributes:
        kind: "dot", "blot", "hard" or "wool".
        x: Centre in field radii.
        y: Centre in field radii.
        area: In squared field radii.
        density: How much of its colour it has, 0 to 1.
        waver: Strength and phase of the waves of its outline.
    """

    kind: str
    x: float
    y: float
    area: float
    density: float
    waver: tuple[tuple[float, float], ...]


def lesions(factors: FundusFactors) -> Iterator[Lesion]:
    """Yield the lesions of one eye, together of the area that its severity asks for.

    Args:
        factors: Severity, seed, share of exudates, disc and zoom.
    """
    left = factors.lesion_load * math.pi
    for lesion in _all_lesions(factors):
        load = lesion.area * lesion.density
        if load >= left:
            if left > 0:
                yield replace(lesion, area=left / lesion.density)
            return
        yield lesion
        left -= load


def _all_lesions(factors: FundusFactors) -> Iterator[Lesion]:
    """Yield lesions until the largest load is reached, none touching another."""
    rng = np.random.default_rng(factors.lesion_seed)
    total = LESION_LOAD[1] * math.pi
    taken = np.array([[factors.disc_x * factors.zoom, factors.disc_y * factors.zoom]])
    reach = np.array([1.35 * factors.disc_size * factors.zoom])
    cluster = rng.uniform(-0.5, 0.5, (4, 2))
    done = 0.0
    while done < total:
        stage = min(int(4 * done / total), 3)
        kind = _kind(factors.exudate_share, stage, rng)
        radius = float(rng.uniform(*_RADII[kind]))
        spot = _free_spot(kind, radius, cluster, taken, reach, rng)
        if spot is None:
            continue
        height = {"dot": 0.0, "blot": 0.22}.get(kind, 0.15)
        draws = zip(rng.uniform(0, height, 3), rng.uniform(0, 2 * math.pi, 3), strict=True)
        waves = () if kind == "dot" else tuple((float(h), float(phase)) for h, phase in draws)
        density = 0.6 if kind == "wool" else 1.0
        lesion = Lesion(kind, *spot, math.pi * radius**2, density, waves)
        taken, reach = np.vstack([taken, spot]), np.append(reach, 1.3 * radius + 0.02)
        done += lesion.area * density
        yield lesion


def _kind(exudate_share: float, stage: int, rng: np.random.Generator) -> str:
    dot, _, wool = _STAGES[stage]
    # Exudates come after the first microaneurysms.
    if rng.random() < exudate_share * (0.3 if stage == 0 else 1.0):
        return "wool" if rng.random() < wool else "hard"
    return "dot" if rng.random() < dot else "blot"


def _free_spot(
    kind: str,
    radius: float,
    cluster: np.ndarray,
    taken: np.ndarray,
    reach: np.ndarray,
    rng: np.random.Generator,
) -> tuple[float, float] | None:
    """Find a place for a lesion: hard exudates gather, the others scatter."""
    for _ in range(20):
        if kind == "hard":
            spot = cluster[rng.integers(len(cluster))] + rng.normal(0, 0.14, 2)
        else:
            r, a = _RIM * math.sqrt(rng.random()), rng.uniform(0, 2 * math.pi)
            spot = np.array([r * math.cos(a), r * math.sin(a)])
        if math.hypot(*spot) + radius > _RIM + 0.02:
            continue
        apart = np.hypot(taken[:, 0] - spot[0], taken[:, 1] - spot[1])
        if (apart > reach + 1.3 * radius + 0.02).all():
            return float(spot[0]), float(spot[1])
    return None
