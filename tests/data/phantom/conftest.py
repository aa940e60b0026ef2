"""Drawn pictures that several tests look at."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from dismix.data.phantom import Factors, PhantomSpec, render
from dismix.data.phantom.plan import plan_images


@dataclass(frozen=True)
class Drawn:
    factors: list[Factors]
    images: NDArray[np.uint8]

    @property
    def ranks(self) -> NDArray[np.int64]:
        return np.array([f.rank for f in self.factors])

    @property
    def severities(self) -> NDArray[np.float64]:
        return np.array([f.severity for f in self.factors])


def draw(subject: str, count: int, size: int = 64, split: str = "test", seed: int = 3) -> Drawn:
    counts = {"train": 0, "val": 0, "test": 0, split: count}
    factors = [p.factors for p in plan_images(PhantomSpec(subject=subject, seed=seed, **counts))]
    return Drawn(factors, np.stack([render(f, size) for f in factors]))


@pytest.fixture(scope="session")
def draw_set() -> Callable[..., Drawn]:
    return draw


@pytest.fixture(scope="session")
def drawn() -> dict[str, Drawn]:
    return {subject: draw(subject, 120) for subject in ("knee", "fundus")}
