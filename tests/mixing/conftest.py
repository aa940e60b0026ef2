"""A toy run with its latent store, shared by the tests that only read it."""

from pathlib import Path

import pytest
from tests.mixing.toy_run import make_run

from dismix.mixing.encoding import encode_split


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folder of an untrained generator whose 30 training images are encoded."""
    folder = tmp_path_factory.mktemp("toy")
    run = make_run(folder)
    encode_split(run, cache=folder / "cache")
    return run
