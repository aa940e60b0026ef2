"""Soft labels in a manifest: read back as they were written, refused when they are no laws."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from dismix.data.describe import grade_counts
from dismix.data.manifest import ManifestMeta, make_manifest, read_manifest, write_manifest
from dismix.data.mixed_rows import mixed_rows
from dismix.data.table_checks import Sheet
from dismix.errors import DisMixError


def table() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "image": ["a.png", "b.png", "c.png", "d.png"],
            "split": ["train", "train", "train", "test"],
            "grade": [None, 2, None, 1],
            "annotator_1": [None, 1, 2, None],
            "prob_0": [0.0, None, 0.5, 1.0],
            "prob_1": [0.25, None, 0.5, 0.0],
            "prob_2": [0.75, None, 0.0, 0.0],
        }
    )


def test_laws_come_first_and_are_not_clean(tmp_path: Path) -> None:
    write_manifest(make_manifest(table(), None, tmp_path), tmp_path / "m.csv")
    manifest = read_manifest(tmp_path / "m.csv")
    target = manifest.target()
    wanted = [[0, 0.25, 0.75], [0, 1, 0], [0.5, 0.5, 0], [0, 1, 0]]
    torch.testing.assert_close(target.probs, torch.tensor(wanted))
    assert target.clean.tolist() == [False, True, False, True]
    assert manifest.num_ranks == 3
    assert manifest.split("train").target().probs.shape == (3, 3)


def test_laws_alone_are_enough(tmp_path: Path) -> None:
    alone = table().drop(columns=["grade", "annotator_1"]).iloc[[0, 2]]
    manifest = make_manifest(alone, None, tmp_path)
    assert manifest.num_ranks == 3
    assert manifest.target().rank.tolist() == [1.75, 0.5]


def test_laws_beside_a_grade_column_that_is_empty(tmp_path: Path) -> None:
    alone = table().drop(columns=["annotator_1"]).iloc[[0, 2]].assign(grade="")
    assert make_manifest(alone, None, tmp_path).num_ranks == 3


def test_laws_say_how_many_ranks_there_are_whatever_grades_leave_out(tmp_path: Path) -> None:
    laws = {f"prob_{rank}": [float(rank == 3), None, None] for rank in range(10)}
    sparse = pd.DataFrame(
        {"image": ["a", "b", "c"], "split": "train", "grade": [None, 0, 9], **laws}
    )
    assert make_manifest(sparse, None, tmp_path).num_ranks == 10


def test_decimals_that_were_rounded_still_are_a_law(tmp_path: Path) -> None:
    laws = {"prob_0": ["0.33", "0.12"], "prob_1": ["0.33", "0.13"], "prob_2": ["0.33", "0.76"]}
    rounded = pd.DataFrame({"image": ["a", "b"], "split": "train", **laws})
    target = make_manifest(rounded, None, tmp_path).target()
    assert target.probs.sum(1).tolist() == pytest.approx([1, 1])
    assert target.probs[1].tolist() == pytest.approx([0.12 / 1.01, 0.13 / 1.01, 0.76 / 1.01])


@pytest.mark.parametrize(
    ("row", "column", "value", "words"),
    [
        (0, "prob_1", 0.27, "row 2, column 'prob_0': probabilities sum to 1.02"),
        (0, "prob_1", 0.5, "row 2, column 'prob_0': probabilities sum to 1.25"),
        (0, "prob_2", -0.1, "row 2, column 'prob_2': '-0.1' is not a probability"),
        (2, "prob_2", None, "row 4, column 'prob_2': 'nan' is not a probability"),
        (0, "prob_2", "x", "row 2, column 'prob_2': 'x' is not a probability"),
    ],
)
def test_what_is_no_law_is_named(row, column, value, words) -> None:
    wrong = table().astype(object)
    wrong.loc[row, column] = value
    with pytest.raises(DisMixError) as error:
        make_manifest(wrong, None, ".")
    assert words in str(error.value)


def test_columns_must_fit_the_ranks() -> None:
    meta = ManifestMeta(ranks=("low", "mid", "high", "top"))
    with pytest.raises(DisMixError, match="column 'prob_3': probabilities of 4 ranks"):
        make_manifest(table(), meta, ".")
    with pytest.raises(DisMixError, match="column 'prob_1': probabilities of 3 ranks"):
        make_manifest(table().drop(columns="prob_1"), None, ".")
    # A grade may ask for more ranks than there are columns.
    high = table()
    high.loc[high["grade"].notna().idxmax(), "grade"] = 4
    with pytest.raises(DisMixError, match="column 'prob_3': probabilities of 5 ranks"):
        make_manifest(high, None, ".")
    nothing = table().drop(columns=["grade", "annotator_1"])
    with pytest.raises(
        DisMixError, match=r"row 3: .* neither a grade nor a vote.*'prob_0', 'prob_1'"
    ):
        make_manifest(nothing, None, ".")


def test_checks_count_laws_by_their_likeliest_rank() -> None:
    alone = table().drop(columns=["grade", "annotator_1"]).iloc[[0, 2]].reset_index(drop=True)
    sheet = Sheet(alone, None, Path(), "x", np.arange(2))
    assert sheet.ranks == ("0", "1", "2")
    assert sheet.counts() == {"train": [1, 0, 1]}


def test_checks_count_as_training_does() -> None:
    both = pd.DataFrame(
        {"image": [*"abcd"], "split": ["train", "train", "test", "test"],
         "grade": [0, None, 0, None], "annotator_1": [None, 0, None, 1],
         "prob_0": [0.2, 0.3, 0.1, None], "prob_1": [0.8, 0.7, 0.9, None]}
    )  # fmt: skip
    manifest = make_manifest(both, None, ".")
    sheet = Sheet(manifest.table, manifest.meta, Path(), "x", manifest.lines)
    assert manifest.target().hard.tolist() == [1, 1, 0, 1]
    assert sheet.counts() == grade_counts(manifest) == {"train": [0, 2], "test": [1, 1]}


def test_a_mix_is_what_nobody_graded():
    table = pd.DataFrame({
        "image": ["graded", "voted", "soft", "mix"], "policy": ["x", "x", None, "x"],
        "grade": [0, None, None, None], "annotator_a": [None, 1, None, None],
        "prob_0": [0.5] * 4, "prob_1": [0.5] * 4,
    })  # fmt: skip
    assert mixed_rows(make_manifest(table, None, ".")).tolist() == [False, False, False, True]
