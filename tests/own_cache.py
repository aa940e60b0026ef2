"""A cache of image stores for the tests alone."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the user's cache out of it; worker processes inherit the setting."""
    before = os.environ.get("DISMIX_CACHE")
    folder = tmp_path_factory.mktemp("cache")
    os.environ["DISMIX_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["DISMIX_CACHE"]
    else:
        os.environ["DISMIX_CACHE"] = before
