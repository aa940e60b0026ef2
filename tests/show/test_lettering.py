"""Text in pictures: letters that a font has, never boxes."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from dismix.data.manifest import ManifestMeta, make_manifest
from dismix.show import lettering as module
from dismix.show.contact_sheet import LABEL, contact_sheet, picture_grid
from dismix.show.lettering import lettering


@pytest.mark.parametrize("name", ["sévère", "тяжёлая", "ağır", "βαριά", "łagodny", "none"])
def test_names_in_letters_beyond_ascii_are_written_as_they_are(name):
    text, font = lettering(f"2  {name}", 15)
    assert text == f"2  {name}"
    missing = bytes(font.getmask("\U0010ffff"))
    assert all(bytes(font.getmask(letter)) != missing for letter in name)


def test_letters_that_no_font_has_are_left_out(monkeypatch):
    monkeypatch.setattr(module, "_font_files", lambda: ())
    assert lettering("1  sévère", 15)[0] == "1  severe"
    assert lettering("2  重度", 15)[0] == "2"
    assert lettering("３ 重度", 15)[0] == "3"
    assert lettering("重度", 15)[0] == "?"


def test_a_sheet_shows_a_name_as_its_plain_form_where_letters_are_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_font_files", lambda: ())
    for i in range(2):
        Image.new("L", (20, 20), 90 * i).save(tmp_path / f"{i}.png")
    table = pd.DataFrame({"image": ["0.png", "1.png"], "grade": [0, 1]})
    sheets = [
        np.asarray(contact_sheet(make_manifest(table, ManifestMeta(names), tmp_path), size=64))
        for names in (("läsion", "élevé"), ("lasion", "eleve"))
    ]
    assert np.array_equal(*sheets)


def test_long_captions_end_before_the_pictures():
    black = np.zeros((64, 64, 3), np.uint8)
    sheet = np.asarray(picture_grid([[black]], [("W" * 40, "n" * 60)], 64))
    assert (sheet[:, LABEL - 4 : LABEL] == 255).all()
    assert (sheet[:, LABEL - 60 : LABEL - 4] < 255).any()
