import shutil

import numpy as np
import pandas as pd
import pytest

from dismix.bench.derive import content_digest, derivation, derive, source_digest
from dismix.bench.plan_checks import DEFAULTS
from dismix.data.manifest import make_manifest, read_manifest, write_manifest
from dismix.data.phantom import PhantomSpec, build_phantom
from dismix.errors import DisMixError

SECTIONS = {"validation": {}, "votes": {}, "scarcity": {}}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Pictures with true grades only, train and test."""
    folder = tmp_path_factory.mktemp("graded")
    return build_phantom(PhantomSpec(train=100, val=0, test=20, size=32, annotators=0), folder)


def how(manifest, **cell):
    sections = {**SECTIONS, **cell.pop("sections", {})}
    return derivation(manifest, {"data": "a", **DEFAULTS, **cell}, sections)


def test_single_grades_get_five_annotators_and_a_seventh_of_validation(graded):
    settings = how(graded)
    assert settings["variability"] == 30
    made = derive(graded, settings)
    assert made.annotators == ["1", "2", "3", "4", "5"]
    # Both knees of a patient stay together.
    assert 14 <= (made.table["split"] == "val").sum() <= 16
    assert not made.split("test").has_votes.any()
    one = made.split("train", "val")
    flipped = (one.votes == 2) & (one.grades == 1)[:, None]
    # 60 % of 20 images x 5 votes, six standard deviations wide.
    assert 0.3 < flipped.sum() / (5 * (one.grades == 1).sum()) < 0.9


def test_levels_of_variability_have_their_own_votes(graded):
    votes = [derive(graded, how(graded, variability=v)).votes for v in (30, 50, 70)]
    wrong = [np.nanmean(v != graded.grades[:, None]) for v in votes]
    assert wrong == sorted(wrong)
    assert len({*wrong}) == 3


def test_a_level_that_is_asked_for_goes_before_soft_labels(graded):
    table = graded.table.copy()
    for rank in range(graded.num_ranks):
        table[f"prob_{rank}"] = 1.0 if rank == 0 else 0.0
    soft = graded.with_table(table)
    assert derivation(soft, {"data": "a", **DEFAULTS}, SECTIONS)["variability"] == "own"
    made = derive(soft, how(soft, variability=30))
    assert made.target().probs.equal(derive(graded, how(graded, variability=30)).target().probs)


def test_clean_labels_have_no_votes_and_take_the_majority_where_there_is_no_grade(graded):
    made = derive(graded, how(graded, labels="clean"))
    assert made.annotators == []
    assert made.target().probs.max(1).values.min() == 1
    table = pd.DataFrame(
        {"image": [f"{i}.png" for i in range(4)], "split": ["train", "train", "train", "test"],
         "annotator_a": [0, 1, 2, 1], "annotator_b": [0, 1, 2, 1], "annotator_c": [1, 1, 0, 1]}
    )  # fmt: skip
    from dismix.bench.derive import without_votes

    assert without_votes(make_manifest(table, None, ".")).grades.tolist() == [0, 1, 2, 1]


def test_scarcity_keeps_ten_of_a_rank_and_all_of_validation_and_test(graded):
    full = derive(graded, how(graded))
    scarce = derive(graded, how(graded, scarcity=0.1))
    kept = {*scarce.split("train").table["image"]}
    assert kept < {*full.split("train").table["image"]}
    counts = scarce.split("train").target().hard.bincount(minlength=5)
    available = full.split("train").target().hard.bincount(minlength=5)
    assert counts.tolist() == [min(10, n) for n in available.tolist()]
    for split in ("val", "test"):
        assert scarce.split(split).table["image"].tolist() == (
            full.split(split).table["image"].tolist()
        )


def test_own_validation_is_kept_or_merged(tmp_path):
    data = build_phantom(PhantomSpec(train=40, val=20, test=10, size=32), tmp_path)
    kept = derive(data, how(data))
    assert kept.table["split"].tolist() == data.table["split"].tolist()
    merged = derive(data, how(data, sections={"validation": {"own": "merge"}}))
    assert 8 <= (merged.table["split"] == "val").sum() <= 10  # 15 % of 60


def test_data_without_test_images_are_refused_in_one_line(graded):
    with pytest.raises(DisMixError, match="no test images"):
        derive(graded.split("train"), how(graded))


def test_votes_without_grades_cannot_be_simulated(tmp_path):
    table = pd.DataFrame({"image": ["a", "b"], "split": ["train", "test"], "annotator_a": [0, 2]})
    data = make_manifest(table, None, tmp_path)
    assert how(data)["variability"] == "own"
    with pytest.raises(DisMixError, match=r"has votes but no grades .* from; .*variability=own"):
        derive(data, how(data, variability=70))
    some = make_manifest(table.assign(grade=[None, 2]), None, tmp_path)
    with pytest.raises(DisMixError, match=r"has votes but no grades .* from in 1 of 2 rows"):
        derive(some, how(some, variability=70))
    laws = table.drop(columns="annotator_a").assign(prob_0=[0.5, 0.5], prob_1=[0.5, 0.5])
    soft = make_manifest(laws, None, tmp_path)
    with pytest.raises(DisMixError, match="has soft labels but no grades"):
        derive(soft, how(soft, variability=70))


def test_two_ranks_have_none_to_confuse(tmp_path):
    table = pd.DataFrame(
        {"image": [*"abcd"], "split": ["train", "train", "val", "test"], "grade": [0, 1, 0, 1]}
    )
    data = make_manifest(table, None, tmp_path)
    with pytest.raises(DisMixError, match=r"there are 2 ranks; add --set labels=clean, or to"):
        derive(data, how(data))
    assert not derive(data, how(data, labels="clean")).annotators
    both = how(data, sections={"validation": {}, "votes": {"lower": 0, "upper": 1}})
    assert len(derive(data, both).annotators) == 5


def test_digests_know_content_not_place(graded, tmp_path):
    copy = tmp_path / "elsewhere"
    shutil.copytree(graded.root, copy)
    moved = read_manifest(copy)
    assert source_digest(moved) == source_digest(graded)
    first, second = derive(graded, how(graded)), derive(moved, how(moved))
    assert content_digest(first) == content_digest(second)
    write_manifest(first, tmp_path / "written.csv")
    assert content_digest(read_manifest(tmp_path / "written.csv")) == content_digest(first)
    flipped = derive(graded, how(graded, sections={"votes": {"seed": 1}}))
    assert content_digest(flipped) != content_digest(first)
    (copy / moved.table["image"][0]).write_bytes((copy / moved.table["image"][1]).read_bytes())
    assert source_digest(read_manifest(copy)) != source_digest(graded)
