import json
import re
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.bench.study import lasting, tiny_plan, tiny_study

import dismix
from dismix.bench.artifacts import refuse_leak
from dismix.bench.folder import BenchFolder
from dismix.bench.overhead_runs import _Steps, _whole_blocks
from dismix.bench.resolve import resolve
from dismix.bench.runner import _jobs, note_plan, run_study
from dismix.bench.sources import FULL, TRAINING, Derivations
from dismix.bench.status import status_text, study_status
from dismix.bench.worker import lost_record
from dismix.data.digest import content_digests, file_digest
from dismix.data.manifest import read_manifest, write_manifest
from dismix.data.store import default_cache_dir
from dismix.errors import DisMixError
from dismix.generator.judge import Judge
from dismix.generator.trained_on import FILE as TRAINED_ON
from dismix.generator.trained_on import write_trained_on
from dismix.graders.metrics import SCALARS, grade_metrics
from dismix.mixing.dismix import DisMix
from dismix.mixing.latents import FOLDER, LatentStore
from dismix.mixing.serving import PoolService

FIELDS = {
    "format", "id", "kind", "plan", "status", "factors", "config", "seed", "provenance", "wall_s",
    "generator_s", "images_seen", "peak_memory_mib", "metrics", "predictions", "error", "at_once",
}  # fmt: skip


def test_records_hold_what_a_reader_needs(smoke):
    study, bench = smoke
    assert len(study.runs) == 6
    for run in study.runs:
        record = bench.record(run.id)
        assert {*record} >= FIELDS
        assert (record["format"], record["status"], record["error"]) == (1, "done", None)
        assert record["factors"] == run.factors
        assert record["images_seen"] == 3 * 32  # Three epochs, two whole batches of 16.
        assert record["peak_memory_mib"] > 10
        assert (record["generator_s"] is not None) == (run.factors["mixer"] == "dismix")
        assert {*SCALARS} <= {*record["metrics"]}
        assert {"boundary_errors", "confusion"} <= {*record["metrics"]}
        assert {"commit", "versions", "hardware"} <= {*record["provenance"]}
        assert str(bench.root) not in json.dumps(record)


def test_predictions_give_the_metrics_and_name_the_test_images(smoke):
    study, bench = smoke
    test = read_manifest(bench.manifest_dir(study.runs[0].data) / FULL).split("test")
    for run in study.runs:
        record = bench.record(run.id)
        said = record["predictions"]
        assert said["grade"] == test.grades.astype(int).tolist()
        assert [name.split("/")[-1] for name in said["image"]] == [
            path.name for path in test.image_paths
        ]
        again = grade_metrics(said["label"], said["grade"], 5, probabilities=said["probabilities"])
        assert again["accuracy"] == record["metrics"]["accuracy"]
        assert again["rps"] == pytest.approx(record["metrics"]["rps"], abs=1e-3)


def test_finished_runs_are_never_repeated(smoke):
    study, bench = smoke
    before = {path: path.stat().st_mtime_ns for path in (bench.root / "records").iterdir()}
    lines = len(bench.log())
    found = run_study(study, bench, cpu=True)
    assert (found.done, found.ran) == (6, 0)
    assert len(bench.log()) == lines
    assert before == {path: path.stat().st_mtime_ns for path in (bench.root / "records").iterdir()}


def test_a_generator_is_built_once_and_sees_training_images_alone(smoke):
    study, bench = smoke
    (name,) = study.generators
    assert [line["event"] for line in bench.log() if line["id"] == name] == [
        "generator started", "generator done",
    ]  # fmt: skip
    data = bench.manifest_dir(study.generators[name].data)
    full, training = read_manifest(data / FULL), read_manifest(data / TRAINING)
    assert {*training.table["split"]} == {"train", "val"}
    described = json.loads((bench.generator_dir(name) / "run.json").read_text())
    assert described["manifest"] == str(data / TRAINING)
    (place,) = (bench.generator_dir(name) / FOLDER).iterdir()
    store = LatentStore(place)
    digests = {
        split: [file_digest(path) for path in full.split(split).image_paths]
        for split in ("train", "val", "test")
    }
    assert len(store) == len(digests["train"])
    assert torch.equal(store.rows_of(digests["train"]), torch.arange(len(store)))
    assert (store.rows_of(digests["val"] + digests["test"]) == -1).all()


def test_another_process_and_another_folder_give_the_same_records(smoke, tmp_path):
    from dismix.bench.engines import make_engine

    _, bench = smoke
    shutil.copytree(bench.root / "generators", tmp_path / "generators")
    study, other = tiny_study(tmp_path)
    found = run_study(study, other, make_engine("processes", jobs=2), cpu=True)
    assert (found.done, found.ran) == (6, 6), found.errors
    assert lasting(other) == lasting(bench)


def test_failures_are_kept_with_their_traceback_and_retried_on_request(tmp_path, monkeypatch):
    import dismix.bench.grader_runs as runs

    factors = {"grader": ["ce"], "mixer": ["none", "mixup"], "seed": [0]}
    study, bench = tiny_study(tmp_path, factors=factors)
    whole = runs.run_training

    def broken(training, *arguments, **options):
        if training.mixer is not None:
            raise RuntimeError("no luck")
        return whole(training, *arguments, **options)

    monkeypatch.setattr(runs, "run_training", broken)
    found = run_study(study, bench, cpu=True)
    assert (found.done, found.ran, found.failed) == (1, 1, 1)
    assert "no luck" in found.errors[0]
    record = bench.record(study.runs[1].id)
    assert record["status"] == "failed"
    assert "Traceback" in record["error"]
    # Records are shown to others: no folder of this machine is in them.
    assert "dismix/bench/worker.py" in record["error"]
    assert str(Path(dismix.__file__).parent) not in record["error"]
    assert "RuntimeError: no luck" in status_text(study_status(study, bench))
    monkeypatch.undo()
    assert run_study(study, bench, cpu=True).ran == 0
    found = run_study(study, bench, cpu=True, retry_failed=True)
    assert (found.done, found.ran, found.failed) == (2, 1, 0)


def test_a_failed_generator_fails_its_runs_at_once_and_can_be_retried(tmp_path, monkeypatch):
    import dismix.bench.artifacts as artifacts

    factors = {"grader": ["ce"], "mixer": ["dismix"], "seed": [0, 1]}
    study, bench = tiny_study(tmp_path, factors=factors)
    calls = []

    def broken(*arguments, **options):
        calls.append(1)
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(artifacts, "_build", broken)
        found = run_study(study, bench, cpu=True)
    assert (found.failed, len(calls)) == (2, 1)
    assert "out of memory" in bench.record(study.runs[1].id)["error"]
    assert run_study(study, bench, cpu=True, retry_failed=True).done == 2


def test_a_given_generator_of_images_read_otherwise_is_refused(smoke, tmp_path):
    known, done = smoke
    (name,) = known.generators
    given = tmp_path / "given"
    shutil.copytree(done.generator_dir(name), given, ignore=shutil.ignore_patterns("latents"))
    described = json.loads((given / "run.json").read_text())
    assert described["reading"]["equalize"] is False
    described["reading"]["equalize"] = True
    (given / "run.json").write_text(json.dumps(described))
    plan = tiny_plan(factors={"grader": ["ce"], "mixer": ["dismix"], "seed": [0]})
    bench = BenchFolder(tmp_path / "bench")
    data = {"mine": done.manifest_dir(known.generators[name].data)}
    found = run_study(resolve(plan, bench, data, {"mine": given}), bench, cpu=True)
    assert found.failed == 1
    assert "the generator's images were read with equalize true" in found.errors[0]


def test_a_given_generator_is_used_unless_it_saw_held_out_images(smoke, tmp_path):
    known, done = smoke
    (name,) = known.generators
    given = tmp_path / "given"
    shutil.copytree(done.generator_dir(name), given, ignore=shutil.ignore_patterns("latents"))
    plan = tiny_plan(factors={"grader": ["ce"], "mixer": ["dismix"], "seed": [0]})
    data = {"mine": done.manifest_dir(known.generators[name].data)}
    bench = BenchFolder(tmp_path / "bench")
    study = resolve(plan, bench, data, {"mine": given})
    assert name not in study.generators
    found = run_study(study, bench, cpu=True)
    assert found.done == 1, found.errors
    record = bench.record(study.runs[0].id)
    assert record["generator_s"] is None
    assert record["factors"]["data"] == "mine"
    assert not (given / FOLDER).exists()
    # Older runs did not write down what they were trained on: their manifest has to tell.
    (given / TRAINED_ON).unlink()
    full = read_manifest(data["mine"] / FULL)
    leaky = full.with_table(full.table.assign(split="train"))
    write_manifest(leaky, tmp_path / "leaky.csv")
    described = json.loads((given / "run.json").read_text())
    # As it was called where the generator was trained, and where that lies.
    changed = {**described, "manifest": "leaky.csv", "manifest_at": str(tmp_path / "leaky.csv")}
    (given / "run.json").write_text(json.dumps(changed))
    other = BenchFolder(tmp_path / "other")
    with pytest.raises(DisMixError) as caught:
        run_study(resolve(plan, other, data, {"mine": given}), other, cpu=True)
    assert "trained on 30 images that runs of 'mine' validate or test on" in str(caught.value)
    # The cure names a list that is there, and on which a generator would be accepted.
    advised = Path(re.search(r"train one on (\S+),", str(caught.value))[1])
    assert {*read_manifest(advised).table["split"]} == {"train", "val"}
    assert not list((other.root / "records").glob("*"))
    assert not (other.root / "plans").exists()
    (given / "run.json").write_text(json.dumps({**changed, "manifest_at": "gone.csv"}))
    with pytest.warns(UserWarning, match="generator given are not here: nobody can tell"):
        assert run_study(study, other, cpu=True, retry_failed=True).done == 1
    # The same where the list is here and the images it names are not.
    text = (tmp_path / "leaky.csv").read_text()
    name = full.table["image"][0]
    assert text.count(name) == 1
    (tmp_path / "leaky.csv").write_text(text.replace(name, "moved/away.png"))
    (given / "run.json").write_text(json.dumps(changed))
    leaked = pytest.raises(DisMixError, match=r"was trained on (29|30) images")
    with pytest.warns(UserWarning, match="are not here: nobody can tell"), leaked:
        refuse_leak(given, data["mine"], "mine")
    # What a run wrote down needs neither list nor images of its own.
    seen = content_digests(full.split("test").image_paths[:3], default_cache_dir())
    write_trained_on(given, seen)
    with pytest.raises(DisMixError, match="was trained on 3 images"):
        refuse_leak(given, data["mine"], "mine")


def test_data_that_share_a_given_generator_are_looked_at_each_for_itself(smoke, tmp_path):
    known, done = smoke
    (name,) = known.generators
    given = tmp_path / "given"
    shutil.copytree(done.generator_dir(name), given, ignore=shutil.ignore_patterns("latents"))
    full = read_manifest(done.manifest_dir(known.generators[name].data) / FULL)
    test = full.table.index[full.table["split"] == "test"]
    kept, other = full.table.drop(index=test[:4]), full.table.drop(index=test[4:])
    data = {"clean": tmp_path / "clean.csv", "leaky": tmp_path / "leaky.csv"}
    write_manifest(full.with_table(kept.reset_index(drop=True)), data["clean"])
    write_manifest(full.with_table(other.reset_index(drop=True)), data["leaky"])
    seen = [*read_manifest(data["clean"]).split("train").image_paths]
    seen += read_manifest(data["leaky"]).split("test").image_paths
    write_trained_on(given, content_digests(seen, default_cache_dir()))
    plan = tiny_plan(factors={"grader": ["ce"], "mixer": ["dismix"], "seed": [0]})
    # Whichever comes first, in one folder: the same training part, so the same generator.
    for place, order in enumerate((["clean", "leaky"], ["leaky", "clean"])):
        bench, ids = BenchFolder(tmp_path / f"bench{place}"), set()
        for which in order:
            study = resolve(plan, bench, {which: data[which]}, {which: given})
            ids |= {*study.generators}
            if which == "clean":
                assert run_study(study, bench, cpu=True).done == 1
                continue
            with pytest.raises(DisMixError, match="was trained on 4 images that runs of 'leaky'"):
                run_study(study, bench, cpu=True)
        assert len(ids) == 1


def test_details_are_found_where_the_folder_was_moved(tmp_path):
    factors = {"grader": ["ce"], "mixer": ["dismix"], "seed": [0]}
    study, bench = tiny_study(tmp_path / "bench", factors=factors)
    assert run_study(study, bench, cpu=True).done == 1
    moved = tmp_path / "moved"
    shutil.move(bench.root, moved)
    detailed = tiny_plan(factors=factors, mixers={"dismix": {"detail": 0.5}})
    other = BenchFolder(moved)
    found = run_study(resolve(detailed, other), other, cpu=True)
    assert (found.done, found.failed) == (1, 0), found.errors


def test_no_run_starts_that_would_not_end_in_time(tmp_path):
    factors = {"grader": ["ce"], "mixer": ["none"], "seed": [0, 1, 2]}
    study, bench = tiny_study(tmp_path, factors=factors)
    found = run_study(study, bench, cpu=True, minutes=0)
    assert (found.ran, found.left) == (0, 3)
    first = resolve(tiny_plan(factors={**factors, "seed": [0]}), bench)
    assert run_study(first, bench, cpu=True).ran == 1
    record = bench.record(study.runs[0].id)
    bench.write_record({**record, "wall_s": 1000.0})
    found = run_study(study, bench, cpu=True, minutes=10)
    assert (found.ran, found.left) == (0, 2)
    bench.write_record(record)
    assert run_study(study, bench, cpu=True, minutes=10).ran == 2


def test_advice_on_batches_is_an_option_of_this_command(tmp_path):
    factors = {"grader": ["ce"], "mixer": ["none"], "seed": [0]}
    settings = {**tiny_plan().settings, "batch_size": 64}
    study, bench = tiny_study(tmp_path, factors=factors, settings=settings)
    with pytest.warns(UserWarning, match=r"batches of 64, .*; add --set batch_size=8$"):
        run_study(study, bench, cpu=True)


def test_a_generator_that_must_be_trained_takes_time_too(tmp_path):
    factors = {"grader": ["ce"], "mixer": ["none", "dismix"], "seed": [0]}
    study, bench = tiny_study(tmp_path, factors=factors)
    slow = {"generator_images_per_s": 0.001}
    found = run_study(study, bench, cpu=True, minutes=10, cost=slow)
    assert (found.ran, found.left) == (1, 1)
    assert not [*bench.root.glob("generators/*")]
    assert run_study(study, bench, cpu=True).ran == 1
    # It is there now, and a run that needs it is as short as any.
    bench.record_path(study.runs[1].id).unlink()
    assert run_study(study, bench, cpu=True, minutes=10, cost=slow).ran == 1


def test_checkpoints_outlive_a_record_that_cannot_be_written(tmp_path, monkeypatch):
    factors = {"grader": ["ce"], "mixer": ["none"], "seed": [0]}
    study, bench = tiny_study(tmp_path, factors=factors)

    def full(self, record):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(BenchFolder, "write_record", full)
        with pytest.raises(DisMixError, match="no run can go on"):
            run_study(study, bench, cpu=True)
    work = bench.work_dir(study.runs[0].id)
    assert [*work.glob("*.safetensors")]
    assert run_study(study, bench, cpu=True).done == 1
    assert not work.exists()


@pytest.mark.parametrize("kind", ["generator", "run"])
def test_a_generator_whose_worker_died_fails_its_runs_at_once(tmp_path, monkeypatch, kind):
    import dismix.bench.artifacts as artifacts

    factors = {"grader": ["ce"], "mixer": ["dismix"], "seed": [0, 1]}
    study, bench = tiny_study(tmp_path, factors=factors)
    options = {"folder": str(bench.root), "work": None, "cpu": True, "keep": False, "retry": False,
               "at_once": 1}  # fmt: skip
    jobs = _jobs(study, [*study.runs], bench, options, parallel=True)
    lost = next(job for job in jobs if job["type"] == kind)
    (name,) = study.generators
    with bench.try_lock(f"generator-{name}"):
        # Somebody else is training it: that one may end well.
        lost_record(lost, "its worker died 3 times")
    assert not [*bench.root.rglob("failed.json")]
    assert lost_record(lost, "its worker died 3 times")["status"] == "failed"
    with monkeypatch.context() as patch:
        patch.setattr(artifacts, "_build", lambda *arguments, **options: pytest.fail("trained"))
        found = run_study(study, bench, cpu=True)
    assert (found.done, found.failed) == (0, 2)
    assert (
        "this generator failed before (its worker died" in bench.record(study.runs[1].id)["error"]
    )
    assert run_study(study, bench, cpu=True, retry_failed=True).done == 2
    # Dead after its work was done, it has not failed.
    lost = next(job for job in jobs if job["type"] == "generator")
    assert lost_record(lost, "its worker died 3 times")["status"] == "done"
    assert not [*bench.root.rglob("failed.json")]


def test_a_run_in_flight_elsewhere_is_left_alone(tmp_path):
    factors = {"grader": ["ce"], "mixer": ["none"], "seed": [0, 1]}
    study, bench = tiny_study(tmp_path, factors=factors)
    with bench.try_lock(f"run-{study.runs[0].id}") as mine:
        assert mine
        found = run_study(study, bench, cpu=True)
    assert (found.done, found.left) == (1, 1)
    assert run_study(study, bench, cpu=True).done == 2


def test_interrupted_runs_go_on_and_end_the_same(smoke, tmp_path, monkeypatch):
    import dismix.bench.grader_runs as runs

    _, bench = smoke
    study, other = tiny_study(tmp_path)
    whole = runs.run_training

    def saving(*arguments, **options):
        return whole(*arguments, **options, save_seconds=0.0)

    steps = 0

    def stop(stage, done, total):
        nonlocal steps
        steps += stage.startswith("training |")
        # In the last epoch, after a checkpoint was written.
        if done == total - 1 and stage.startswith("training |"):
            raise KeyboardInterrupt

    monkeypatch.setattr(runs, "run_training", saving)
    with pytest.raises(KeyboardInterrupt):
        run_study(study, other, cpu=True, progress=stop)
    assert (other.work_dir(study.runs[0].id) / "last.safetensors").is_file()
    assert run_study(study, other, cpu=True).done == 6
    assert lasting(other) == lasting(bench)


def test_planned_runs_of_all_plans_are_listed(smoke, tmp_path):
    study, bench = smoke
    copy = BenchFolder(tmp_path)
    shutil.copytree(bench.root / "plans", copy.root / "plans")
    more = resolve(tiny_plan("more", factors={"grader": ["ce"], "seed": [0, 5]}), copy)
    run_study(more, copy, cpu=True, minutes=0)
    planned = json.loads((copy.root / "planned.json").read_text())["runs"]
    assert {run["id"] for run in planned} == {r.id for r in (*study.runs, *more.runs)}
    assert {"id", "kind", "factors"} <= {*planned[0]}


def test_a_full_disk_stops_a_study_and_blames_no_run(tmp_path, monkeypatch):
    import dismix.bench.artifacts as artifacts
    import dismix.bench.grader_runs as runs

    factors = {"grader": ["ce"], "mixer": ["none", "dismix"], "seed": [0]}
    study, bench = tiny_study(tmp_path, factors=factors)

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runs, "run_training", full)
    with pytest.raises(DisMixError, match=r"no run can go on .*free some space"):
        run_study(study, bench, cpu=True)
    assert bench.records() == []
    monkeypatch.undo()
    monkeypatch.setattr(artifacts, "_build", full)
    with pytest.raises(DisMixError, match="No space left"):
        run_study(study, bench, cpu=True)
    # Neither the generator nor its run counts as failed.
    assert [record["factors"]["mixer"] for record in bench.records()] == ["none"]
    assert not [*bench.root.rglob("failed.json")]


def test_a_damaged_list_of_planned_runs_is_written_anew(smoke, tmp_path):
    study, _ = smoke
    bench = BenchFolder(tmp_path)
    (tmp_path / "plans").mkdir()
    for name in (".tiny.x.part.json", "tiny.json", "other.json"):
        (tmp_path / "plans" / name).write_text("{")
    note_plan(study, bench)
    planned = json.loads((tmp_path / "planned.json").read_text())["runs"]
    assert [run["id"] for run in planned] == [run.id for run in study.runs]


def test_derived_data_are_found_without_writing(smoke, monkeypatch):
    study, bench = smoke
    locked = []
    monkeypatch.setattr(BenchFolder, "lock", lambda self, name: locked.append(name))
    source = read_manifest(next((bench.root / "data").iterdir()))
    known = next(iter(study.data.values()))
    assert Derivations(bench).ready("knee", source, known.how) == known
    assert locked == []


def test_status_counts_by_factor(smoke):
    study, bench = smoke
    found = study_status(study, bench)
    assert found["total"] == {"done": 6, "failed": 0, "missing": 0, "blocked": 0}
    assert found["factors"]["mixer"]["dismix"]["done"] == 2
    assert "seed" not in found["factors"]
    assert "grader cloc" in status_text(found)


@pytest.mark.parametrize("time", ["x", [1], None, float("nan"), -3.0])
def test_a_time_that_was_edited_by_hand_tells_nothing(smoke, tmp_path, time):
    study, bench = smoke
    copy = BenchFolder(tmp_path)
    for run in study.runs[1:]:
        record = {**bench.record(run.id), "wall_s": time, "generator_s": "x"}
        text = json.dumps(record)
        copy.record_path(run.id).parent.mkdir(exist_ok=True)
        copy.record_path(run.id).write_text(text)
    found = study_status(study, copy)
    assert found["total"]["missing"] == 1
    untold = study_status(study, BenchFolder(tmp_path / "empty"))
    # The first run alone is left, by the estimate for all six of them.
    assert 0 < found["seconds_left"] < untold["seconds_left"]


def test_generators_are_runs_too(tmp_path):
    study, bench = tiny_study(
        tmp_path, kind="generator", factors={"ablation": ["no_reversal"]},
        settings={"judge_epochs": 1}, mixers={},
    )  # fmt: skip
    found = run_study(study, bench, cpu=True)
    assert found.done == 1, found.errors
    record = bench.record(study.runs[0].id)
    assert record["factors"]["ablation"] == "no_reversal"
    assert 0 <= record["metrics"]["z_n_linear_accuracy"] <= 1
    assert record["config"]["generator"]["recipe"]["reversal"] == 0
    # Another plan may ask for a longer judge, or one of larger pictures.
    assert [path.stem for path in (bench.root / "judges").glob("*.safetensors")] == [
        f"{study.runs[0].data}-32px-1"
    ]


def test_overhead_is_measured_beside_training_without_mixing(smoke, tmp_path):
    known, done = smoke
    shutil.copytree(done.root / "generators", tmp_path / "generators")
    settings = tiny_plan().settings
    study, bench = tiny_study(
        tmp_path, kind="overhead", settings={**settings, "steps": 2, "rounds": 2},
        factors={"grader": ["gol"], "mixer": ["none", "puzzlemix", "dismix"]},
    )  # fmt: skip
    assert {*study.generators} == {*known.generators}
    found = run_study(study, bench, cpu=True)
    assert found.done == 3, found.errors
    assert not [line for line in bench.log() if line["event"].startswith("generator")]
    for run in study.runs:
        metrics = bench.record(run.id)["metrics"]
        assert metrics["ms_per_step"] > 0
        assert metrics["overhead_percent"] > -100


def test_what_a_pool_decodes_is_paid_for_by_the_steps_that_mix(smoke, tmp_path, monkeypatch):
    _, done = smoke
    shutil.copytree(done.root / "generators", tmp_path / "generators")
    windows, blocks, begun, left = [], [], [], []
    seconds, block = _Steps.seconds, DisMix.pool_block

    def timed(self, mixer, steps):
        windows.append((mixer is not None, steps))
        left.append(len(begun) - len(blocks))
        return seconds(self, mixer, steps)

    def slow(self, *place):
        begun.append(place)
        made = block(self, *place)
        time.sleep(0.2)
        blocks.append(len(windows) - 1)
        return made

    monkeypatch.setattr(_Steps, "seconds", timed)
    monkeypatch.setattr(DisMix, "pool_block", slow)
    study, bench = tiny_study(
        tmp_path, kind="overhead", settings={**tiny_plan().settings, "steps": 1, "rounds": 3},
        factors={"grader": ["ce"], "mixer": ["dismix"]},
    )  # fmt: skip
    found = run_study(study, bench, cpu=True)
    assert found.done == 1, found.errors
    # 16 mixes are used twice by batches of 16 at p = 0.5: a block lasts four steps.
    assert windows == [(False, 3), (True, 3)] + 3 * [(False, 1), (True, 4)]
    assert all(windows[place][0] for place in blocks)
    assert not any(left)
    # Two to begin with, and one more in each turn.
    assert len(blocks) >= 4
    record = bench.record(study.runs[0].id)
    assert record["images_seen"] == 3 * (1 + 4) * 16


@pytest.mark.parametrize(("steps", "mixed"), [(1, 4), (4, 4), (6, 8), (9, 12)])
def test_turns_of_a_pool_end_whole_blocks(steps, mixed):
    # Else most turns would decode one block, and use more than one.
    mixer = SimpleNamespace(served=PoolService(16, 2, None, seed=0))
    assert _whole_blocks(steps, mixer, 0.5, 16) == mixed
    assert mixer.served.place == (0, 16)
    assert _whole_blocks(steps, SimpleNamespace(), 0.5, 16) == steps


def test_a_plan_asked_anew_keeps_what_it_had_finished(tmp_path):
    import json

    def noted(bench):
        plan = json.loads(next((bench.root / "plans").glob("*.json")).read_text())
        return {run["id"] for run in plan["runs"]}

    factors = {"grader": ["ce"], "mixer": ["none"], "seed": [0]}
    first, bench = tiny_study(tmp_path, factors=factors)
    run_study(first, bench, cpu=True)
    second, _ = tiny_study(tmp_path, factors={**factors, "mixer": ["mixup"]})
    run_study(second, bench, cpu=True)
    assert noted(bench) == {first.runs[0].id, second.runs[0].id}
    # What was only asked for, and never finished, is forgotten.
    third, _ = tiny_study(tmp_path, factors={**factors, "mixer": ["cutmix"]})
    run_study(third, bench, cpu=True, minutes=0)
    run_study(first, bench, cpu=True)
    assert noted(bench) == {first.runs[0].id, second.runs[0].id}


def test_a_judge_is_trained_once_for_the_runs_that_ask_for_it(smoke, tmp_path: Path) -> None:
    factors = {"grader": ["ce"], "mixer": ["dismix"], "seed": [0, 1]}
    options = {"dismix": {"pool": 8, "judged": 0.5}}
    settings = {**tiny_plan().settings, "size": 128}
    study, bench = tiny_study(tmp_path, factors=factors, mixers=options, settings=settings)
    found = run_study(study, bench, cpu=True)
    assert (found.failed, found.left) == (0, 0), found.errors
    assert len([*bench.root.glob("judges/*.safetensors")]) == 1
    assert found.done == len(study.runs) == 2
    assert not [*smoke[1].root.glob("judges/*")]
    # Its training is nobody's own time, and it reads pictures of the generator's size.
    own = [record["wall_s"] for record in bench.records()]
    (file,) = bench.root.glob("judges/*.safetensors")
    assert max(own) < 4 * min(own) + 0.5
    assert Judge.load(file).kind == "conv"


def test_details_are_made_for_the_runs_that_ask_for_them(smoke, tmp_path: Path) -> None:
    _study, bench = smoke
    made = {path.parents[2].name for path in bench.root.glob("generators/*/latents/*/codes.bin")}
    assert made
    assert not [*bench.root.glob("generators/*/latents/*/details.bin")]
    factors = {"grader": ["ce"], "mixer": ["dismix"], "seed": [0]}
    study, other = tiny_study(tmp_path, factors=factors, mixers={"dismix": {"detail": 1.0}})
    found = run_study(study, other, cpu=True)
    assert (found.failed, found.left) == (0, 0), found.errors
    assert found.done == len(study.runs) > 0
    assert [*other.root.glob("generators/*/latents/*/details.bin")]
    assert all(r["config"]["mixer"]["options"]["detail"] == 1.0 for r in other.records())
