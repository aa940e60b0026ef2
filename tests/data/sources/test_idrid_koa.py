import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dismix.data.manifest import Manifest
from dismix.data.sources import idrid, koa, read_source
from dismix.errors import DisMixError

Build = Callable[[str], Path]


def counts(manifest: Manifest, split: str) -> list[int]:
    grades = manifest.split(split).grades.astype(int)
    return np.bincount(grades, minlength=manifest.num_ranks).tolist()


@pytest.mark.data
def test_idrid_as_published(shared_data: Path) -> None:
    manifest = read_source(shared_data / "idrid")
    assert counts(manifest, "train") == [134, 20, 136, 74, 49]
    assert counts(manifest, "test") == [34, 5, 32, 19, 13]
    assert (manifest.meta.grey, manifest.meta.equalize) == (False, False)
    file = next((shared_data / "idrid").rglob("*Training Labels.csv"))
    with open(file) as opened:
        expected = {r[0]: int(r[1]) for r in list(csv.reader(opened))[1:]}
    train = manifest.split("train")
    found = {p.stem: int(g) for p, g in zip(train.image_paths, train.grades, strict=True)}
    assert found == expected


@pytest.mark.data
def test_koa_as_published(shared_data: Path) -> None:
    manifest = read_source(shared_data / "koa")
    assert counts(manifest, "train") == [2286, 1046, 1516, 757, 173]
    assert counts(manifest, "val") == [328, 153, 212, 106, 27]
    assert counts(manifest, "test") == [639, 296, 447, 223, 51]
    assert manifest.meta.equalize
    assert manifest.meta.grey
    assert manifest.table.groupby("group")["split"].nunique().max() == 1
    assert manifest.table.groupby("group").size().max() == 2
    merged = koa.read(shared_data / "koa", val_as_train=True)
    assert counts(merged, "train") == [2614, 1199, 1728, 863, 200]
    assert len(merged.split("train")) == 6604
    assert len(merged.split("val")) == 0


def test_idrid_accepts_the_inner_folder_and_other_spellings(build: Build) -> None:
    root = build("idrid")
    inner = idrid.read(root / "B. Disease Grading")
    assert inner.grades.tolist() == idrid.read(root).grades.tolist() == [3, 0, 2, 1, 4, 2]
    assert inner.table["macular_edema"].astype(int).tolist() == [2] * 6
    part = (root / "B. Disease Grading").rename(root / "b. disease grading")
    (part / "1. Original Images").rename(part / "original_images")
    (part / "2. Groundtruths").rename(part / "2. groundtruth")
    first = next((part / "original_images").rglob("IDRiD_001.jpg"))
    first.rename(first.with_suffix(".PNG"))
    manifest = idrid.read(root)
    assert len(manifest) == 6
    assert all(p.is_file() for p in manifest.image_paths)


def test_idrid_neighbours_may_stay_together(build: Build) -> None:
    root = build("idrid")
    manifest = idrid.read(root, block=3)
    assert manifest.table["group"].tolist() == ["train-0"] * 3 + ["train-1"] + ["test-0"] * 2
    assert "group" not in idrid.read(root).table


def test_idrid_names_what_is_missing_and_where(build: Build) -> None:
    root = build("idrid")
    labels = root / "B. Disease Grading" / "2. Groundtruths"
    file = labels / "a. IDRiD_Disease Grading_Training Labels.csv"
    text = file.read_text()
    file.write_text(text.replace("IDRiD_002,0", "IDRiD_002,7"))
    with pytest.raises(DisMixError, match=r"row 3, column 'Retinopathy grade': '7' is not a grade"):
        idrid.read(root)
    file.write_text(text.replace("IDRiD_003,2", "IDRiD_003,"))
    with pytest.raises(DisMixError, match=r"row 4, column 'Retinopathy grade': is empty"):
        idrid.read(root)
    file.write_text(text.replace("Retinopathy grade", "Grade"))
    with pytest.raises(DisMixError, match=r"row 1, column 'Retinopathy grade': is missing"):
        idrid.read(root)
    file.unlink()
    with pytest.raises(DisMixError, match=r"Training Labels.csv' was not found here") as caught:
        idrid.read(root)
    assert caught.value.file == labels


def test_koa_keeps_both_knees_together_and_leaves_copies_out(build: Build) -> None:
    manifest = koa.read(build("koa"))
    assert len(manifest) == 40
    knee = manifest.table[manifest.table["group"] == "9000001"]
    assert knee["side"].tolist() == ["L", "R"]
    assert knee["split"].tolist() == ["train", "train"]
    assert not manifest.table["image"].str.contains("auto_test").any()


def test_koa_refuses_strange_names_folders_and_shared_patients(
    build: Build, draw: Callable[..., Path]
) -> None:
    root = build("koa")
    stray = draw(root / "train" / "0" / "scan.png", mode="L")
    with pytest.raises(DisMixError, match=r"scan\.png: is not named <patient><L or R>"):
        koa.read(root)
    stray.unlink()
    folder = draw(root / "val" / "5" / "9L.png", mode="L").parent
    with pytest.raises(DisMixError, match="is not a grade from 0 to 4"):
        koa.read(root)
    (folder / "9L.png").unlink()
    folder.rmdir()
    draw(root / "test" / "0" / "9000001L.png", mode="L")
    with pytest.raises(DisMixError, match=r"'9000001' is in split 'train' \(.*\) and in 'test'"):
        koa.read(root)


def test_koa_without_val_and_without_test(build: Build) -> None:
    root = build("koa")
    (root / "val").rename(root / "hidden")
    assert set(koa.read(root).table["split"]) == {"train", "test"}
    (root / "test").rename(root / "hidden2")
    with pytest.raises(DisMixError, match="'test' was not found here"):
        koa.read(root)
