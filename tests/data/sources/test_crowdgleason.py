from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dismix.data.sources import crowdgleason
from dismix.errors import DisMixError

Build = Callable[[str], Path]


def test_majority_votes_and_consensus_test_set(build: Build) -> None:
    manifest = crowdgleason.read(build("crowdgleason"))
    assert manifest.meta.ranks == ("NC", "G3", "G4", "G5")
    assert manifest.annotators == [f"Resident{i}" for i in range(1, 8)]
    assert manifest.table["split"].tolist() == ["train"] * 3 + ["val"] + ["test"] * 2
    assert manifest.grades.tolist() == [0, 2, 3, 1, 1, 0]
    nan = np.nan
    np.testing.assert_array_equal(manifest.votes[0], [0, nan, nan, 1, nan, nan, 0])
    np.testing.assert_array_equal(manifest.votes[1], [nan, 2, nan, nan, 3, 2, nan])
    assert "p6_0_0" not in " ".join(manifest.table["image"])
    assert manifest.table["image"].iloc[0] == "patches/train/p1_0_0.png"


def test_without_consensus_the_expert_decides(build: Build) -> None:
    manifest = crowdgleason.read(build("crowdgleason"), consensus_only=False)
    assert manifest.grades.tolist()[4:] == [1, 2, 0]


def test_numbers_minus_one_and_the_aggregates_of_the_authors_code(build: Build) -> None:
    root = build("crowdgleason")
    for split in ("train", "val", "test"):
        file = root / f"{split}.csv"
        text = file.read_text().replace("label", "MV")
        for code, name in enumerate(("NC", "G3", "G4", "G5")):
            text = text.replace(name, str(code))
        lines = text.splitlines()
        # A Dawid-Skene column, and -1 for "not graded".
        lines = [lines[0] + ",DS", *(line.replace(",,", ",-1,") + ",0" for line in lines[1:])]
        file.write_text("\n".join(lines))
    manifest = crowdgleason.read(root)
    assert manifest.annotators == [f"Resident{i}" for i in range(1, 8)]
    assert manifest.grades.tolist() == [0, 2, 3, 1, 1, 0]
    assert np.nansum(manifest.votes) == 0 + 1 + 0 + 2 + 3 + 2 + 3 + 1 + 3 + 0


def test_slides_by_pattern(build: Build) -> None:
    manifest = crowdgleason.read(build("crowdgleason"), group_pattern=r"^(p\d+)_")
    assert manifest.table["group"].tolist() == ["p1", "p2", "p3", "p4", "p5", "p7"]
    for pattern, message in [("p(", "no regular"), ("p", "0 capture"), ("(x)", "does not match")]:
        with pytest.raises(DisMixError, match=message):
            crowdgleason.read(manifest.root, group_pattern=pattern)


def test_the_splits_own_folder_wins(build: Build, draw: Callable[..., Path]) -> None:
    root = build("crowdgleason")
    draw(root / "patches" / "a" / "p5_0_0.png", 9)
    assert crowdgleason.read(root).table["image"].iloc[4] == "patches/test/p5_0_0.png"


def test_bad_cells_and_columns_are_named(build: Build) -> None:
    root = build("crowdgleason")
    file = root / "train.csv"
    text = file.read_text()
    file.write_text(text.replace("G5,G4", "G6,G4"))
    with pytest.raises(
        DisMixError, match=r"train\.csv, row 3, column 'Resident5': 'G6' is not a grade"
    ):
        crowdgleason.read(root)
    file.write_text(text.replace("label", "votes"))
    with pytest.raises(DisMixError, match=r"row 1, column 'label': is missing"):
        crowdgleason.read(root)
    file.write_text(text)
    test = root / "test.csv"
    test.write_text(test.read_text().replace("ground truth", "Resident8"))
    with pytest.raises(DisMixError, match=r"test\.csv, row 1, column 'ground truth': is missing"):
        crowdgleason.read(root)
    (root / "val.csv").unlink()
    with pytest.raises(DisMixError, match=r"'val\.csv' was not found here"):
        crowdgleason.read(root)
