"""One cache of decoded images for all tests of the demo."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's cache out of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISMIX_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
