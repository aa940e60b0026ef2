"""Run folders for one process at a time, and workers that end with their parent."""

import errno
import subprocess
import sys
import time

import pytest

from dismix.errors import DisMixError
from dismix.locks import LOCK, in_use, locked

WORKERS = """
import multiprocessing, sys, time
from concurrent.futures import ProcessPoolExecutor
from dismix.locks import end_with_parent, in_use

def keep(folder):
    with in_use(folder):
        time.sleep(600)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=end_with_parent) as pool:
        pool.submit(keep, sys.argv[1]).result()
"""


def wait_until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_free(folder):
    try:
        with in_use(folder):
            return True
    except DisMixError:
        return False


def test_a_folder_in_use_is_refused_and_free_afterwards(tmp_path):
    with (
        in_use(tmp_path / "run"),
        pytest.raises(DisMixError, match=r"run: is in use by process \d+; wait for it or end it"),
        in_use(tmp_path / "run"),
    ):
        pass
    assert (tmp_path / "run" / LOCK).read_text() == ""
    assert is_free(tmp_path / "run")


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path):
    (tmp_path / LOCK).write_text("1 elsewhere\n")
    with in_use(tmp_path):
        assert not (tmp_path / LOCK).read_text().startswith("1 elsewhere")


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DisMixError, match="cannot write here"), in_use(tmp_path / "file" / "run"):
        pass


def test_workers_end_when_their_parent_is_killed(tmp_path):
    script, run = tmp_path / "workers.py", tmp_path / "run"
    script.write_text(WORKERS)
    with subprocess.Popen([sys.executable, str(script), str(run)]) as parent:
        wait_until(lambda: (run / LOCK).is_file() and (run / LOCK).read_text())
        assert not is_free(run)
        parent.kill()
    wait_until(lambda: is_free(run), 20)


def test_a_disk_that_knows_no_locks_is_used_all_the_same(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def refused(number):
        def flock(*_):
            raise OSError(number, "no locks")

        monkeypatch.setattr(fcntl, "flock", flock)

    refused(errno.ENOSYS)
    with in_use(tmp_path), locked(tmp_path / "other"):
        pass
    refused(errno.EIO)
    with pytest.raises(OSError, match="no locks"), locked(tmp_path / "other"):
        pass
