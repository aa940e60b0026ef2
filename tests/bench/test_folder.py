import json

import pytest

from dismix.atomic import disk_is_full
from dismix.bench.clock import Clock
from dismix.bench.durations import Durations, expected_seconds, in_words
from dismix.bench.folder import BenchFolder
from dismix.bench.specs import GeneratorSpec, RunSpec, Study
from dismix.errors import DisMixError


def test_damaged_records_and_leftovers_of_kills_do_not_count(tmp_path):
    bench = BenchFolder(tmp_path)
    bench.write_record({"id": "a", "status": "done"})
    (tmp_path / "records" / "b.json").write_text('{"id": "b", "sta')
    (tmp_path / "records" / ".a.xyz.part.json").write_text("{")
    assert bench.status("a") == "done"
    (tmp_path / "records" / "d.json").write_text('{"id": "d", "status": "odd"}')
    (tmp_path / "records" / "e.json").write_text("[]")
    assert {bench.status(name) for name in "bcde"} == {"missing"}
    assert [record["id"] for record in bench.records()] == ["a"]
    bench.write_record({"id": "a", "status": "failed"})
    left = sorted(p.name for p in (tmp_path / "records").iterdir())
    assert left == ["a.json", "b.json", "d.json", "e.json"]


def test_locks_are_held_by_one_and_given_back(tmp_path):
    bench = BenchFolder(tmp_path)
    with bench.try_lock("x") as first:
        with bench.try_lock("x") as second:
            assert (first, second) == (True, False)
        with bench.try_lock("y") as other:
            assert other
    with bench.try_lock("x") as again:
        assert again


def test_the_log_passes_over_a_line_cut_short(tmp_path):
    bench = BenchFolder(tmp_path)
    bench.note("started", "a")
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"event": "do')
    assert [line["event"] for line in bench.log()] == ["started"]


def test_seconds_of_killed_tries_are_kept(tmp_path, monkeypatch):
    import dismix.bench.clock as clock

    monkeypatch.setattr(clock, "_SAVE_SECONDS", 0.0)
    (tmp_path / "clock.json").write_text(json.dumps({"seconds": 40.0}))
    first = Clock(tmp_path / "clock.json")
    said = []
    first.ticking(lambda *words: said.append(words))("training", 1, 2)
    assert said == [("training", 1, 2)]
    second = Clock(tmp_path / "clock.json")
    assert second.seconds == pytest.approx(40, abs=1)
    assert second.before > 40


def test_durations_come_from_the_most_alike_runs():
    known = Durations()
    assert known.mean("grader", {}) is None
    known.add("grader", {"data": "a", "grader": "gol", "mixer": "none"}, 10)
    known.add("grader", {"data": "a", "grader": "gol", "mixer": "dismix"}, 30)
    assert known.mean("grader", {"data": "a", "grader": "gol", "mixer": "none"}) == 10
    assert known.mean("grader", {"data": "b", "grader": "ce", "mixer": "dismix"}) == 30
    assert known.mean("grader", {"data": "b", "mixer": "cutmix"}) == 20
    assert known.mean("overhead", {"data": "a", "mixer": "none"}) is None
    assert in_words(3 * 3600) == "3.0 h"


def test_a_generator_to_come_is_not_reckoned_twice(tmp_path):
    # Once with the runs that measured others like it, and once as a generator to be trained.
    bench, factors = BenchFolder(tmp_path), {"data": "a", "ablation": "full"}
    runs = [
        RunSpec(name, "generator", "p", factors, {}, {}, "k", f"g{name}", 0, 0) for name in "01"
    ]
    built = {name: GeneratorSpec(f"g{name}", "k", {}, {}, images=270 * 70) for name in "01"}
    study = Study("p", "", tuple(runs), {spec.id: spec for spec in built.values()}, {})
    bench.write_record({"id": "0", "kind": "generator", "status": "done", "wall_s": 110.0,
                        "generator_s": 100.0})  # fmt: skip
    assert expected_seconds(study, bench, {}, [runs[1]]) == (10.0, 100.0)


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    bench = BenchFolder(tmp_path / "file")
    with (
        pytest.raises(DisMixError, match=r"cannot write here \(Not a directory\); choose another"),
        bench.lock("x"),
    ):
        pass
    with pytest.raises(DisMixError, match="choose another output path"), bench.try_lock("x"):
        pass


def test_a_full_disk_is_seen_behind_other_errors():
    def chained(first):
        try:
            try:
                raise first
            except Exception as error:
                raise RuntimeError("later") from error
        except RuntimeError as error:
            return error

    assert disk_is_full(chained(OSError(28, "No space left on device")))
    assert disk_is_full(chained(ValueError("I/O error: No space left on device (os error 28)")))
    assert not disk_is_full(chained(OSError(2, "No such file")))


def test_a_log_with_foreign_bytes_is_read(tmp_path):
    bench = BenchFolder(tmp_path)
    bench.note("started", "a")
    with open(tmp_path / "log.jsonl", "ab") as file:
        file.write(b"\xff\xfe\n")
    bench.note("done", "a")
    assert [line["event"] for line in bench.log()] == ["started", "done"]
