import os
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from dismix.data.sources import SOURCES, folders, read_source
from dismix.errors import DisMixError

Build = Callable[[str], Path]
Draw = Callable[..., Path]


def test_splits_and_natural_order(build: Build) -> None:
    manifest = folders.read(build("folders"))
    assert manifest.meta.ranks == ("grade 1", "grade 2", "grade 10")
    assert dict(zip(manifest.table["image"], manifest.grades, strict=True)) == {
        "train/grade 1/p2_train.png": 0,
        "train/grade 2/p0_train.png": 1,
        "train/grade 10/p1_train.png": 2,
        "test/grade 1/p2_test.png": 0,
        "test/grade 2/p0_test.png": 1,
        "test/grade 10/p1_test.png": 2,
    }
    assert "grade 1 < grade 2 < grade 10" in manifest.meta.notes


def test_numbers_with_decimals_are_ranked_by_value(tmp_path: Path, draw: Draw) -> None:
    for grade in ("1", "0.5", "0.25", "-1"):
        draw(tmp_path / grade / "a.png")
    manifest = folders.read(tmp_path)
    assert manifest.meta.ranks == ("-1", "0.25", "0.5", "1")
    assert "-1 < 0.25 < 0.5 < 1" in manifest.meta.notes


@pytest.mark.parametrize(
    "names",
    [
        ("mild", "moderate", "none"),
        ("NC", "G3", "G4"),
        ("T2 none", "T2 mild"),
        ("2a", "2b"),
        ("KL", "KL1"),
        ("<1", "1-2", ">2"),
        ("0", "1", "ungraded"),
    ],
)
def test_words_are_not_ranked_by_the_alphabet(
    tmp_path: Path, draw: Draw, names: tuple[str, ...]
) -> None:
    for name in names:
        draw(tmp_path / name / "a.png")
    with pytest.raises(DisMixError, match="no number says which folder is the lower rank") as info:
        folders.read(tmp_path)
    assert "--ranks" in str(info.value)
    assert str(info.value).endswith("move a folder away that is no grade")
    assert all(name in str(info.value) for name in names)
    assert folders.read(tmp_path, ranks=names).meta.ranks == names


@pytest.mark.parametrize(
    "names", [("0_none", "1 mild", "2-severe"), ("KL-1 a", "kl-2", "KL-10"), ("grade1", "grade2")]
)
def test_words_with_a_number_each_are_ranked_by_it(
    tmp_path: Path, draw: Draw, names: tuple[str, ...]
) -> None:
    for name in names:
        draw(tmp_path / name / "a.png")
    assert folders.read(tmp_path).meta.ranks == names


def test_a_folder_whose_name_begins_with_a_space_is_named(tmp_path: Path, draw: Draw) -> None:
    for grade in ("grade 0 ", " grade 1"):
        draw(tmp_path / grade / "a.png")
    with pytest.raises(DisMixError, match="folder ' grade 1' begins with a space; rename it"):
        read_source(tmp_path)


def test_without_splits_all_rows_are_train(tmp_path: Path, draw: Draw) -> None:
    for grade in ("high", "low"):
        draw(tmp_path / grade / "a.PNG")
    (tmp_path / "low" / "notes.txt").write_text("no image")
    manifest = folders.read(tmp_path, ranks=("low", "high"), grey=True, equalize=True)
    assert set(manifest.table["split"]) == {"train"}
    assert dict(zip(manifest.table["image"], manifest.grades, strict=True)) == {
        "low/a.PNG": 0,
        "high/a.PNG": 1,
    }
    assert manifest.meta.grey
    assert manifest.meta.equalize


def test_numbers_keep_their_gap_and_their_start(tmp_path: Path, draw: Draw) -> None:
    for grade in ("1", "2", "4"):
        draw(tmp_path / grade / "a.png")
    manifest = folders.read(tmp_path)
    assert manifest.meta.ranks == ("1", "2", "3", "4")
    assert manifest.grades.tolist() == [0, 1, 3]


def test_split_words_and_patients_in_subfolders(tmp_path: Path, draw: Draw) -> None:
    for split, patient in (("Training", "p1"), ("validation", "p2"), ("TEST", "p3")):
        for grade in "01":
            draw(tmp_path / split / grade / patient / "left.png")
    manifest = folders.read(tmp_path, group_pattern=r"^(p\d)/")
    assert manifest.table["split"].tolist() == ["train", "train", "val", "val", "test", "test"]
    assert manifest.table["group"].tolist() == ["p1", "p1", "p2", "p2", "p3", "p3"]


def test_refuses_loose_images_unknown_ranks_and_one_rank(tmp_path: Path, draw: Draw) -> None:
    draw(tmp_path / "mild" / "a.png")
    draw(tmp_path / "severe" / "a.png")
    with pytest.raises(DisMixError, match="folder 'severe' is not among the ranks"):
        folders.read(tmp_path, ranks=("mild", "sever"))
    loose = draw(tmp_path / "b.png")
    with pytest.raises(DisMixError, match=r"b\.png: lies in no grade folder"):
        folders.read(tmp_path)
    assert not folders.recognises(tmp_path)
    loose.unlink()
    (tmp_path / "severe").rename(tmp_path / ".hidden")
    with pytest.raises(DisMixError, match="holds only one grade, 'mild'"):
        folders.read(tmp_path)
    assert not folders.recognises(tmp_path)


def test_a_folder_of_data_sets_is_not_taken_for_grades(tmp_path: Path, draw: Draw) -> None:
    draw(tmp_path / "set a" / "train" / "0" / "a.png")
    draw(tmp_path / "set b" / "train" / "0" / "a.png")
    assert not folders.recognises(tmp_path)


def test_what_archivers_leave_behind_is_no_grade(tmp_path: Path, draw: Draw) -> None:
    for grade in ("0", "1"):
        draw(tmp_path / grade / "a.png")
    (tmp_path / "__MACOSX").mkdir()
    (tmp_path / "__MACOSX" / "._a.png").write_bytes(b"resource fork")
    assert folders.recognises(tmp_path)
    assert folders.read(tmp_path).meta.ranks == ("0", "1")


@pytest.mark.parametrize("name", ["dev", "validate", "holdout", "Train_2"])
def test_images_beside_the_splits_are_not_dropped(build: Build, draw: Draw, name: str) -> None:
    root = build("folders")
    (root / "notes").mkdir()
    assert len(folders.read(root)) == 6
    draw(root / name / "grade 1" / "a.png")
    with pytest.raises(DisMixError, match=f"{name}: holds images beside .*; rename it to train"):
        # Without a source too: the folder must not make the tree look like none.
        read_source(root)


def test_two_names_of_one_number_are_refused(tmp_path: Path, draw: Draw) -> None:
    for grade in ("0", "00", "1"):
        draw(tmp_path / grade / "a.png")
    with pytest.raises(DisMixError, match=r"folders '00?' and '00?' have the same number"):
        folders.read(tmp_path)
    (tmp_path / "0").rename(tmp_path / "2")
    assert folders.read(tmp_path).meta.ranks == ("00", "1", "2")


@pytest.mark.parametrize("place", ["mild/caf\udce9.png", "s\udce9v\udce8re/a.png"])
def test_names_that_are_no_text_are_one_line(tmp_path: Path, draw: Draw, place: str) -> None:
    for grade in ("mild", "severe"):
        draw(tmp_path / grade / "a.png")
    try:
        draw(tmp_path / place)
    except OSError:
        pytest.skip("this disk takes no such names")
    with pytest.raises(DisMixError, match=r"\\udce9.*the name is not UTF-8 text; rename the file"):
        read_source(tmp_path)


def test_pictures_that_cannot_be_read_are_told_and_no_grade_goes_with_them(
    tmp_path: Path, draw: Draw
) -> None:
    for grade in ("1a", "2b", "3c"):
        draw(tmp_path / grade / "1.png")
        (tmp_path / grade / "2.gif").write_bytes(b"GIF89a")
    (tmp_path / "2b" / "3.nii.gz").write_bytes(b"x")
    with pytest.warns(UserWarning, match=r"4 pictures of kinds .* left out \(3 .gif, 1 .nii.gz\)"):
        manifest = read_source(tmp_path)
    assert len(manifest) == 3
    (tmp_path / "3c" / "1.png").unlink()
    # Also where the layout is to be guessed: the folder at fault is named.
    with pytest.raises(DisMixError, match=r"3c: holds pictures that cannot be read \(1 .gif\)"):
        read_source(tmp_path)


def test_linked_folders_are_looked_into_once(tmp_path: Path, draw: Draw) -> None:
    for grade in ("1a", "2b"):
        draw(tmp_path / "set" / grade / "1.png")
    draw(tmp_path / "elsewhere" / "2.png")
    (tmp_path / "set" / "1a" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "set" / "1a" / "again").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "set" / "2b" / "up").symlink_to(tmp_path / "set" / "2b")
    manifest = folders.read(tmp_path / "set")
    names = manifest.table["image"].tolist()
    assert len(names) == 3
    assert {"1a/1.png", "2b/1.png"} < {*names}
    assert {*names} & {"1a/more/2.png", "1a/again/2.png"}


def test_one_name_for_all_grades_is_a_list_without_commas() -> None:
    with pytest.raises(DisMixError, match="--ranks: names one grade only, 'A;B;C'; name all"):
        SOURCES["folders"].parse_options(["ranks=A;B;C"])


@pytest.mark.parametrize("code", ["99", "20240101"])
def test_a_code_for_a_missing_grade_makes_no_ranks(tmp_path: Path, draw: Draw, code: str) -> None:
    for grade in ("1", "2", "3", code):
        draw(tmp_path / grade / "a.png")
    with pytest.raises(DisMixError, match=rf"{code}: is far above the next grade, 3; move the fol"):
        folders.read(tmp_path)
    # Whoever lists the ranks is believed.
    assert folders.read(tmp_path, ranks=("1", "2", "3", code)).num_ranks == 4


def test_accents_are_spelled_in_two_ways(tmp_path: Path, draw: Draw) -> None:
    forms = {"train": "NFD", "test": "NFC"}
    for split, form in forms.items():
        for grade in ("sain", "léger"):
            draw(tmp_path / split / unicodedata.normalize(form, grade) / f"{split}.png")
    manifest = folders.read(tmp_path, ranks=("sain", "léger"))
    assert manifest.meta.ranks == ("sain", "léger")
    assert manifest.grades.tolist() == [1, 0, 1, 0]


def test_a_folder_that_may_not_be_read_is_no_empty_one(
    tmp_path: Path, draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    for grade in ("0", "1", "2"):
        draw(tmp_path / grade / "a.png")
    (tmp_path / "lost+found").mkdir()
    scandir = os.scandir

    def guarded(folder: str | Path) -> object:
        # Not by rights, which do not stop whoever runs tests as root.
        if Path(folder).name in ("1", "lost+found"):
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", guarded)
    for source in (None, "folders"):
        with pytest.raises(DisMixError, match=r"1: cannot be read \(Permission denied\); change"):
            read_source(tmp_path, source)
