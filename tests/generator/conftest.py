"""A trained run to look at, made once: 32 px knees, one epoch, seconds."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dismix.data.phantom import PhantomSpec, build_phantom
from dismix.generator.start_run import train_generator

QUICK = {
    "epochs": 1, "guide_steps": 1, "nonordinal_codes": 32, "ordinal_codes": 16, "strip_every": 0,
    "discriminator_width": 8, "batch_size": 16,
}  # fmt: skip


@dataclass(frozen=True)
class SmallRun:
    data: Path
    run: Path
    cache: Path
    settings: dict[str, object]


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallRun]:
    folder = tmp_path_factory.mktemp("small_run")
    data, run, cache = folder / "data", folder / "run", folder / "cache"
    build_phantom(PhantomSpec(train=40, val=12, test=20, size=32), data)
    kept = os.environ.get("DISMIX_CACHE")
    os.environ["DISMIX_CACHE"] = str(cache)
    train_generator(data, run, arch="tiny", settings=QUICK, size=32, cpu=True)
    yield SmallRun(data, run, cache, QUICK)
    if kept is None:
        del os.environ["DISMIX_CACHE"]
    else:
        os.environ["DISMIX_CACHE"] = kept
