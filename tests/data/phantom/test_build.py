import json

import numpy as np
import pytest
from PIL import Image

from dismix.data.manifest import read_manifest
from dismix.data.phantom import PhantomSpec, build_phantom, read_factors
from dismix.errors import DisMixError

SPEC = PhantomSpec(train=6, val=3, test=4, size=32, annotators=3)


def contents(folder):
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("phantom") / "set"
    return folder, build_phantom(SPEC, folder)


@pytest.mark.parametrize("subject", ["knee", "fundus"])
def test_writes_a_manifest_that_reads_back(tmp_path, subject):
    spec = PhantomSpec(subject=subject, train=5, val=2, test=3, size=32)
    manifest = build_phantom(spec, tmp_path / "set")
    assert len(manifest) == 10
    assert manifest.num_ranks == 5
    assert manifest.meta.grey == (subject == "knee")
    assert read_manifest(tmp_path / "set").table.equals(manifest.table)
    modes = {Image.open(path).mode for path in manifest.image_paths}
    assert modes == ({"L"} if subject == "knee" else {"RGB"})
    assert manifest.target().probs.shape == (10, 5)


def test_votes_where_people_vote_and_truth_everywhere(built):
    _, manifest = built
    test = (manifest.table["split"] == "test").to_numpy()
    assert np.isnan(manifest.votes[test]).all()
    assert not np.isnan(manifest.votes[~test]).any()
    assert not np.isnan(manifest.grades).any()
    assert manifest.annotators == ["1", "2", "3"]
    per_group = manifest.table.groupby("group")["split"].nunique()
    assert (per_group == 1).all()


def test_no_annotators_leaves_the_grade(tmp_path):
    manifest = build_phantom(PhantomSpec(train=3, val=0, test=0, size=32, annotators=0), tmp_path)
    assert manifest.annotators == []
    assert manifest.target().hard.tolist() == manifest.grades.tolist()


def test_factors_lie_beside_the_images(built):
    folder, manifest = built
    factors = read_factors(folder)
    assert factors["image"].tolist() == manifest.table["image"].tolist()
    assert factors["rank"].tolist() == manifest.grades.tolist()
    assert ((factors["severity"] - factors["rank"]).abs() <= SPEC.jitter).all()
    assert {"joint_space", "osteophyte", "mirror", "implant", "noise"} <= set(factors.columns)
    assert set(factors["implant"]) <= {"none", "screw", "plate"}
    with pytest.raises(DisMixError, match="no such file"):
        read_factors(folder / "images")


def test_same_spec_gives_the_same_bytes(built, tmp_path):
    folder, _ = built
    build_phantom(SPEC, tmp_path / "again")
    assert contents(tmp_path / "again") == contents(folder)
    assert set(contents(folder)) > {"phantom.json", "manifest.csv", "factors.csv"}


def test_a_whole_set_is_reused_untouched(built):
    folder, manifest = built
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
    again = build_phantom(SPEC, folder)
    assert again.table.equals(manifest.table)
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == before


@pytest.mark.parametrize("after", [1, 7, 13])
def test_an_interrupted_build_is_completed(built, tmp_path, after):
    whole, _ = built
    folder = tmp_path / "set"
    calls = []

    def stop(stage, done, total):
        calls.append((stage, done, total))
        if done == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_phantom(SPEC, folder, stop)
    assert not (folder / "phantom.json").exists()
    old = {p: p.stat().st_mtime_ns for p in (folder / "images").iterdir()}
    assert len(old) == after
    seen = []
    build_phantom(SPEC, folder, lambda *call: seen.append(call))
    assert contents(folder) == contents(whole)
    assert all(p.stat().st_mtime_ns == t for p, t in old.items())
    assert seen == [("drawing", done, 13) for done in range(after + 1, 14)]


def test_a_lost_image_is_drawn_again(built, tmp_path):
    whole, _ = built
    folder = tmp_path / "set"
    build_phantom(SPEC, folder)
    next((folder / "images").iterdir()).unlink()
    build_phantom(SPEC, folder)
    assert contents(folder) == contents(whole)


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(DisMixError, match="something else"):
        build_phantom(SPEC, tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "thesis.txt"]
    with pytest.raises(DisMixError, match="is a file"):
        build_phantom(SPEC, tmp_path / "thesis.txt")


@pytest.mark.parametrize("name", ["phantom.json", "phantom.part.json"])
@pytest.mark.parametrize("content", [json.dumps({"drawing": 0, "spec": {}}), "{half"])
def test_another_set_is_left_alone(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(DisMixError, match="another phantom set"):
        build_phantom(SPEC, tmp_path)


def test_another_seed_is_another_set(built):
    folder, _ = built
    with pytest.raises(DisMixError, match="another phantom set"):
        build_phantom(PhantomSpec(train=6, val=3, test=4, size=32, annotators=3, seed=1), folder)
