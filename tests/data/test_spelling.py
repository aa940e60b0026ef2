"""Names with accents, in a manifest from one system and files on another."""

import unicodedata
from pathlib import Path

import pytest
from PIL import Image

from dismix.data.check import check_path
from dismix.data.draws import image_keys
from dismix.data.manifest import read_manifest
from dismix.data.sources import read_source
from dismix.data.spelling import as_on_disk


@pytest.mark.parametrize(("on_disk", "in_table"), [("NFD", "NFC"), ("NFC", "NFD")])
def test_files_are_found_by_the_other_spelling(tmp_path: Path, on_disk: str, in_table: str) -> None:
    (tmp_path / unicodedata.normalize(on_disk, "Königin")).mkdir()
    rows = []
    for number in range(2):
        name = f"Königin/é{number}.png"
        Image.new("L", (8, 8), 90 * number).save(tmp_path / unicodedata.normalize(on_disk, name))
        rows.append(f"{unicodedata.normalize(in_table, name)},{number}\n")
    table = tmp_path / "m.csv"
    table.write_text("image,grade\n" + "".join(rows), encoding="utf-8")
    assert all(path.is_file() for path in read_manifest(table).image_paths)
    assert not check_path(table).of("missing-image")
    assert len(read_source(table, "table")) == 2
    (tmp_path / unicodedata.normalize(on_disk, "Königin/é0.png")).write_text("no picture")
    assert {f.code for f in check_path(table).of("error")} == {"unreadable-image"}


def test_draws_do_not_depend_on_the_spelling() -> None:
    names = ["Königin/é1.png", "Königin/é2.png", "a/é2.png"]
    keys = [
        image_keys([Path(unicodedata.normalize(form, name)) for name in names])
        for form in ("NFC", "NFD")
    ]
    assert keys[0] == keys[1] == names


def test_a_name_that_no_disk_takes_is_left_to_whoever_opens_it() -> None:
    path = Path("é" * 400 + ".png")
    assert as_on_disk(path) == path


def test_what_is_there_or_nowhere_stays_as_it_is(tmp_path: Path) -> None:
    forms = [tmp_path / unicodedata.normalize(form, "é.png") for form in ("NFC", "NFD")]
    assert [as_on_disk(path) for path in forms] == forms
    for path in forms:
        path.touch()
    if forms[0].samefile(forms[1]):
        pytest.skip("this file system takes one for the other")
    assert [as_on_disk(path) for path in forms] == forms
    assert as_on_disk(Path("fehlt/ü.png")) == Path("fehlt/ü.png")
