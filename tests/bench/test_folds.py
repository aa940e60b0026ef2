import shutil

import pytest

from dismix.bench.derive import derivation, derive
from dismix.bench.folder import BenchFolder
from dismix.bench.plan import make_plan
from dismix.bench.plan_checks import DEFAULTS
from dismix.bench.resolve import resolve
from dismix.bench.runner import run_study
from dismix.data.draws import image_keys
from dismix.data.manifest import write_manifest
from dismix.data.phantom import PhantomSpec, build_phantom
from dismix.errors import DisMixError

SECTIONS = {"validation": {}, "votes": {}, "scarcity": {}}


@pytest.fixture(scope="module")
def voted(tmp_path_factory):
    """Pictures of patients with both knees, in all three splits."""
    folder = tmp_path_factory.mktemp("voted")
    return build_phantom(PhantomSpec(train=40, val=10, test=10, size=32, num_ranks=3), folder)


def how(manifest, fold):
    return derivation(manifest, {"data": "a", **DEFAULTS, "fold": fold}, SECTIONS)


def test_every_image_is_tested_once_and_no_patient_is_parted(voted):
    folds = [derive(voted, how(voted, f"{i}/3")) for i in (1, 2, 3)]
    tested = [image for fold in folds for image in fold.split("test").table["image"]]
    assert sorted(tested) == sorted(voted.table["image"])
    for fold in folds:
        groups = [{*fold.split(name).table["group"]} for name in ("train", "val", "test")]
        assert all(groups)
        assert sum(map(len, groups)) == len(set.union(*groups))
        assert sorted(fold.table["image"]) == sorted(voted.table["image"])


def test_runs_without_folds_keep_their_ids(voted):
    assert "fold" not in how(voted, "none")
    assert how(voted, "none")["validation"] == {"own": "keep"}


def test_folds_are_runs_of_their_own_with_generators_of_their_own(voted, tmp_path):
    plan = make_plan(
        {"factors": {"fold": ["1/3", "2/3"], "mixer": ["none", "dismix"], "grader": ["ce"]},
         "settings": {"backbone": "tiny", "size": 32, "epochs": 1},
         "generator": {"arch": "tiny", "size": 32}}, "folds")  # fmt: skip
    study = resolve(plan, BenchFolder(tmp_path), {"mine": voted.path})
    assert len({run.id for run in study.runs}) == 4
    assert len(study.generators) == 2
    assert study.runs[0].label == "mine ce none fold 1/3 seed 0"
    for spec in study.generators.values():
        seen = (tmp_path / "manifests" / spec.data / "training.csv").read_text()
        held_out = derive(voted, study.data[spec.data].how).split("test").table["image"]
        assert not any(image in seen for image in held_out)


def test_records_name_images_alike_in_all_folds(voted, tmp_path):
    """Two images have one name, in two folders: whichever folds they are in, all names tell."""
    table = voted.table.copy()
    for folder, place in (("a", 0), ("b", len(table) - 1)):
        (tmp_path / folder).mkdir()
        shutil.copy(voted.image_paths[place], tmp_path / folder / "same.png")
    paths = [*map(str, voted.image_paths)]
    table["image"] = [str(tmp_path / "a/same.png"), *paths[1:-1], str(tmp_path / "b/same.png")]
    clashing = voted.with_table(table)
    write_manifest(clashing, tmp_path / "manifest.csv")
    plan = make_plan(
        {"factors": {"fold": ["1/2", "2/2"], "mixer": ["none"], "grader": ["ce"],
                     "scarcity": [1.0, 0.5]},
         "settings": {"backbone": "tiny", "size": 32, "epochs": 1, "batch_size": 8},
         "scarcity": {"at_least": 1}}, "folds")  # fmt: skip
    bench = BenchFolder(tmp_path / "bench")
    study = resolve(plan, bench, {"mine": tmp_path / "manifest.csv"})
    assert run_study(study, bench, cpu=True).done == 4
    whole = sorted(image_keys(clashing.image_paths))
    assert "a/same.png" in whole
    for share in (1.0, 0.5):
        folds = [r for r in bench.records() if r["factors"]["scarcity"] == share]
        assert sorted(name for r in folds for name in r["predictions"]["image"]) == whole


@pytest.mark.parametrize("fold", ["0/5", "6/5", "1/1", "x", "2"])
def test_a_fold_that_is_none_is_refused(fold):
    with pytest.raises(DisMixError, match="write 2/5"):
        make_plan({"factors": {"fold": [fold]}}, "p")
