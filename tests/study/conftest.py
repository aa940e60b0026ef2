"""One cache of decoded images for all tests of studies, and one finished study."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.study.toy import toy_choices, toy_images

from dismix.study.conduct import conduct


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the user's cache out of it; other processes inherit the setting."""
    before = os.environ.get("DISMIX_CACHE")
    folder = tmp_path_factory.mktemp("cache")
    os.environ["DISMIX_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["DISMIX_CACHE"]
    else:
        os.environ["DISMIX_CACHE"] = before


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, Any]]:
    """The manifest, the folder and the findings of a whole study."""
    folder = tmp_path_factory.mktemp("study")
    manifest = toy_images(folder / "knees")
    assert manifest.path is not None
    return manifest.path, folder / "out", conduct(manifest.path, folder / "out", toy_choices())
