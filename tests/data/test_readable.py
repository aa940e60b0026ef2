import json
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dismix.data.check import check_path
from dismix.data.manifest import read_manifest
from dismix.data.readable import left_out_lines, write_readable
from dismix.errors import DisMixError
from dismix.generator.images import load_split


def written(folder: Path, count: int, text: str = "image,grade\n") -> Path:
    for i in range(count):
        pixels = np.random.default_rng(i).integers(0, 256, (24, 24), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    path = folder / "manifest.csv"
    path.write_text(text + "".join(f"{i}.png,{i % 3}\n" for i in range(count)))
    return path


def test_what_training_refuses_is_left_out_as_it_advises(tmp_path: Path) -> None:
    path = written(tmp_path, 9)
    (tmp_path / "8.png").write_bytes((tmp_path / "8.png").read_bytes()[:200])
    with pytest.raises(DisMixError, match="`dismix data check MANIFEST --write-readable"):
        load_split(read_manifest(path), "train", 16, device="cpu", cache=tmp_path / "cache")
    kept = write_readable(tmp_path, check_path(path, near=False), tmp_path / "new.csv")
    again = read_manifest(tmp_path / "new.csv")
    assert kept.table.equals(again.table)
    assert again.table["image"].tolist() == [f"{i}.png" for i in range(8)]
    split = load_split(again, "train", 16, device="cpu", cache=tmp_path / "cache")
    assert len(split) == 8


def test_what_only_the_bits_in_use_refuse_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, 9)
    path.with_suffix(".meta.json").write_text(json.dumps({"ranks": ["0", "1", "2"], "bits": 12}))
    # 16-bit colour, which Pillow cannot write.
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0" + struct.pack(">3H", 4095, 2048, 0))),
        (b"IEND", b""),
    )
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    ]
    (tmp_path / "8.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    report = check_path(path, near=False)
    assert "16-bit colour" in report.of("unreadable-image")[0].message
    write_readable(path, report, tmp_path / "new.csv")
    again = read_manifest(tmp_path / "new.csv")
    assert len(load_split(again, "train", 16, device="cpu", cache=tmp_path / "cache")) == 8


def test_ranks_do_not_shrink_with_the_rows(tmp_path: Path) -> None:
    path = written(tmp_path, 3)
    (tmp_path / "2.png").unlink()
    write_readable(path, check_path(path), tmp_path / "new.csv")
    assert read_manifest(tmp_path / "new.csv").num_ranks == 3


def test_many_rows_are_counted(tmp_path: Path) -> None:
    path = written(tmp_path, 10)
    for i in range(8):
        (tmp_path / f"{i}.png").write_bytes(b"")
    lines = left_out_lines(check_path(path))
    assert lines[0] == "left out: row 2: 0.png: file is empty"
    assert len(lines) == 6
    assert lines[-1] == "left out: 3 more rows"


def test_a_bad_table_and_images_that_are_all_bad_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, 2)
    for i in range(2):
        (tmp_path / f"{i}.png").unlink()
    with pytest.raises(DisMixError, match="no image can be read"):
        write_readable(path, check_path(path), tmp_path / "new.csv")
    path.write_text("image,grade\n0.png,x\n")
    with pytest.raises(DisMixError, match="row 2, column 'grade'"):
        write_readable(path, check_path(path), tmp_path / "new.csv")
    assert not (tmp_path / "new.csv").exists()


def test_rows_are_not_dropped_for_want_of_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, 2)
    (tmp_path / "1.png").write_bytes(bytes(128) + b"DICM" + bytes(100))
    monkeypatch.setitem(sys.modules, "pydicom", None)
    report = check_path(path)
    assert not report.ok
    with pytest.raises(DisMixError, match=r"1 images need .*; pip install 'dismix\[dicom\]'"):
        write_readable(path, report, tmp_path / "new.csv")
    assert not (tmp_path / "new.csv").exists()
