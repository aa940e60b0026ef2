"""Splits in memory: what stays on disk, and that both ways give the same pictures."""

from pathlib import Path

import pytest
import torch

from dismix.data.manifest import read_manifest
from dismix.data.store import RESIDENT_MOST, ImageStore
from dismix.errors import DisMixError
from dismix.generator.images import SplitImages, load_split


def test_a_split_is_mapped_on_a_cpu_and_equal_to_one_in_memory(small_run) -> None:
    data = read_manifest(small_run.data)
    mapped = load_split(data, "test", 32, device=torch.device("cpu"))
    assert isinstance(mapped.source, ImageStore)
    held = SplitImages(mapped.source[:], mapped.target, mapped.equalize)
    rows = torch.tensor([3, 0, 7])
    assert torch.equal(mapped.images(rows, "cpu"), held.images(rows, "cpu"))


def test_large_stores_stay_on_disk(small_run, monkeypatch: pytest.MonkeyPatch) -> None:
    store = load_split(read_manifest(small_run.data), "test", 32, device=torch.device("cpu")).source
    assert isinstance(store, ImageStore)
    # The meta device is no CPU, and holds nothing.
    assert store.fits_on("meta")
    assert not store.fits_on("meta", most=store.nbytes - 1)
    monkeypatch.setattr(ImageStore, "nbytes", property(lambda self: RESIDENT_MOST + 1))
    assert not store.fits_on("meta")


def test_a_split_that_is_empty(small_run, tmp_path: Path) -> None:
    data = read_manifest(small_run.data)
    data = data.with_table(data.table[data.table["split"] != "val"])
    with pytest.raises(DisMixError, match="no images in split 'val'"):
        load_split(data, "val", 32, device=torch.device("cpu"))
