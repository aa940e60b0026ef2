"""What is prepared is what training finds."""

from pathlib import Path

import pytest
import torch

from dismix.data import store
from dismix.data.manifest import read_manifest
from dismix.data.phantom import PhantomSpec, build_phantom
from dismix.data.preparing import prepare_images
from dismix.errors import DisMixError
from dismix.generator.images import load_split


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
    build_phantom(PhantomSpec(train=6, val=4, test=0, size=32), tmp_path / "data")
    return tmp_path


def test_training_decodes_nothing_again(drawn: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = read_manifest(drawn / "data")
    made = prepare_images(data, 16, drawn / "cache")
    assert {split: len(images) for split, images in made.items()} == {"train": 6, "val": 4}

    def never(*_: object) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(store, "load_image", never)
    for split, images in made.items():
        found = load_split(
            data, split, 16, device=torch.device("cpu"), cache=drawn / "cache"
        )  # fmt: skip
        assert torch.equal(found.source[:], images[:])


def test_bad_files_are_named_or_left_out(drawn: Path) -> None:
    data = read_manifest(drawn / "data")
    bad = data.split("val").image_paths[1]
    bad.write_bytes(b"cut short")
    with pytest.raises(DisMixError, match=bad.name):
        prepare_images(data, 16, drawn / "cache")
    made = prepare_images(data, 16, drawn / "cache", on_error="skip")
    assert [item.path for item in made["val"].skipped] == [bad]
    assert made["train"].skipped == ()
