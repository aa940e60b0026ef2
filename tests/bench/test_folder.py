import json

import pytest

from dismix.bench.clock import Clock
from dismix.bench.durations import Durations, in_words
from dismix.bench.folder import BenchFolder


def test_damaged_records_and_leftovers_of_kills_do_not_count(tmp_path):
    bench = BenchFolder(tmp_path)
    bench.write_record({"id": "a", "status": "done"})
    (tmp_path / "records" / "b.json").write_text('{"id": "b", "sta')
    (tmp_path / "records" / ".a.xyz.part.json").write_text("{")
    assert bench.status("a") == "done"
    assert bench.status("b") == bench.status("c") == "missing"
    assert [record["id"] for record in bench.records()] == ["a"]
    bench.write_record({"id": "a", "status": "failed"})
    assert sorted(p.name for p in (tmp_path / "records").iterdir()) == ["a.json", "b.json"]


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
