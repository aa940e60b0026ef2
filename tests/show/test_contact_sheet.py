"""Contact sheets: the right images in the right rows."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageOps

from dismix.data.manifest import ManifestMeta, make_manifest
from dismix.errors import DisMixError
from dismix.show.contact_sheet import LABEL, MARGIN, choose_rows, contact_sheet, save_picture


@pytest.fixture
def manifest(tmp_path):
    rows = []
    for i in range(12):
        grade = i % 3
        Image.new("L", (20, 20), 50 + 80 * grade).save(tmp_path / f"{i}.png")
        rows.append({"image": f"{i}.png", "grade": grade})
    return make_manifest(pd.DataFrame(rows), ManifestMeta(("a", "b", "c"), grey=True), tmp_path)


def test_each_row_shows_its_grade(manifest):
    sheet = np.asarray(contact_sheet(manifest, columns=3, size=32))
    for grade in range(3):
        top = MARGIN + grade * (32 + MARGIN)
        for column in range(3):
            left = LABEL + column * (32 + MARGIN)
            assert (sheet[top : top + 32, left : left + 32] == 50 + 80 * grade).all()


@pytest.mark.parametrize(
    ("names", "captions"),
    [
        (("NC", "3+3", "3+4"), ["0  NC", "1  3+3", "2  3+4"]),
        (("3a", "3b", "4"), ["0  3a", "1  3b", "2  4"]),
        (("1", "2", "3"), ["1", "2", "3"]),
    ],
)
def test_positions_stand_before_all_names_or_none(manifest, names, captions, monkeypatch):
    told = []
    monkeypatch.setattr(
        "dismix.show.contact_sheet.picture_grid", lambda _, shown, __: told.extend(shown)
    )
    contact_sheet(replace(manifest, meta=ManifestMeta(names, grey=True)), columns=1, size=16)
    assert [caption for caption, _ in told] == captions


def test_choice_depends_on_the_seed_alone(manifest):
    assert choose_rows(manifest, 2, seed=1) == choose_rows(manifest, 2, seed=1)
    assert any(choose_rows(manifest, 2, seed=s) != choose_rows(manifest, 2) for s in range(1, 9))


def test_a_grade_without_images_has_an_empty_row(manifest):
    two = manifest.rows(manifest.grades < 2)
    assert [len(row) for row in choose_rows(two, 5)] == [4, 4, 0]
    assert contact_sheet(two, columns=2, size=16).height == 3 * (16 + MARGIN) + MARGIN


def test_images_are_shown_as_training_reads_them(tmp_path):
    pixels = np.full((10, 20), 4095, dtype=np.uint16)
    for name in ("a.png", "b.png"):
        Image.fromarray(pixels).save(tmp_path / name)
    table = pd.DataFrame({"image": ["a.png", "b.png"], "grade": [0, 1]})
    for fit, white in (("stretch", 32 * 32), ("pad", 32 * 16)):
        meta = ManifestMeta(("a", "b"), grey=True, bits=12, fit=fit)
        sheet = np.asarray(contact_sheet(make_manifest(table, meta, tmp_path), size=32))
        shown = sheet[MARGIN : MARGIN + 32, LABEL : LABEL + 32, 0]
        assert (shown == 255).sum() == white


@pytest.mark.parametrize("grey", [True, False])
def test_images_are_equalised_where_training_does_so(tmp_path, grey):
    ramp = np.tile(np.arange(100, 132, dtype=np.uint8), (32, 1))
    for name in ("a.png", "b.png"):
        Image.fromarray(ramp).save(tmp_path / name)
    table = pd.DataFrame({"image": ["a.png", "b.png"], "grade": [0, 1]})
    shown = {}
    for wanted in (False, True):
        meta = ManifestMeta(("a", "b"), grey=grey, equalize=wanted)
        sheet = np.asarray(contact_sheet(make_manifest(table, meta, tmp_path), size=32))
        shown[wanted] = sheet[MARGIN : MARGIN + 32, LABEL : LABEL + 32, 0]
    assert np.array_equal(shown[False], ramp)
    trained = ImageOps.equalize(Image.fromarray(ramp))
    assert np.array_equal(shown[True], np.asarray(trained))
    assert np.ptp(shown[True]) > 200


def test_captions_number_ranks_once(manifest, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "dismix.show.contact_sheet.picture_grid",
        lambda pictures, captions, size: seen.append([words for words, _ in captions]),
    )
    for names in (("none", "mild", "bad"), ("1", "2", "3"), ("0_none", "1_mild", "2_bad")):
        contact_sheet(replace(manifest, meta=ManifestMeta(names, grey=True)), columns=1, size=16)
    assert seen == [
        ["0  none", "1  mild", "2  bad"],
        ["1", "2", "3"],
        ["0_none", "1_mild", "2_bad"],
    ]


def test_unknown_format_is_named(tmp_path):
    with pytest.raises(DisMixError, match=r"unknown picture format '\.xyz'"):
        save_picture(Image.new("L", (2, 2)), tmp_path / "a.xyz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", [".jpg", ".webp", ".gif"])
def test_a_picture_too_large_for_its_format_is_told(tmp_path, ending):
    with pytest.raises(DisMixError, match=rf"2 x 70000 pixels cannot be written as '\{ending}'"):
        save_picture(Image.new("RGB", (2, 70_000)), tmp_path / f"a{ending}")
    assert list(tmp_path.iterdir()) == []
