"""One cache of decoded images for all tests of the benchmark, and one finished study."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.bench.study import tiny_study

from dismix.bench.folder import BenchFolder
from dismix.bench.runner import run_study
from dismix.bench.specs import Study


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


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, BenchFolder]:
    """The smoke plan, run once in this process."""
    study, bench = tiny_study(tmp_path_factory.mktemp("smoke"))
    found = run_study(study, bench, cpu=True)
    assert (found.done, found.failed, found.left) == (6, 0, 0), found.errors
    return study, bench
