"""One cache of decoded images for all tests of studies, and one finished study."""

from pathlib import Path
from typing import Any

import pytest
from tests.own_cache import cache
from tests.study.toy import toy_choices, toy_images

from dismix.study.conduct import conduct

__all__ = ["cache"]


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, Any]]:
    """The manifest, the folder and the findings of a whole study."""
    folder = tmp_path_factory.mktemp("study")
    manifest = toy_images(folder / "knees")
    assert manifest.path is not None
    return manifest.path, folder / "out", conduct(manifest.path, folder / "out", toy_choices())
