"""Atomic writes: whole or absent, also when the process is killed."""

import os
import signal
import stat
import subprocess
import sys
import time

import pytest
import torch
from PIL import Image
from safetensors import SafetensorError

from dismix import atomic
from dismix.errors import DisMixError
from dismix.generator.saving import save_tensors
from dismix.show.contact_sheet import save_picture


def test_failure_keeps_the_old_file_and_leaves_no_rest(tmp_path):
    path = tmp_path / "result.json"
    atomic.write_json(path, {"old": 1})
    with pytest.raises(RuntimeError), atomic.replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == '{\n  "old": 1\n}\n'
    assert list(tmp_path.iterdir()) == [path]


def test_killed_writer_leaves_the_old_file(tmp_path):
    path = tmp_path / "result.txt"
    atomic.write_text(path, "old")
    code = (
        "import sys, time\nfrom dismix import atomic\n"
        f"with atomic.replacing({str(path)!r}) as t:\n"
        "    t.write_text('half'); print('writing', flush=True); time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.05)
    assert path.read_text() == "old"


def test_result_has_ordinary_rights(tmp_path):
    mask = os.umask(0o022)
    try:
        atomic.write_text(tmp_path / "a.txt", "x")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o644


def test_rights_are_found_without_touching_the_mask_of_other_threads(tmp_path, monkeypatch):
    def never(mask):
        raise AssertionError("the mask belongs to all threads")

    mask = os.umask(0o027)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", never)
            atomic.write_json(tmp_path / "a.json", {})
            save_tensors(tmp_path / "a.safetensors", {"a": torch.zeros(2)})
            save_picture(Image.new("L", (4, 4)), tmp_path / "a.png")
    finally:
        os.umask(mask)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o640}


def test_names_that_are_taken_are_passed_over(tmp_path, monkeypatch):
    taken = iter(["one", "one", "two"])
    monkeypatch.setattr("dismix.atomic.secrets.token_hex", lambda _: next(taken))
    (tmp_path / ".a.one.part.txt").write_text("another's")
    atomic.write_text(tmp_path / "a.txt", "mine")
    assert (tmp_path / "a.txt").read_text() == "mine"
    assert (tmp_path / ".a.one.part.txt").read_text() == "another's"


def test_a_file_in_the_way_of_the_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(DisMixError, match="cannot write here"):
        atomic.write_text(tmp_path / "file" / "a.txt", "x")


def test_a_folder_in_the_place_of_the_file_is_named(tmp_path):
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(DisMixError, match=r"a\.txt: cannot write here"):
        atomic.write_text(tmp_path / "a.txt", "x")
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_full_disk_is_one_line_whoever_writes(tmp_path):
    told = r"a\.txt: cannot write here \(No space left on device\); free some space, or choose"
    for error in (
        OSError(28, "No space left on device"),
        SafetensorError("I/O error: No space left on device (os error 28)"),
    ):
        with pytest.raises(DisMixError, match=told), atomic.replacing(tmp_path / "a.txt"):
            raise error
    assert [*tmp_path.iterdir()] == []


def test_errors_of_the_block_itself_pass_through(tmp_path):
    with pytest.raises(FileNotFoundError), atomic.replacing(tmp_path / "a.txt"):
        (tmp_path / "absent").read_text()
