import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from tests.bench.study import tiny_plan, tiny_study
from typer.testing import CliRunner

from dismix.bench.derive import content_digest
from dismix.bench.folder import BenchFolder
from dismix.bench.generator_specs import from_nothing
from dismix.bench.plan import change_plan, make_plan, read_plan
from dismix.bench.resolve import _pathless, backbone_weights, resolve
from dismix.bench.runner import run_study
from dismix.bench.specs import GeneratorSpec
from dismix.bench.status import status_text, study_status
from dismix.bench.warm import WARM
from dismix.cli.app import app
from dismix.data.digest import file_digest
from dismix.data.manifest import make_manifest, read_manifest, write_manifest
from dismix.data.phantom import PhantomSpec, build_phantom
from dismix.errors import DisMixError
from dismix.graders.settings import TrainSettings
from dismix.mixing.encoding import consensus_ranks

SMALL = {"backbone": "tiny", "weights": "none", "size": "32", "epochs": "2",
         "generator.arch": "tiny", "generator.size": "32"}  # fmt: skip


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("graded")
    build_phantom(PhantomSpec(train=60, val=0, test=20, size=32, annotators=0), folder)
    return folder


def ids(study):
    return [run.id for run in study.runs]


def test_ids_do_not_depend_on_paths_plans_names_or_the_folder(graded, tmp_path):
    plan = change_plan(read_plan("boundary"), SMALL)
    first = resolve(plan, BenchFolder(tmp_path / "a"), {"mine": graded})
    shutil.copytree(graded, tmp_path / "copy")
    other = resolve(plan, BenchFolder(tmp_path / "b"), {"yours": tmp_path / "copy"})
    assert ids(first) == ids(other)
    assert len({*ids(first)}) == 24
    main = resolve(change_plan(read_plan("main"), SMALL), BenchFolder(tmp_path / "a"),
                   {"mine": graded})  # fmt: skip
    assert {*ids(first)} < {*ids(main)}
    assert all(len(name) == 16 and int(name, 16) >= 0 for name in ids(first))
    assert str(tmp_path) not in str([run.config for run in first.runs])


def test_some_of_the_data_sets_may_be_chosen(graded, tmp_path):
    plan, bench = change_plan(read_plan("boundary"), SMALL), BenchFolder(tmp_path / "bench")
    some = change_plan(plan, {"data": "Mine"})
    # What is not chosen is not even read.
    study = resolve(some, bench, {"mine": graded, "other": tmp_path / "absent"})
    assert {run.factors["data"] for run in study.runs} == {"mine"}
    assert ids(study) == ids(resolve(plan, bench, {"mine": graded}))
    both = {"mine": graded, "other": graded}
    resolve(some, bench, both, {"other": tmp_path / "no_run"})
    with pytest.raises(DisMixError, match=r"no data set 'mien'; did you mean 'mine'\?, or add"):
        resolve(change_plan(plan, {"data": "mien"}), bench, both)
    unread = resolve(change_plan(plan, {"data": "koa"}), bench)
    assert (unread.runs, unread.absent) == ((), ("koa",))


def test_derived_data_are_made_again_when_the_images_that_they_name_have_changed(graded, tmp_path):
    plan, bench = change_plan(read_plan("boundary"), SMALL), BenchFolder(tmp_path / "bench")
    for name in ("first", "copy"):
        shutil.copytree(graded, tmp_path / name)
    wanted = resolve(plan, bench, {"a": tmp_path / "first"})
    images = read_manifest(tmp_path / "first").image_paths
    images[0].write_bytes(images[1].read_bytes())
    found = resolve(plan, bench, {"a": tmp_path / "copy"})
    assert ids(found) == ids(wanted)
    for key, data in found.data.items():
        kept = read_manifest(bench.manifest_dir(key))
        assert content_digest(kept) == data.content
        assert not any(path.is_relative_to(tmp_path / "first") for path in kept.image_paths)


def test_whole_numbers_of_mixers_are_the_same_run_however_they_are_written(graded, tmp_path):
    plan = change_plan(read_plan("smoke"), SMALL)
    first, other = (
        resolve(
            change_plan(plan, {"mixers.dismix.pool": text}), BenchFolder(tmp_path), {"a": graded}
        )
        for text in ("16", "16.0")
    )
    assert ids(first) == ids(other)


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("grader", {"overrides": [{"when": {"grader": "clo"}, "settings": {"epochs": 3}}]},
         r"column 'overrides': unknown grader 'clo'; did you mean 'cloc'"),
        ("grader", {"skip": [{"grader": ["CE"]}]}, r"column 'skip': unknown grader 'CE'"),
        ("grader", {"skip": [{"mixer": "none"}]}, r"column 'skip': leaves out all of its runs"),
        ("overhead", {"settings": {"steps": 0}}, r"column 'steps': 0 is not allowed"),
        ("overhead", {"settings": {"rounds": "x"}}, r"column 'rounds': 'x' is not allowed"),
    ],
)  # fmt: skip
def test_mistakes_of_a_plan_that_need_more_than_its_file(graded, tmp_path, kind, changes, words):
    plan = make_plan({"kind": kind, "factors": {"grader": "ce"}, **changes}, "p")
    with pytest.raises(DisMixError, match=rf"^p, {words}"):
        resolve(plan, BenchFolder(tmp_path), {"a": graded})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("epoch", "3", "unknown setting 'epoch' of 'ce'; did you mean 'epochs'?"),
        ("settings.epochs", "x", "column 'epochs': 'x' does not fit"),
        ("grader", "ce,cee", "unknown grader 'cee'; did you mean 'ce'?"),
        ("mixers.dismix.pol", "3", "the mixer 'dismix' has no option 'pol'"),
        ("generator.foo", "1", "unknown setting 'foo'"),
        ("validation.share", "7", "column 'validation.share': 7 is not allowed"),
        ("data", "foo", "column 'data': there is no data set 'foo'"),
    ],
)
def test_a_mistake_on_the_command_line_is_none_of_the_plans(graded, tmp_path, name, value, words):
    with pytest.raises(DisMixError) as info:
        plan = change_plan(read_plan("smoke"), {"epochs": "2", name: value})
        resolve(plan, BenchFolder(tmp_path), {"mine": graded})
    assert re.match(f"--set[:,] {re.escape(words)}", str(info.value))


def test_a_mistake_of_a_changed_plan_is_its_own(graded, tmp_path):
    content = {"factors": {"grader": ["ce"]}, "settings": {"epoch": 3}}
    plan = change_plan(make_plan(content, "p"), {"lr": "0.1"})
    with pytest.raises(DisMixError, match=r"^p: unknown setting 'epoch' of 'ce'"):
        resolve(plan, BenchFolder(tmp_path), {"mine": graded})


@pytest.mark.parametrize("command", ["plan", "status"])
def test_who_looks_at_a_plan_leaves_the_folder_as_it_is(graded, tmp_path, command):
    out = tmp_path / "bench"
    wanted = resolve(change_plan(read_plan("smoke"), SMALL), BenchFolder(out), {"mine": graded})
    shutil.rmtree(out)
    changes = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    command = ["bench", command, "smoke", "-o", str(out), "--data", f"mine={graded}", *changes]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.output
    assert not out.exists()
    if "plan" in command:
        assert all(name in shown.output for name in ids(wanted))


def test_settings_data_and_seeds_are_in_the_id(tmp_path):
    base, _ = tiny_study(tmp_path)
    settings = read_plan("smoke").settings
    for changes in (
        {"settings": {**settings, "epochs": 4}},
        {"factors": {"grader": ["ce"], "mixer": ["none"], "seed": [1]}},
        {"factors": {"grader": ["ce"], "mixer": ["mixup"], "p": [0.3], "seed": [0]}},
        {"phantoms": {"knee": {"train": 40, "val": 10, "test": 20, "size": 32, "seed": 1}}},
        {
            "factors": {"grader": ["ce"], "scarcity": [0.5], "seed": [0]},
            "scarcity": {"at_least": 2},
        },
        {"factors": {"grader": ["ce"], "labels": ["clean"], "seed": [0]}},
    ):
        changed, _ = tiny_study(tmp_path, **changes)
        assert not {*ids(changed)} & {*ids(base)}, changes
    options, _ = tiny_study(tmp_path, mixers={"dismix": {"pool": 8}})
    assert len({*ids(options)} & {*ids(base)}) == 4
    places, _ = tiny_study(
        tmp_path, mixers={"dismix": {"pool": 16, "reuse": 2, "pool_dir": str(tmp_path)}}
    )
    assert ids(places) == ids(base)


def test_factors_without_a_say_make_no_further_runs(tmp_path):
    study, _ = tiny_study(
        tmp_path, factors={"grader": ["ce"], "mixer": ["none", "mixup"], "p": [0.3, 0.7],
                           "policies": ["combined", "order_swap"]},
    )  # fmt: skip
    assert [(r.factors["mixer"], r.factors["p"]) for r in study.runs] == [
        ("none", None), ("mixup", 0.3), ("mixup", 0.7)
    ]  # fmt: skip


def test_each_level_has_its_own_generator_and_validation_is_shared_by_seeds(graded, tmp_path):
    plan = change_plan(read_plan("variability"), {**SMALL, "scarcity": "1.0,0.5"})
    study = resolve(plan, BenchFolder(tmp_path), {"mine": graded})
    assert len(study.data) == len(study.generators) == 6
    for run in study.runs:
        twins = [r for r in study.runs if {**r.factors, "seed": 0} == {**run.factors, "seed": 0}]
        assert len(twins) == 3
        assert len({(r.data, r.generator, r.config["data"]["content"]) for r in twins}) == 1
        assert study.generators[run.generator].data == run.data


def test_all_mixers_see_equally_many_images(graded, tmp_path):
    study = resolve(change_plan(read_plan("main"), SMALL), BenchFolder(tmp_path), {"a": graded})
    assert len({run.images for run in study.runs}) == 1


def test_diffusemix_is_blocked_without_an_editor(graded, tmp_path):
    plan = change_plan(read_plan("diffusemix"), SMALL)
    study = resolve(plan, BenchFolder(tmp_path), {"a": graded})
    blocked = [run for run in study.runs if run.blocked]
    assert {run.factors["mixer"] for run in blocked} == {"diffusemix"}
    assert "editor" in blocked[0].blocked
    plan = change_plan(plan, {"mixers.diffusemix.editor": "some/base"})
    base = resolve(plan, BenchFolder(tmp_path), {"a": graded})
    tuned = resolve(
        change_plan(plan, {"mixers.diffusemix.editor": "some/tuned"}), BenchFolder(tmp_path),
        {"a": graded},
    )  # fmt: skip
    assert not any(run.blocked for run in base.runs)
    assert len({*ids(base)} & {*ids(tuned)}) == 9


def test_missing_weights_block_before_anything_runs(graded, tmp_path, monkeypatch):
    monkeypatch.setenv("DISMIX_WEIGHTS", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    plan = change_plan(read_plan("clean"), {"mixer": "none", "seed": "0"})
    study = resolve(plan, BenchFolder(tmp_path), {"a": graded})
    assert "no weights of 'vgg16'" in study.runs[0].blocked
    told = status_text(study_status(study, BenchFolder(tmp_path)))
    assert f"{len(study.runs)} blocked: no weights of 'vgg16'" in told


def test_generators_start_from_published_weights_where_these_are(graded, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    plan = change_plan(
        read_plan("groups"), {"backbone": "tiny", "weights": "none", "seed": "0", "grader": "cloc"}
    )
    assert plan.generator["weights"] == "auto"

    def only(folder: str, **changes: str) -> GeneratorSpec:
        monkeypatch.setenv("DISMIX_WEIGHTS", str(tmp_path / folder))
        changed = change_plan(plan, {f"generator.{name}": v for name, v in changes.items()})
        (spec,) = resolve(changed, BenchFolder(tmp_path / "o"), {"a": graded}).generators.values()
        return spec

    (tmp_path / "full").mkdir()
    file = tmp_path / "full" / "taef2_f8c32_autoencoder.safetensors"
    file.write_bytes(b"weights")
    nothing, started = only("empty"), only("full")
    assert (nothing.described["weights"], nothing.local["weights"]) == (None, None)
    assert started.described["weights"] == file_digest(file)
    assert started.local["weights"] == str(file)
    # What is trained differs, and nothing is left to chance where a plan says "none".
    assert started.id != nothing.id == only("full", weights="none").id
    assert only("full", arch="tiny").local["weights"] is None
    (said,) = from_nothing([nothing, nothing, started])
    assert "'light' start from nothing" in said
    assert "put taef2_f8c32_autoencoder.safetensors into" in said
    # Nothing is published for these.
    assert from_nothing([started, only("empty", arch="tiny")]) == []


def test_a_backbone_that_nobody_knows_is_no_matter_of_weights() -> None:
    with pytest.raises(DisMixError, match="unknown backbone 'tinny'; did you mean 'tiny'"):
        backbone_weights(TrainSettings("ce", backbone="tinny"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"settings": {"epoch": 3}}, "did you mean 'epochs'"),
        ({"factors": {"grader": ["cloq"]}}, "did you mean 'cloc'"),
        ({"mixers": {"mixup": {"alhpa": 1}}}, "did you mean 'alpha'"),
        ({"factors": {"mixer": ["dismix"], "policies": ["order_swp"]}}, "'order_swap'"),
        ({"generator": {"settings": {"epoch": 3}}}, "did you mean 'epochs'"),
        ({"factors": {"mixer": ["dismix"], "ablation": ["ful"]}}, "did you mean 'full'"),
        ({"phantoms": {"knee": {"trainn": 3}}}, "did you mean 'train'"),
    ],
)  # fmt: skip
def test_wrong_names_offer_near_ones(tmp_path, changes, said):
    with pytest.raises(DisMixError, match=said) as caught:
        resolve(tiny_plan(**changes), BenchFolder(tmp_path))
    assert "\n" not in str(caught.value)


def test_plans_without_data_say_which_are_absent(tmp_path):
    study = resolve(read_plan("main"), BenchFolder(tmp_path))
    assert study.absent == ("idrid", "koa", "chaoyang", "crowdgleason")
    assert study.runs == ()
    with pytest.raises(DisMixError, match="--data"):
        resolve(read_plan("main"), BenchFolder(tmp_path), None, {"idrid": "run"})


def test_a_given_generator_is_named_by_its_weights(graded, tmp_path):
    from dismix.generator.config import GeneratorConfig
    from dismix.generator.model import Generator

    config = GeneratorConfig(num_ranks=5, arch="tiny", image_size=32, in_channels=1,
                             nonordinal_codes=32, ordinal_codes=16)  # fmt: skip
    for seed in (0, 1):
        Generator.seeded(config, seed).save(tmp_path / f"run{seed}")
    shutil.copytree(tmp_path / "run0", tmp_path / "copy")
    plan = change_plan(read_plan("groups"), {**SMALL, "seed": "0", "grader": "cloc"})
    found = {
        name: ids(resolve(plan, BenchFolder(tmp_path / "o"), {"a": graded},
                          {"a": tmp_path / name}))
        for name in ("run0", "run1", "copy")
    }  # fmt: skip
    assert found["run0"] == found["copy"]
    assert not {*found["run0"]} & {*found["run1"]}
    with pytest.raises(DisMixError, match="no trained generator"):
        resolve(plan, BenchFolder(tmp_path / "o"), {"a": graded}, {"a": tmp_path})


def test_validation_chooses_nothing_in_a_generator(tmp_path):
    def recipes(study):
        return [spec.described["recipe"] for spec in study.generators.values()]

    plain = {"arch": "tiny", "size": 32, "settings": {"epochs": 7}}
    study, _ = tiny_study(tmp_path / "a", generator=plain)
    assert recipes(study)
    assert all((r["epochs"], r["evaluate_every"]) == (7, 7) for r in recipes(study))
    plain["settings"]["evaluate_every"] = 2
    study, _ = tiny_study(tmp_path / "b", generator=plain)
    assert all(r["evaluate_every"] == 2 for r in recipes(study))


def test_who_voted_what_is_in_the_id_where_a_consensus_pairs(graded, tmp_path):
    build_phantom(PhantomSpec(train=40, val=10, test=10, size=32, annotators=3), tmp_path / "a")
    data = read_manifest(tmp_path / "a")
    votes = [name for name in data.table if name.startswith("annotator_")]
    swapped = data.table.copy()
    # Every second image's votes come from other annotators; its shares of votes stay.
    swapped.loc[::2, votes] = data.table.loc[::2, votes[::-1]].to_numpy()
    assert not swapped.equals(data.table)
    write_manifest(data.with_table(swapped), tmp_path / "b.csv")
    plan = tiny_plan(factors={"grader": ["ce"], "mixer": ["dismix"], "seed": [0]}, phantoms={})
    found = {}
    for ranks in ("majority", "consensus"):
        chosen = change_plan(plan, {"mixers.dismix.ranks": ranks})
        found[ranks] = {
            ids(resolve(chosen, BenchFolder(tmp_path / "bench"), {"d": place}))[0]
            for place in (tmp_path / "a", tmp_path / "b.csv")
        }
    assert len(found["majority"]) == 1
    assert len(found["consensus"]) == 2
    # The generator is shared all the same, and each run pairs by its own annotators.
    bench = BenchFolder(tmp_path / "bench")
    chosen = change_plan(plan, {"mixers.dismix.ranks": "consensus"})
    study = resolve(chosen, bench, {"d": tmp_path / "a"})
    assert run_study(study, bench, cpu=True).done == 1
    store = json.loads((bench.generator_dir(study.runs[0].generator) / "done.json").read_text())
    for place in (tmp_path / "a", tmp_path / "b.csv"):
        run = resolve(chosen, bench, {"d": place}).runs[0]
        engine = WARM.engine(
            bench, run.generator, store["store"], torch.device("cpu"), False, votes_of=run.data
        )
        own = consensus_ranks(read_manifest(place).split("train"))
        assert engine.store.consensus.tolist() == own.tolist()


def test_a_law_of_one_rank_is_no_grade(graded, tmp_path):
    data = read_manifest(graded)
    table = data.table.copy()
    for rank in range(data.num_ranks):
        table[f"prob_{rank}"] = (table["grade"] == rank).astype(float)
    law = make_manifest(table.drop(columns="grade"), data.meta, data.root)
    assert law.target().probs.tolist() == data.target().probs.tolist()
    assert content_digest(law) != content_digest(data)


def test_editors_are_told_apart_by_what_they_are(tmp_path):
    for name, text in (("a", "{}"), ("b", "{}"), ("c", '{"steps": 9}')):
        (tmp_path / name / "pipe").mkdir(parents=True)
        (tmp_path / name / "pipe" / "model_index.json").write_text(text)
    first, same, other = (
        _pathless({"editor": str(tmp_path / name / "pipe")})["editor"] for name in "abc"
    )
    assert first == same
    assert first != other
    assert first.startswith("pipe ")
    assert _pathless({"editor": "org/pipe"}) == {"editor": "pipe"}


def test_conditions_that_change_nothing_are_told(graded, tmp_path):
    few = read_manifest(graded)
    keep = few.table.groupby(["split", "grade"]).head(4).reset_index(drop=True)
    write_manifest(few.with_table(keep), graded / "few.csv")
    plan = tiny_plan(
        factors={"grader": ["ce"], "mixer": ["none"], "scarcity": [1.0, 0.1]}, phantoms={}
    )
    said = "'mine' with scarcity 0.1 is the same as with scarcity 1.0, and is run and shown as that"
    with pytest.warns(UserWarning, match=said):
        study = resolve(plan, BenchFolder(tmp_path), {"mine": graded / "few.csv"})
    assert len(study.runs) == 1
