"""Workers that die: their runs end all the same, and none runs twice."""

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.bench.study import tiny_plan, tiny_study

from dismix.bench.engines import Hooks, make_engine
from dismix.bench.folder import BenchFolder
from dismix.bench.runner import run_study
from dismix.errors import DisMixError


def long_enough(folder, seeds=3):
    """Return runs of about half a second."""
    settings = {**tiny_plan().settings, "epochs": 40}
    factors = {"grader": ["ce"], "mixer": ["none", "mixup"], "seed": [*range(seeds)]}
    return tiny_study(folder, settings=settings, factors=factors)


class Killer(threading.Thread):
    """Kills the process of a run in flight, once, when some runs have ended."""

    def __init__(self, bench: BenchFolder, after: int) -> None:
        super().__init__(daemon=True)
        self.bench, self.after = bench, after
        self.killed: list[str] = []

    def run(self) -> None:
        # As long as the test lives: on a busy machine a worker takes its time to start.
        while not self.killed:
            time.sleep(0.02)
            lines = self.bench.log()
            ended = {line["id"] for line in lines if line["event"] == "done"}
            flying = [x for x in lines if x["event"] == "started" and x["id"] not in ended]
            if len(ended) >= self.after and flying and flying[-1]["pid"] != os.getpid():
                os.kill(flying[-1]["pid"], signal.SIGKILL)
                self.killed.append(flying[-1]["id"])


def assert_all_ended_once(study, bench, found, killer):
    lines = bench.log()
    counts = Counter(line["id"] for line in lines if line["event"] == "done")
    starts = Counter(line["id"] for line in lines if line["event"] == "started")
    assert (found.done, found.failed, found.left) == (len(study.runs), 0, 0), found.errors
    # On a busy machine a worker may be killed between its record and its line in the log: its run
    # is known then, and not run again.
    known = Counter(name for name in killer.killed if starts[name] == 1)
    assert all(bench.status(name) == "done" and counts[name] == 0 for name in known)
    assert counts + known == dict.fromkeys((run.id for run in study.runs), 1)
    assert starts == counts + Counter(killer.killed)


@pytest.mark.skipif(os.name == "nt", reason="kills by signal")
def test_ray_restarts_lost_workers_and_ends_all_runs_once(tmp_path):
    pytest.importorskip("ray")
    # Each worker, and each one in place of a dead one, takes seconds to import torch.
    study, bench = long_enough(tmp_path, seeds=2)
    killer = Killer(bench, after=1)
    killer.start()
    found = run_study(study, bench, make_engine("ray", jobs=2), cpu=True)
    assert killer.killed, "no worker was killed"
    assert_all_ended_once(study, bench, found, killer)


def endless(folder: str) -> None:
    """Run, side by side, what takes far longer than any test."""
    settings = {**tiny_plan().settings, "epochs": 100_000}
    factors = {"grader": ["ce"], "mixer": ["none"], "seed": [0]}
    study, bench = tiny_study(Path(folder), settings=settings, factors=factors)
    run_study(study, bench, make_engine("processes"), cpu=True)


@pytest.mark.skipif(os.name == "nt", reason="kills by signal")
def test_a_killed_runner_leaves_no_worker_that_holds_its_run(tmp_path):
    bench = BenchFolder(tmp_path)
    runner = multiprocessing.get_context("spawn").Process(target=endless, args=(str(tmp_path),))
    runner.start()
    while not (started := [line for line in bench.log() if line["event"] == "started"]):
        assert runner.is_alive()
        time.sleep(0.05)
    assert started[0]["pid"] != runner.pid
    runner.kill()
    runner.join()
    free, until = False, time.monotonic() + 30
    while not free and time.monotonic() < until:
        time.sleep(0.1)
        with bench.try_lock(f"run-{started[0]['id']}") as free:
            pass
    if not free:
        os.kill(started[0]["pid"], signal.SIGKILL)
    assert free


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="kills by signal")
def test_processes_replace_dead_workers(tmp_path):
    study, bench = long_enough(tmp_path)
    killer = Killer(bench, after=2)
    killer.start()
    found = run_study(study, bench, make_engine(jobs=2), cpu=True)
    assert killer.killed, "no worker was killed"
    assert_all_ended_once(study, bench, found, killer)


@pytest.mark.slow
def test_a_run_that_kills_its_workers_is_kept_as_failed(tmp_path, monkeypatch):
    import dismix.bench.engines.processes as processes

    study, bench = long_enough(tmp_path, seeds=1)
    monkeypatch.setattr(processes, "_work", _die)
    found = run_study(study, bench, make_engine("processes", jobs=2), cpu=True)
    assert (found.failed, found.left) == (2, 0)
    assert "died 3 times (exit code 3)" in bench.record(study.runs[0].id)["error"]


def _broken(job, progress=None):
    """Break off as no run does by itself, and count it."""
    with open(Path(job["folder"]) / "tries", "a", encoding="utf-8") as file:
        file.write(job["spec"]["id"] + "\n")
    raise RuntimeError("the folder is gone")


def assert_tried_thrice(study, bench, found):
    assert (found.failed, found.left) == (len(study.runs), 0)
    tries = Counter((bench.root / "tries").read_text().split())
    assert tries == dict.fromkeys((run.id for run in study.runs), 3)
    error = bench.record(study.runs[0].id)["error"]
    assert error.startswith("Traceback (most recent call last):\n")
    assert ", in _broken\n" in error
    assert error.endswith("\nRuntimeError: the folder is gone\n")
    assert all(line.endswith(": RuntimeError: the folder is gone") for line in found.errors)


@pytest.mark.slow
def test_ray_keeps_the_traceback_of_a_run_that_breaks_off(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    import dismix.bench.engines.on_ray as on_ray
    from dismix.bench.worker import tried

    def breaking(job):
        import dismix.bench.worker as worker

        worker.run_job = _broken
        return tried(job)

    study, bench = long_enough(tmp_path, seeds=1)
    monkeypatch.setattr(on_ray, "tried", breaking)
    assert_tried_thrice(study, bench, run_study(study, bench, make_engine("ray"), cpu=True))


@pytest.mark.slow
def test_processes_keep_the_traceback_of_a_run_that_breaks_off(tmp_path, monkeypatch):
    import dismix.bench.engines.processes as processes

    study, bench = long_enough(tmp_path, seeds=1)
    monkeypatch.setattr(processes, "_work", _break)
    assert_tried_thrice(study, bench, run_study(study, bench, make_engine("processes"), cpu=True))


def _break(pipe, threads):
    import dismix.bench.worker as worker
    from dismix.bench.engines.processes import _work

    worker.run_job = _broken
    _work(pipe, threads)


def _die(pipe, threads):
    pipe.recv()
    os._exit(3)


def test_workers_tell_how_far_a_generator_is(monkeypatch):
    import dismix.bench.engines.processes as processes

    monkeypatch.setattr(processes, "_work", _tell)
    said, ended = [], []
    hooks = Hooks(
        may_start=lambda job: True,
        started=lambda job: None,
        ended=lambda job, outcome: ended.append(outcome),
        progress=lambda *words: said.append(words),
    )
    make_engine("processes", jobs=1).run([{"type": "generator"}], hooks)
    assert said == [("generator training", 1, 2), ("generator training", 2, 2)]
    assert ended == [{"status": "done"}]


def _tell(pipe, threads):
    from dismix.bench.engines.processes import _telling

    pipe.recv()
    tell = _telling(pipe)
    tell("generator training", 0, 2)  # Too soon.
    time.sleep(0.6)
    tell("generator training", 1, 2)
    tell("generator training", 2, 2)  # The last is always told.
    pipe.send({"status": "done"})
    pipe.recv()


def test_engines_by_name():
    assert type(make_engine()).__name__ == "InProcess"
    with pytest.raises(DisMixError, match="did you mean 'ray'"):
        make_engine("rray")
    with pytest.raises(DisMixError, match="one at a time"):
        make_engine("in_process", jobs=2)
