import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dismix.data.sources import chaoyang
from dismix.errors import DisMixError

Build = Callable[[str], Path]


def edit(file: Path, change: Callable[[list[Any]], Any]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def drop_votes(file: Path) -> None:
    entries = json.loads(file.read_text())
    file.write_text(json.dumps([{"name": e["name"], "label": e["label"]} for e in entries]))


def test_codes_become_clinical_ranks(build: Build) -> None:
    manifest = chaoyang.read(build("chaoyang"))
    assert manifest.meta.ranks == ("normal", "serrated", "adenoma", "adenocarcinoma")
    # The file says 2, 0, 1, 3 and 2, 3: adenocarcinoma (2) is the highest, adenoma (3) below it.
    assert manifest.grades.tolist() == [3, 0, 1, 2, 3, 2]
    assert manifest.annotators == ["A", "B", "C"]
    assert manifest.votes[1].tolist() == [1, 0, 0]
    assert manifest.votes[3].tolist() == [2, 3, 2]
    assert "normal < serrated < adenoma < adenocarcinoma" in manifest.meta.notes


def test_another_order_is_taken_as_given(build: Build) -> None:
    listed = ("Normal", "serrated", "adenocarcinoma", "adenoma")
    manifest = chaoyang.read(build("chaoyang"), order=listed)
    assert manifest.grades.tolist() == [2, 0, 1, 3, 2, 3]
    assert manifest.meta.ranks == ("normal", "serrated", "adenocarcinoma", "adenoma")
    for wrong in [("normal", "serrated", "adenoma"), ("a", "b", "c", "d")]:
        with pytest.raises(DisMixError, match="does not name each class once"):
            chaoyang.read(manifest.root, order=wrong)


def test_slides_are_groups_but_not_across_the_published_split(build: Build) -> None:
    manifest = chaoyang.read(build("chaoyang"))
    assert manifest.table["slide"].tolist() == [
        "535940", "535940", "353042_4", "533847", "535940", "535957",
    ]  # fmt: skip
    assert manifest.table["group"].fillna("").tolist() == [
        "535940", "535940", "353042_4", "533847", "", "535957",
    ]  # fmt: skip
    assert "1 slides in both train and test" in manifest.meta.notes
    assert "group" not in chaoyang.read(manifest.root, group_by_slide=False).table


def test_votes_come_from_the_second_file_when_the_first_has_none(build: Build) -> None:
    root = build("chaoyang")
    (root / "train_label.json").write_text((root / "train.json").read_text())
    drop_votes(root / "train.json")
    assert chaoyang.read(root).votes[3].tolist() == [2, 3, 2]
    (root / "train_label.json").unlink()
    assert np.isnan(chaoyang.read(root).votes[:4]).all()


def test_test_labels_without_votes(build: Build) -> None:
    root = build("chaoyang")
    drop_votes(root / "test.json")
    manifest = chaoyang.read(root)
    assert np.isnan(manifest.votes[4:]).all()
    assert manifest.grades[4:].tolist() == [3, 2]


@pytest.mark.parametrize("bad", [4, -1, "2", True, 1.5, 2.0])
def test_bad_codes_name_file_entry_and_key(build: Build, bad: object) -> None:
    root = build("chaoyang")
    edit(root / "train.json", lambda c: c[1].update(label_B=bad))
    with pytest.raises(DisMixError, match=r"train\.json, row 2, column 'label_B'.*not a class"):
        chaoyang.read(root)


def test_broken_json(build: Build) -> None:
    root = build("chaoyang")
    edit(root / "test.json", lambda c: c[0].pop("label"))
    with pytest.raises(DisMixError, match=r"test\.json, row 1: entry 1 has no 'label'"):
        chaoyang.read(root)
    (root / "test.json").write_text('{"a": 1}')
    with pytest.raises(DisMixError, match="is not a list of patches"):
        chaoyang.read(root)
    (root / "test.json").write_text("[1, 2]")
    with pytest.raises(DisMixError, match="entry 1"):
        chaoyang.read(root)
    (root / "test.json").write_text("[{")
    with pytest.raises(DisMixError, match="cannot be read as JSON"):
        chaoyang.read(root)
