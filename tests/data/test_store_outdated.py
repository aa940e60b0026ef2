"""Stores of older versions: those that would be read otherwise are made anew, others are kept."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dismix.data import building, store, store_outdated
from dismix.data.store import ImageStore, StoreSettings, build_store
from dismix.data.store_outdated import read_otherwise
from dismix.errors import DisMixError

SMALL = StoreSettings(size=8, channels=1)
OLD = 77


def picture(path: Path, pixels: Any, **options: Any) -> Path:
    Image.fromarray(pixels).save(path, **options)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


def floating(path: Path) -> Path:
    return picture(path, np.full((8, 8), 0.5, np.float32))


def plain(path: Path) -> Path:
    return picture(path, np.full((8, 8), 50, np.uint8))


def pages(path: Path) -> Path:
    more = [Image.new("L", (8, 8))]
    return picture(path, np.full((8, 8), 50, np.uint8), save_all=True, append_images=more)


def old_store(files: list[Path], cache: Path, *, finished: bool = True) -> Path:
    """Leave a store as the first version did: all pixels OLD, and not a word of any rules."""
    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setattr(building, "DONE", "done.u8")
        row = np.full((1, 8, 8), OLD, np.uint8)
        patched.setattr(store, "load_image", lambda *_: row)
        folder = build_store(files, SMALL, cache).folder
    index = json.loads((folder / "index.json").read_text())
    del index["decoding"]
    (folder / "index.json").write_text(json.dumps(index))
    if not finished:
        (folder / "index.json").unlink()
    return folder


def test_floating_point_images_get_their_new_scale(tmp_path: Path) -> None:
    files, cache = [plain(tmp_path / "a.png"), floating(tmp_path / "b.tif")], tmp_path / "cache"
    folder = old_store(files, cache)
    built = build_store(files, SMALL, cache)
    # Codes of images are named like the store, so its name stays.
    assert built.folder == folder
    assert built[:].amax((1, 2, 3)).tolist() == [50, 128]
    assert build_store(files, SMALL, cache)[:].amax((1, 2, 3)).tolist() == [50, 128]


def test_files_of_several_pages_are_refused_in_old_stores_too(tmp_path: Path) -> None:
    files, cache = [plain(tmp_path / "a.png"), pages(tmp_path / "b.tif")], tmp_path / "cache"
    folder = old_store(files, cache)
    with pytest.raises(DisMixError, match=r"b\.tif: holds 2 pages, and nothing says which"):
        build_store(files, SMALL, cache)
    # What the older version read can no longer be opened as if it were complete.
    with pytest.raises(DisMixError, match="not a complete image store"):
        ImageStore(folder, files)
    built = build_store(files, SMALL, cache, on_error="skip")
    assert built.valid.tolist() == [0]
    assert built.to_device("cpu").amax((1, 2, 3)).tolist() == [50, 0]


def test_other_stores_are_kept_and_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [plain(tmp_path / f"a.{ending}") for ending in ("png", "jpg", "tif", "webp", "bmp")]
    cache = tmp_path / "cache"
    old_store(files, cache)
    looked: list[Path] = []

    def look(path: Path) -> bool:
        looked.append(path)
        return read_otherwise(path)

    monkeypatch.setattr(store_outdated, "read_otherwise", look)
    for _ in range(2):
        assert (build_store(files, SMALL, cache)[:] == OLD).all()
    assert looked == files


def test_a_store_that_cannot_be_noted_to_be_right_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, cache = [plain(tmp_path / "a.png")], tmp_path / "cache"
    folder = old_store(files, cache)

    def refuse(*_: object) -> None:
        raise DisMixError("cannot write here (Read-only file system)", file=folder)

    monkeypatch.setattr(store_outdated, "write_json", refuse)
    assert (build_store(files, SMALL, cache)[:] == OLD).all()


def test_what_an_older_version_left_unfinished_begins_anew(tmp_path: Path) -> None:
    files, cache = [floating(tmp_path / "a.tif")], tmp_path / "cache"
    old_store(files, cache, finished=False)
    assert (build_store(files, SMALL, cache)[:] == 128).all()


@pytest.mark.parametrize(
    ("dtype", "ending", "otherwise"),
    [(np.uint8, "tif", False), (np.uint16, "tif", False), (np.uint16, "png", False),
     (np.int32, "tif", True), (np.float32, "tif", True)],
)  # fmt: skip
def test_headers_tell(dtype: Any, ending: str, otherwise: bool, tmp_path: Path) -> None:
    path = picture(tmp_path / f"a.{ending}", np.full((8, 8), 1, dtype))
    assert read_otherwise(path) is otherwise


def test_frames_and_damage_are_told_too(tmp_path: Path) -> None:
    animated = tmp_path / "a.webp"
    first, second = Image.new("RGB", (8, 8)), Image.new("RGB", (8, 8), (9, 200, 9))
    first.save(animated, save_all=True, append_images=[second], lossless=True)
    assert read_otherwise(animated)
    (tmp_path / "b.png").write_text("no picture")
    assert read_otherwise(tmp_path / "b.png")
    assert read_otherwise(tmp_path / "absent.png")


@pytest.mark.parametrize(("frames", "otherwise"), [(None, False), (1, False), (2, True)])
def test_frames_of_dicom_files_are_counted(
    frames: int | None, otherwise: bool, tmp_path: Path
) -> None:
    pydicom = pytest.importorskip("pydicom")
    header = pydicom.Dataset()
    header.Rows = header.Columns = 8
    if frames is not None:
        header.NumberOfFrames = frames
    header.file_meta = pydicom.dataset.FileMetaDataset()
    header.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    pydicom.dcmwrite(tmp_path / "a.dcm", header, enforce_file_format=False)
    assert read_otherwise(tmp_path / "a.dcm") is otherwise
