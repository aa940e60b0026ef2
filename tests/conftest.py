"""Shared test settings: one torch thread, real data found by a setting."""

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

torch.set_num_threads(1)

SHARED = Path(os.environ.get("DISMIX_SHARED", Path(__file__).parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder with `idrid` and `koa`; the test is skipped when it is absent."""
    if not (SHARED / "data" / "idrid").is_dir():
        pytest.skip(f"real data not found under {SHARED / 'data'} (set DISMIX_SHARED)")
    return SHARED / "data"


@pytest.fixture(scope="session")
def shared_weights() -> Path:
    """Folder with the pretrained weights; the test is skipped when it is absent."""
    if not (SHARED / "weights").is_dir():
        pytest.skip(f"weights not found under {SHARED / 'weights'} (set DISMIX_SHARED)")
    return SHARED / "weights"
