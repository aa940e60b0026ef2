import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from dismix.data.manifest import Manifest
from dismix.data.sources import SOURCES
from dismix.data.sources.base import parse_rank
from dismix.data.sources.walking import holds_images, images_below
from dismix.errors import DisMixError


def test_options_are_listed_with_their_defaults() -> None:
    assert SOURCES["koa"].options == {"val_as_train": False}
    assert SOURCES["idrid"].options == {"block": 0}
    assert SOURCES["table"].options["first_rank"] == 0


def test_options_are_parsed_by_type() -> None:
    parse = SOURCES["chaoyang"].parse_options
    assert parse(["order=a, b,c", "group-by-slide=no"]) == {
        "order": ("a", "b", "c"),
        "group_by_slide": False,
    }
    assert SOURCES["table"].parse_options(["first_rank=1", "grade=x=y"]) == {
        "first_rank": 1,
        "grade": "x=y",
    }


@pytest.mark.parametrize(
    ("source", "text", "message"),
    [
        ("koa", "as_train=true", "has no option 'as_train'; did you mean 'val_as_train'"),
        ("koa", "val_as_train", "has no value"),
        ("koa", "val_as_train=maybe", "write true or false"),
        ("table", "first_rank=one", "write a whole number"),
        ("table", "ranks=a,,b", "is 'a,,b', with an empty name"),
        ("idrid", "x=1", "has no option 'x'"),
    ],
)
def test_bad_options_are_explained(source: str, text: str, message: str) -> None:
    with pytest.raises(DisMixError, match=message):
        SOURCES[source].parse_options([text])


def _read_plain(root: str | Path) -> Manifest:
    return SOURCES["idrid"].read(root)


def test_a_source_without_options_says_so() -> None:
    plain = replace(SOURCES["idrid"], read=_read_plain)
    assert plain.options == {}
    with pytest.raises(DisMixError, match="it takes none"):
        plain.parse_options(["x=1"])


@pytest.mark.parametrize(
    ("cell", "expected"),
    [("0", 0), ("4.0", 4), (" SEVERE ", 2), ("", None), (None, None), ("nan", None)],
)
def test_parse_rank(cell: object, expected: int | None) -> None:
    assert parse_rank(cell, ("none at all", "some", "severe", "3", "4")) == expected


@pytest.mark.parametrize("cell", ["5", "-1", "1.5", "1e0", "x", "٣", "inf"])
def test_parse_rank_refuses(cell: str) -> None:
    with pytest.raises(DisMixError, match="is not a grade"):
        parse_rank(cell, ("a", "b", "c"))


def test_dicom_files_without_an_ending_are_images(tmp_path: Path) -> None:
    dicom = bytes(128) + b"DICM"
    for name in ("IM0010", "IM0002", "1.2.840.77", "DICOMDIR", ".IM3", "notes.txt"):
        (tmp_path / name).write_bytes(dicom)
    (tmp_path / "README").write_text("DICM")
    assert [p.name for p in images_below(tmp_path)] == ["1.2.840.77", "IM0002", "IM0010"]


def test_minus_one_is_told_to_be_a_gap() -> None:
    for ranks in ((), ("a", "b"), ("1", "2")):
        with pytest.raises(DisMixError, match="leave the cell empty where there is no grade"):
            parse_rank("-1.0", ranks)
    with pytest.raises(DisMixError) as caught:
        parse_rank("9", ("a", "b"))
    assert "empty" not in str(caught.value)


def test_names_that_are_no_text_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    try:
        (tmp_path / "caf\udce9.png").touch()
    except OSError:
        pytest.skip("this disk takes no such names")
    with pytest.raises(DisMixError) as caught:
        images_below(tmp_path)
    assert str(caught.value).endswith(
        "caf\\udce9.png': the name is not UTF-8 text; rename the file or its folder"
    )
    assert holds_images(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_no_image_and_nobody_waits_for_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.png").touch()
    looked = threading.Thread(target=images_below, args=(tmp_path,), daemon=True)
    looked.start()
    looked.join(5)
    assert not looked.is_alive()
    assert [path.name for path in images_below(tmp_path)] == ["a.png"]
