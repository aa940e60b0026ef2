"""Grey images are found where nobody said what they are, and only there."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dismix.data import grey
from dismix.data.check import check_path
from dismix.data.manifest import read_manifest, write_manifest
from dismix.data.sources import read_source
from dismix.errors import DisMixError
from dismix.study.choices import Choices
from dismix.study.intake import take_in

SAID = "grey and keep one channel (--set grey=false reads them as colour)"


def picture(path: Path, *, colour: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draws = np.random.default_rng([*path.name.encode()])
    levels = draws.integers(0, 256, (24, 24, 1), dtype=np.uint8)
    pixels = levels.repeat(3, axis=2)
    if colour:
        pixels[:12, :, 0] = 255 - pixels[:12, :, 0]
    Image.fromarray(pixels).save(path)


def tree(root: Path, images: int = 12, *, colour: tuple[int, ...] = ()) -> Path:
    """A tree of two grades, whose files all have three channels."""
    for number in range(images):
        picture(root / str(number % 2) / f"{number:03}.png", colour=number in colour)
    return root


def table(root: Path, names: list[str]) -> Path:
    rows = [f"{name},{number % 2}" for number, name in enumerate(names)]
    (root / "t.csv").write_text("\n".join(["image,grade", *rows]) + "\n")
    return root / "t.csv"


def test_grey_images_are_found_in_trees_and_tables(tmp_path):
    found = read_source(tree(tmp_path))
    assert found.meta.grey
    assert found.meta.notes == f"ranks by folder name: 0 < 1; all images are {SAID}"
    listed = read_source(table(tmp_path, found.table["image"].tolist()))
    assert listed.meta.grey
    assert listed.meta.notes == f"from t.csv; all images are {SAID}"
    write_manifest(found, tmp_path / "m" / "manifest.csv")
    assert read_manifest(tmp_path / "m").meta == found.meta


@pytest.mark.parametrize("said", [True, False])
def test_what_is_said_is_not_looked_into(tmp_path, monkeypatch, said):
    monkeypatch.setattr(grey, "look_at_all", None)
    found = read_source(tree(tmp_path, colour=(0, 1)), grey=said)
    assert (found.meta.grey, "--set grey" in found.meta.notes) == (said, False)


@pytest.mark.parametrize("place", [0, 11])
def test_one_colour_image_of_a_small_set_is_seen(tmp_path, place):
    found = read_source(tree(tmp_path, colour=(place,)))
    assert not found.meta.grey
    assert found.meta.notes == "ranks by folder name: 0 < 1"


def test_large_sets_are_looked_at_in_part_whatever_their_order(tmp_path, monkeypatch):
    drawn: list[list[str]] = []
    look = grey.look_at_all

    def looked(paths, **options):
        drawn[-1] += [path.name for path in paths]
        return look(paths, **options)

    monkeypatch.setattr(grey, "look_at_all", looked)
    names = read_source(tree(tmp_path, 80), grey=True).table["image"].tolist()
    for order in (names, names[::-1], names[1::2] + names[::2]):
        drawn.append([])
        found = read_source(table(tmp_path, order))
        assert found.meta.notes.endswith(f"all 48 images looked at are {SAID}")
    assert len({*drawn[0]}) == 48
    assert drawn[0] == drawn[1] == drawn[2]
    # Spread over the whole set, which a copy elsewhere shares.
    numbers = np.array([int(name[:3]) for name in drawn[0]])
    assert all(np.histogram(numbers, 4, (0, 80))[0] >= 6)
    copy = shutil.copytree(tmp_path, tmp_path / "other")
    drawn.append([])
    read_source(copy / "t.csv")
    assert drawn[3] == drawn[0]


def test_images_that_cannot_be_read_say_nothing(tmp_path):
    tree(tmp_path)
    (tmp_path / "0" / "cut.png").write_bytes(b"no picture")
    assert f"all 12 images looked at are {SAID}" in read_source(tmp_path).meta.notes
    for path in tmp_path.glob("*/*.png"):
        path.write_bytes(b"no picture")
    assert not read_source(tmp_path).meta.grey


def test_published_sources_are_not_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(grey, "look_at_all", None)
    picture(tmp_path / "train" / "0" / "9000001L.png")
    picture(tmp_path / "test" / "4" / "9000002R.png")
    assert read_source(tmp_path, "koa").meta.grey
    with pytest.raises(DisMixError, match="no option 'grey'"):
        read_source(tmp_path, "koa", grey=False)


def test_check_and_study_of_a_folder_see_what_import_would(tmp_path):
    root = tree(tmp_path / "data", 40)
    report = check_path(root)
    assert not report.of("all-grey")
    assert SAID in str(report)
    assert SAID not in str(check_path(root, images=False))
    assert take_in(root, Choices(folds=2), 16).manifest.meta.grey
