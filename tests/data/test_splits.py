"""Splits: stratified by votes, groups whole, the same whatever the order of the rows."""

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dismix.data.annotators import simulate_annotators
from dismix.data.manifest import ManifestMeta, make_manifest, read_manifest, write_manifest
from dismix.data.splits import (
    k_fold,
    merge_splits,
    scarcity_subset,
    split_test,
    split_validation,
)
from dismix.errors import DisMixError

META = ManifestMeta(ranks=("0", "1", "2", "3", "4"))
IDRID = [134, 20, 136, 74, 49]


def manifest_of(counts, *, test=0, groups=None, **columns):
    grade = np.repeat(np.arange(len(counts)), counts)
    table = pd.DataFrame({"image": [f"img/{i:04}.png" for i in range(len(grade))], "grade": grade})
    table["split"] = ["test"] * test + ["train"] * (len(table) - test)
    if groups is not None:
        table["group"] = groups
    return make_manifest(table.assign(**columns), META, "/data")


def patients(rng, number=400):
    """Patients of one to four images with correlated grades, as two eyes or knees have."""
    rows = []
    for patient in range(number):
        severity = rng.choice(5, p=[0.4, 0.1, 0.25, 0.15, 0.1])
        for _ in range(rng.integers(1, 5)):
            rows.append((f"p{patient}", int(np.clip(severity + rng.integers(-1, 2), 0, 4))))
    group, grade = zip(*rows, strict=True)
    table = pd.DataFrame({"image": [f"{i}.png" for i in range(len(rows))]})
    return make_manifest(table.assign(group=group, grade=grade, split="train"), META, ".")


def counts(manifest, split, column="grade"):
    return manifest.split(split).table[column].value_counts().reindex(range(5), fill_value=0)


def sides(manifest):
    return dict(zip(manifest.table["image"], manifest.table["split"], strict=True))


def test_idrid_gives_three_of_its_twenty_grade_one_images():
    split = split_validation(manifest_of(IDRID), seed=0)
    assert counts(split, "val").tolist() == [20, 3, 21, 11, 7]
    assert len(split.split("train")) == 351


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.1, 0.15, 0.3])
def test_single_images_are_within_one_of_the_target(seed, share):
    sizes = np.random.default_rng(seed).integers(2, 120, 5)
    split = split_validation(manifest_of(sizes), share, seed=seed)
    val = counts(split, "val").to_numpy()
    assert np.abs(val - share * sizes).max() <= 1
    assert (val >= 1).all()
    assert (val < sizes).all()


@pytest.mark.parametrize("seed", range(5))
def test_groups_stay_whole_and_shares_close(seed):
    manifest = patients(np.random.default_rng(seed))
    split = split_validation(manifest, seed=seed)
    assert (split.table.groupby("group")["split"].nunique() == 1).all()
    total = counts(manifest, "train")
    off = (counts(split, "val") - 0.15 * total).abs()
    assert off.max() <= 2
    assert (counts(split, "val") > 0).all()


def test_rows_without_a_group_are_groups_of_their_own():
    groups = ["a", "a", *[None] * 38]
    split = split_validation(manifest_of([20, 20, 0, 0, 0], groups=groups), 0.25, seed=0)
    assert counts(split, "val").tolist() == [5, 5, 0, 0, 0]


def test_same_seed_same_split_and_other_seed_another():
    manifest = manifest_of(IDRID)
    assert sides(split_validation(manifest, seed=4)) == sides(split_validation(manifest, seed=4))
    assert sides(split_validation(manifest, seed=4)) != sides(split_validation(manifest, seed=5))


@pytest.mark.parametrize(
    "make",
    [
        lambda m: [split_validation(m, seed=1)],
        lambda m: [scarcity_subset(m, seed=1)],
        lambda m: k_fold(m, 3, seed=1),
    ],
)
def test_the_order_of_rows_does_not_matter(make):
    manifest = patients(np.random.default_rng(0), 120)
    shuffled = manifest.rows(np.random.default_rng(1).permutation(len(manifest)))
    for one, other in zip(make(manifest), make(shuffled), strict=True):
        assert sides(one) == sides(other)


def test_the_folder_of_data_and_manifest_does_not_matter(tmp_path):
    manifest = make_manifest(manifest_of(IDRID).table, META, tmp_path / "data")
    write_manifest(manifest, tmp_path / "data" / "m.csv")
    write_manifest(manifest, tmp_path / "elsewhere" / "m.csv")
    near, far = (read_manifest(tmp_path / where / "m.csv") for where in ("data", "elsewhere"))
    assert far.table["image"][0] != near.table["image"][0]
    one, other = (split_validation(m, seed=0).table["split"].tolist() for m in (near, far))
    assert one == other


def test_hidden_grades_do_not_move_anything():
    voted, _ = simulate_annotators(manifest_of(IDRID, test=30), "50", seed=0)
    hidden = voted.table["grade"].to_numpy(copy=True)
    train = np.flatnonzero(voted.table["split"] == "train")
    hidden[train] = hidden[np.random.default_rng(0).permutation(train)]
    changed = voted.with_table(voted.table.assign(grade=hidden))
    assert (changed.grades != voted.grades).any()
    assert sides(split_validation(voted, seed=2)) == sides(split_validation(changed, seed=2))
    assert sides(scarcity_subset(voted, seed=2)) == sides(scarcity_subset(changed, seed=2))
    for one, other in zip(k_fold(voted, 4, seed=2), k_fold(changed, 4, seed=2), strict=True):
        assert sides(one) == sides(other)


def test_strata_are_the_majorities_of_the_votes():
    voted, _ = simulate_annotators(manifest_of(IDRID), "70", seed=0)
    majority = voted.target().hard.numpy()
    split = split_validation(voted, seed=0)
    val = (split.table["split"] == "val").to_numpy()
    share = np.bincount(majority[val], minlength=5) / np.bincount(majority, minlength=5)
    assert np.abs(share - 0.15).max() < 0.05
    # Most grade-1 images are called 2 here: strata by the hidden grade would look different.
    assert np.bincount(majority, minlength=5).tolist() != IDRID
    assert split.split("val").target().hard.tolist() == majority[val].tolist()


def test_test_rows_and_row_order_stay():
    manifest = manifest_of(IDRID, test=30)
    split = split_validation(manifest, seed=0)
    assert split.table["image"].tolist() == manifest.table["image"].tolist()
    assert (split.table["split"][:30] == "test").all()
    assert (split.table["split"][30:] != "test").all()
    assert split.lines.tolist() == manifest.lines.tolist()
    assert "validation 15% of train, seed 0" in split.meta.notes


def test_a_rank_in_one_group_stays_in_training_with_a_warning():
    with pytest.warns(UserWarning, match="rank '4'.*stays in training"):
        split = split_validation(manifest_of([30, 30, 30, 30, 1]), seed=0)
    assert counts(split, "val").tolist() == [5, 5, 4, 4, 0]
    assert counts(split, "train")[4] == 1


def test_wrong_shares_and_states_are_refused():
    manifest = manifest_of(IDRID)
    for share in (0, 1, -0.1, 15):
        with pytest.raises(DisMixError, match="not between 0 and 1"):
            split_validation(manifest, share, seed=0)
    with pytest.raises(DisMixError, match=re.escape("already has validation rows; use them")):
        split_validation(split_validation(manifest, seed=0), seed=0)
    with pytest.raises(DisMixError, match="no rows in train"):
        split_validation(manifest.with_table(manifest.table.assign(split="test")), seed=0)
    with pytest.raises(DisMixError, match="cannot keep a share of 0"):
        scarcity_subset(manifest, 0, seed=0)


def test_a_test_part_is_taken_by_rank_and_patient_and_leaves_validation_alone():
    manifest = patients(np.random.default_rng(0))
    with_val = split_validation(manifest, seed=0)
    split = split_test(with_val, 0.2, seed=0)
    assert split.split("val").table.equals(with_val.split("val").table)
    assert split.table.groupby("group")["split"].nunique().max() == 1
    trained = counts(with_val, "train").to_numpy()
    np.testing.assert_allclose(counts(split, "test").to_numpy(), 0.2 * trained, atol=3)
    assert "test 20% of train, seed 0" in split.meta.notes


def test_a_second_test_part_and_wrong_shares_are_refused():
    with pytest.raises(DisMixError, match="already has test rows"):
        split_test(manifest_of(IDRID, test=30), seed=0)
    with pytest.raises(DisMixError, match=re.escape("test share 20 is not between 0 and 1")):
        split_test(manifest_of(IDRID), 20, seed=0)


def test_merged_validation_can_be_split_again():
    split = split_validation(manifest_of(IDRID), seed=0)
    merged = merge_splits(split, {"val": "train"})
    assert set(merged.table["split"]) == {"train"}
    assert sides(split_validation(merged, seed=0)) == sides(split)
    with pytest.raises(DisMixError, match="unknown split 'vali'"):
        merge_splits(split, {"vali": "train"})


def test_scarcity_keeps_a_tenth_but_ten_images():
    subset = scarcity_subset(manifest_of([134, 20, 136, 74, 7]), seed=0)
    assert counts(subset, "train").tolist() == [13, 10, 14, 10, 7]


def test_scarcity_leaves_validation_and_test_alone():
    split = split_validation(manifest_of(IDRID, test=30), seed=0)
    subset = scarcity_subset(split, seed=0)
    for name in ("val", "test"):
        assert (
            subset.split(name).table["image"].tolist() == split.split(name).table["image"].tolist()
        )
    assert set(subset.split("train").table["image"]) < set(split.split("train").table["image"])
    assert len(subset.lines) == len(subset)


def test_larger_scarcity_subsets_contain_smaller_ones():
    manifest = manifest_of(IDRID)
    small, large = (
        set(scarcity_subset(manifest, share, at_least=1, seed=0).table["image"])
        for share in (0.1, 0.3)
    )
    assert small < large


def test_folds_partition_and_stratify_with_groups_whole():
    manifest = patients(np.random.default_rng(3), 300)
    folds = k_fold(manifest, 5, seed=0)
    held = np.array([(fold.table["split"] == "val").to_numpy() for fold in folds])
    assert held.sum(axis=0).tolist() == [1] * len(manifest)
    total = counts(manifest, "train")
    for fold in folds:
        assert (fold.table.groupby("group")["split"].nunique() == 1).all()
        assert (counts(fold, "val") - total / 5).abs().max() <= 3
    assert [sides(f) for f in folds] == [sides(f) for f in k_fold(manifest, 5, seed=0)]


def test_folds_of_single_images_are_within_one():
    sizes = [60, 10, 45, 23, 12]
    for fold in k_fold(manifest_of(sizes), 5, seed=1):
        assert (counts(fold, "val") - np.array(sizes) / 5).abs().max() <= 1


def test_folds_pool_validation_rows_and_leave_test_rows():
    split = split_validation(manifest_of(IDRID, test=30), seed=0)
    folds = k_fold(split, 4, seed=0)
    assert all((fold.table["split"][:30] == "test").all() for fold in folds)
    assert sum(len(fold.split("val")) for fold in folds) == len(split) - 30


def test_folds_may_be_tested_where_there_is_no_test_split():
    folds = k_fold(manifest_of(IDRID), 4, seed=0, held_out="test")
    assert sum(len(fold.split("test")) for fold in folds) == sum(IDRID)
    again = split_validation(folds[0], seed=0)
    assert set(again.table["split"]) == {"train", "val", "test"}
    with pytest.raises(DisMixError, match="already has test rows"):
        k_fold(manifest_of(IDRID, test=3), 4, seed=0, held_out="test")


def test_folds_warn_of_rare_ranks_once_and_refuse_too_many():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        folds = k_fold(manifest_of([20, 3, 20, 1, 20]), 5, seed=0)
    assert sorted(str(w.message) for w in caught) == [
        "a single group of images holds rank '3': one fold trains without it",
        "fewer than 5 groups hold rank '1': some folds lack it",
    ]
    assert sum(counts(fold, "val")[1] for fold in folds) == 3
    with pytest.raises(DisMixError, match="cannot make 1 folds of 413 images; give 2 to 413 folds"):
        k_fold(manifest_of(IDRID), 1, seed=0)
    with pytest.raises(DisMixError, match="2 folds of 1 group; add patients; images with"):
        k_fold(manifest_of([4, 4], groups=["p"] * 8), 2, seed=0)


@pytest.mark.data
def test_koa_patients_stay_whole(shared_data: Path):
    files = sorted(p for s in ("train", "val") for p in (shared_data / "koa" / s).glob("*/*"))
    table = pd.DataFrame({"image": [str(p) for p in files]})
    table["grade"] = [int(p.parent.name) for p in files]
    table["group"] = [p.stem[:-1] for p in files]
    manifest = make_manifest(table, META, shared_data)
    total = counts(manifest, "train")
    assert total.tolist() == [2614, 1199, 1728, 863, 200]
    split = split_validation(manifest, seed=0)
    assert (split.table.groupby("group")["split"].nunique() == 1).all()
    assert (counts(split, "val") - 0.15 * total).abs().max() <= 2


def test_files_with_the_same_bytes_stay_together(tmp_path):
    rows = []
    for i in range(40):
        (tmp_path / f"{i}.png").write_bytes(bytes([i // 2]) * 10)
        rows.append({"image": f"{i}.png", "grade": i % 2})
    manifest = make_manifest(pd.DataFrame(rows), None, tmp_path)
    for seed in range(5):
        split = split_validation(manifest, 0.2, seed=seed).table["split"].to_numpy()
        assert (split[0::2] == split[1::2]).all()
        assert (split == "val").sum() == 8


@pytest.mark.parametrize("originals", [True, False])
def test_mixes_are_not_split(tmp_path: Path, originals: bool) -> None:
    mixes = pd.DataFrame({"image": ["m0.png", "m1.png"], "split": "train", "policy": "order_swap"})
    mixes = mixes.assign(prob_0=0.5, prob_1=0.5)
    photographs = pd.DataFrame({"image": [f"{i}.png" for i in range(20)], "grade": [0, 1] * 10})
    table = pd.concat([photographs.assign(split="train"), mixes]) if originals else mixes
    write_manifest(make_manifest(table, None, tmp_path), tmp_path / "m.csv")
    data = read_manifest(tmp_path / "m.csv")
    told = rf"m.csv: 2 of {len(table)} images are mixes.* leaks; split the manifest that they were"
    for cut in (split_validation, split_test, scarcity_subset):
        with pytest.raises(DisMixError, match=told):
            cut(data, 0.5, seed=0)
    with pytest.raises(DisMixError, match=told):
        k_fold(data, 2, seed=0)


def test_photographs_with_soft_labels_are_split() -> None:
    table = pd.DataFrame({"image": [f"{i}.png" for i in range(20)], "prob_0": [0.9, 0.2] * 10})
    soft = make_manifest(table.assign(prob_1=[0.1, 0.8] * 10), None, ".")
    assert (split_validation(soft, 0.2, seed=0).table["split"] == "val").sum() == 4


def test_notes_say_what_was_done() -> None:
    # One group of rank 1: it cannot be moved.
    whole = manifest_of([10, 10], groups=["a"] * 5 + ["b"] * 5 + ["c"] * 10)
    with pytest.warns(UserWarning, match="a single group of images holds rank"):
        split = split_validation(whole, 0.5, seed=3)
    assert counts(split, "val").tolist() == [5, 0, 0, 0, 0]
    assert split.meta.notes == "validation 5 of 20 train images (50% asked), seed 3"
    assert merge_splits(whole, {"val": "train"}).meta.notes == ""
    assert merge_splits(manifest_of([3, 3], test=2), {"test": "train"}).meta.notes == (
        "merged test into train"
    )


def test_a_part_that_cannot_be_made_is_an_error_with_a_way_ahead():
    # Two patients a rank: a test part takes one of each, and none is left for validation.
    manifest = manifest_of([20, 20], groups=[f"p{i // 10}" for i in range(40)])
    tested = split_test(manifest, 0.2, seed=0)
    assert counts(tested, "test").tolist() == [10, 10, 0, 0, 0]
    told = (
        "cannot make a validation part: each of the 2 groups (patients) left in train holds a rank"
        " that no other has; add patients: train, val and test need 3 of a rank; or do without"
        " one of these parts, such as --val alone"
    )
    with pytest.raises(DisMixError, match=re.escape(told)):
        split_validation(tested, 0.2, seed=0)
    # What the cure advises works.
    assert counts(split_validation(manifest, 0.2, seed=0), "val").tolist() == [10, 10, 0, 0, 0]
    with pytest.raises(DisMixError, match=r"train and test need 2 of a rank$"):
        split_test(tested.split("train"), 0.2, seed=0)
    with pytest.raises(DisMixError, match="each of the 2 training images left in train holds"):
        split_validation(manifest_of([1, 1]), seed=0)
    with pytest.raises(DisMixError, match=r"the only one of the groups \(patients\) left in train"):
        split_validation(manifest_of([5, 5], groups=["p"] * 10), seed=0)
