"""Data that are there, partly there, or gone; uploads of every bad kind."""

import io
import json
import shutil
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.explore.conftest import png_bytes
from tests.mixing.toy_run import make_run

from dismix import atomic
from dismix.data.manifest import read_manifest, write_manifest
from dismix.errors import DisMixError
from dismix.explore.library import open_library, without_data
from dismix.explore.opening import open_session
from dismix.explore.opinion import NearestReal
from dismix.explore.session import Session
from dismix.explore.uploads import MAX_BYTES, read_upload
from dismix.explore.views import DASH, choice_title
from dismix.mixing.nearest import fine


def test_browsing_is_ordered_and_even(session: Session) -> None:
    library = session.library
    keys = library.browse()
    assert sorted(keys) == sorted(library.keys)
    assert len(keys) == 45
    ranks = [session.encoded(key).rank for key in keys]
    assert ranks == sorted(ranks)
    some = [session.encoded(key).rank for key in library.browse("train", most=10)]
    counts = np.bincount(some, minlength=5)
    there = np.bincount(library.majorities("train"), minlength=5)
    assert len(some) == 10
    # As even as the images allow.
    assert all(c >= min(there[r], 2) for r, c in enumerate(counts))
    assert {session.encoded(k).rank for k in library.browse(rank=2)} == {2}


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    return make_run(tmp_path, train=10)


def test_images_that_are_gone(moved: Path) -> None:
    shutil.rmtree(moved.parent / "data" / "images")
    session = open_session(moved, cache=moved.parent / "cache")
    assert "no longer there: only uploads" in session.library.note
    assert session.ranks[0] == "none"
    assert session.library.keys == []
    assert session.nearest is None
    assert session.upload(png_bytes()).split == "upload"


def test_a_damaged_training_image_is_no_obstacle(moved: Path) -> None:
    images = sorted((moved.parent / "data" / "images").glob("train*"))
    images[3].write_bytes(b"cut short")
    session = open_session(moved, cache=moved.parent / "cache")
    assert session.library.note.startswith("1 of 25 images")
    assert session.nearest is not None
    for key in session.library.browse("train"):
        found = session.nearest.find(session.subject(key).pixels)
        assert found[0].key == key
        assert found[0].similarity == pytest.approx(1.0, abs=1e-5)


def test_majorities_have_the_ties_of_training(moved: Path) -> None:
    data = read_manifest(moved.parent / "data")
    table = data.table.copy()
    votes = [c for c in table if c.startswith("annotator")]
    table.loc[table["split"] == "train", votes] = [1, 1, 2, 2, 4]
    write_manifest(data.with_table(table), moved.parent / "data" / "manifest.csv")
    session = open_session(moved, cache=moved.parent / "cache")
    assert set(session.library.majorities("train").tolist()) == {2}
    assert {session.encoded(key).rank for key in session.library.browse("train", 2)} == {2}
    assert "2" in choice_title(session.subject("train/0"), session.ranks).split(DASH)[0]


def test_some_images_that_are_gone(moved: Path) -> None:
    images = sorted((moved.parent / "data" / "images").glob("train*"))
    for path in images[:3]:
        path.unlink()
    session = open_session(moved, cache=moved.parent / "cache")
    assert session.library.note.startswith("3 of 25 images")
    assert len(session.library.shelves["train"].rows) == 7
    names = {session.subject(key).name for key in session.library.keys}
    assert not names & {path.name for path in images[:3]}
    session.nearest.find(session.subject("train/0").pixels)  # type: ignore[union-attr]


def test_manifest_that_is_gone(moved: Path) -> None:
    shutil.rmtree(moved.parent / "data")
    session = open_session(moved)
    assert session.ranks == ("0", "1", "2", "3", "4")
    assert "only uploads" in session.library.note
    atomic.write_json(moved / "run.json", {"manifest": "gone.csv", "ranks": [*"abcde"]})
    assert open_session(moved).ranks == ("a", "b", "c", "d", "e")
    with pytest.raises(DisMixError, match=r"gone.csv"):
        open_session(moved, manifest="gone.csv")


def test_folders_that_are_no_run(tmp_path: Path) -> None:
    with pytest.raises(DisMixError, match=r"not the run folder of a generator; .*generator.json"):
        open_session(tmp_path)


def test_data_of_another_scale(home: Path) -> None:
    with pytest.raises(DisMixError, match="has 5 ranks, the generator 3"):
        open_library(home / "data", 3, 32)


def test_nearest_images_are_those_of_an_exhaustive_search(session: Session) -> None:
    nearest = session.nearest
    assert isinstance(nearest, NearestReal)
    store = session.library.shelves["train"].store
    everything = fine(store[:])
    for key in ("train/7", "test/1", "val/3"):
        picture = session.subject(key).pixels
        exact = everything @ fine(picture[None])[0]
        found = nearest.find(picture, 1)[0]
        best = int(exact.argmax())
        if key == "train/7":
            assert found.key == key
            assert found.similarity == pytest.approx(1, abs=1e-4)
        # The coarse search may miss the best one, but never misjudges what it found.
        assert found.similarity == pytest.approx(exact[int(found.key.split("/")[1])], abs=1e-5)
        assert found.similarity >= exact[best] - 0.2
    assert len(nearest.find(session.subject("test/0").pixels, 4)) == 4


def _png_header(width: int, height: int) -> bytes:
    data = io.BytesIO()
    Image.new("L", (1, 1)).save(data, "PNG")
    raw = bytearray(data.getvalue())
    raw[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    raw[29:33] = zlib.crc32(bytes(raw[12:29])).to_bytes(4, "big")
    return bytes(raw)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty; choose a file with a picture in it"),
        (b"just some text\n" * 20, "the file is not an image that can be read; use JPEG, PNG,"),
        (png_bytes()[:200], "the image is cut short; copy or export it again"),
        (_png_header(9000, 9000), "too large: 9000 x 9000 pixels is over the limit of 32,000,000"),
        (_png_header(2**31 - 1, 2**31 - 1), "the picture is too large"),
        (bytes(MAX_BYTES + 1), "the file has 32 MiB; give a picture of at most 32 MiB"),
        (png_bytes(shape=(3, 3)), "only a few pixels"),
        (b"GIF89a" + bytes(60), "not an image that can be read"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "not an image that can be read"),
        (b"\x80\x04\x95" + bytes(60), "not an image that can be read"),
    ],
)
def test_bad_uploads(data: bytes, message: str) -> None:
    with pytest.raises(DisMixError, match=message) as caught:
        read_upload(data, without_data(["0", "1"], 32, 1))
    assert "--on-error" not in str(caught.value)
    assert "<bytes>" not in str(caught.value)


def test_uploads_of_all_kinds() -> None:
    library = without_data(["0", "1"], 32, 3)
    for kind, shape in (("JPEG", (40, 40)), ("WEBP", (40, 40, 3)), ("TIFF", (9, 90, 4))):
        subject = read_upload(png_bytes(shape=shape, kind=kind), library)
        assert subject.pixels.shape == (3, 32, 32)
        assert subject.pixels.dtype == torch.uint8
        assert subject.name == "your picture"


def test_ranks_named_from_the_other_end_are_refused(moved: Path) -> None:
    data = read_manifest(moved.parent / "data")
    said = json.loads((moved / "run.json").read_text())
    atomic.write_json(moved / "run.json", {**said, "ranks": [*data.meta.ranks][::-1]})
    for named in (None, moved.parent / "data"):
        with pytest.raises(DisMixError, match="give data whose ranks are in the generator's order"):
            open_session(moved, manifest=named, cache=moved.parent / "cache")


def test_files_read_in_another_way_are_refused(moved: Path) -> None:
    data = read_manifest(moved.parent / "data")
    other = replace(data, meta=replace(data.meta, equalize=not data.meta.equalize))
    write_manifest(other, moved.parent / "data" / "other.csv")
    with pytest.raises(DisMixError, match=r"other.csv: is read with equalize true, .* false"):
        open_session(moved, manifest=moved.parent / "data" / "other.csv")
