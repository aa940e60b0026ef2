"""A toy run with its data, opened once."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.mixing.toy_run import make_run, toy_generator

from dismix.explore.library import open_library, without_data
from dismix.explore.opening import open_session
from dismix.explore.session import Session


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with ``data``, ``run`` and ``cache``."""
    folder = tmp_path_factory.mktemp("explore")
    make_run(folder, toy_generator())
    return folder


@pytest.fixture(scope="session")
def session(home: Path) -> Session:
    return open_session(home / "run", cache=home / "cache")


@pytest.fixture(scope="session")
def with_model(home: Path) -> Callable[..., Session]:
    """Open the same data with another form of generator."""

    def make(**changes: Any) -> Session:
        model = toy_generator(**changes)
        library = open_library(home / "data", 5, 32, cache=home / "cache")
        return Session(model, library, home / "run")

    return make


@pytest.fixture(scope="session")
def bare() -> Callable[..., Session]:
    """Open a generator of any number of ranks and channels without data."""

    def make(ranks: int, channels: int) -> Session:
        model = toy_generator(num_ranks=ranks, in_channels=channels)
        return Session(model, without_data([f"g{r}" for r in range(ranks)], 32, channels))

    return make


def png_bytes(seed: int = 0, shape: tuple[int, ...] = (40, 50), kind: str = "PNG") -> bytes:
    """Return a file with a random picture."""
    pixels = np.random.default_rng(seed).integers(0, 255, shape, dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def same(first: torch.Tensor, second: torch.Tensor, most: int = 1) -> bool:
    """Tell whether pictures are equal up to rounding in the last of 256 steps."""
    return int((first.int() - second.int()).abs().max()) <= most
