"""Names that differ in spelling only: of files, annotators, patients, ranks."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from dismix.data.check import check_path
from dismix.data.long_form import pivot_long
from dismix.data.manifest import read_manifest
from dismix.data.sources import read_source
from dismix.errors import DisMixError


def _pictures(folder: Path, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for number, name in enumerate(names):
        pixels = np.random.default_rng(number).integers(255, size=(8, 8)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / name)


def test_a_file_in_another_case_is_named(tmp_path):
    _pictures(tmp_path / "i", "UP.PNG", "b.png")
    table = tmp_path / "t.csv"
    table.write_text("image,grade\ni/up.png,0\ni/b.png,1\n")
    with pytest.raises(DisMixError, match=r"row 2.*no such image .*up\.png; did you mean 'UP.PNG'"):
        read_source(table)
    told: list[str] = []
    assert len(read_source(table, on_missing=told.append)) == 1
    assert told == ["row 2: i/up.png: no such image, but 'UP.PNG' is there"]


def test_a_table_of_which_all_names_are_in_another_case_says_so(tmp_path):
    _pictures(tmp_path, "a.png", "b.png")
    table = tmp_path / "t.csv"
    table.write_text("image,grade\nA.PNG,0\nB.PNG,1\n")
    with pytest.raises(DisMixError, match=r"'a\.png'. .2 of them differ in letter case or"):
        read_source(table)
    # Names without an ending are completed by an option, not one by one.
    table.write_text("image,grade\na,0\nb,1\n")
    with pytest.raises(DisMixError, match="--set suffix=png"):
        read_source(table)


@pytest.mark.parametrize(("one", "other"), [("Smith", "SMITH"), ("1", "1.0"), ("Zoë", "ZOË")])
def test_one_annotator_in_two_spellings_is_refused(one, other):
    table = pd.DataFrame(
        {"image": ["a", "a", "b"], "annotator": [one, other, one], "grade": ["0", "1", "1"]}
    )
    with pytest.raises(DisMixError, match=f"row 3.*'{other}' differs from '{one}' in row 2"):
        pivot_long(table)
    wide, _ = pivot_long(table.assign(annotator=[one, "Jones", one]))
    assert len(wide) == 2


@pytest.mark.parametrize(("one", "other"), [("P07", "p07"), ("7", "7.0")])
def test_one_patient_in_two_spellings_is_told(tmp_path, one, other):
    _pictures(tmp_path, "a.png", "b.png", "c.png")
    file = tmp_path / "manifest.csv"
    rows = f"a.png,train,0,{one}\nb.png,test,1,{other}\nc.png,train,1,x\n"
    file.write_text("image,split,grade,group\n" + rows)
    (found,) = [f for f in check_path(file).findings if f.code == "groups-alike"]
    assert found.level == "warning"
    assert f"groups '{one}' (row 2, split train) and '{other}' (row 3, split test)" in found.message
    assert found.rows == (2, 3)
    file.write_text("image,split,grade,group\n" + rows.replace(other, "08"))
    assert "groups-alike" not in [f.code for f in check_path(file).findings]


def test_ranks_that_differ_in_case_only_are_refused(tmp_path):
    _pictures(tmp_path, "a.png", "b.png")
    table = tmp_path / "t.csv"
    table.write_text("image,grade\na.png,mild\nb.png,severe\n")
    with pytest.raises(DisMixError, match="'mild' and 'Mild' differ in spelling only"):
        read_source(table, ranks=("mild", "Mild", "severe"))


def test_columns_are_listed_as_they_are_in_the_file(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("id_code,Level\na.png,0\n")
    with pytest.raises(DisMixError, match="no column 'image' among 'id_code', 'Level'; name"):
        read_manifest(file)
    file.write_text("id_code,split\na.png,train\n")
    with pytest.raises(DisMixError, match="no column 'image' among 'id_code', 'split'; name"):
        read_manifest(file)


def test_a_patient_in_two_folders_is_named_by_both_images(tmp_path):
    for split in ("train", "test"):
        for grade in ("0", "1"):
            (tmp_path / split / grade).mkdir(parents=True)
            _pictures(tmp_path / split / grade, f"p{grade}_1.png", f"p{grade}_2.png")
    with pytest.raises(DisMixError) as caught:
        read_source(tmp_path, "folders", group_pattern=r"(p\d+)")
    said = str(caught.value)
    assert "'train' ('train/0/p0_1.png') and in 'test' ('test/0/p0_1.png')" in said
    assert "row" not in said
    assert str(tmp_path) in said
