"""One cache of decoded images for all tests of the benchmark, and one finished study."""

import pytest
from tests.bench.study import tiny_study
from tests.own_cache import cache

from dismix.bench.folder import BenchFolder
from dismix.bench.runner import run_study
from dismix.bench.specs import Study

__all__ = ["cache"]


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, BenchFolder]:
    """The smoke plan, run once in this process."""
    study, bench = tiny_study(tmp_path_factory.mktemp("smoke"))
    found = run_study(study, bench, cpu=True)
    assert (found.done, found.failed, found.left) == (6, 0, 0), found.errors
    return study, bench
