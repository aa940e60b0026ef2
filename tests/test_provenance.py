"""Provenance: what a record needs to be repeated."""

import json
import re
import shutil
import subprocess
from pathlib import Path

from dismix import provenance
from dismix.bench.warm import Warm
from dismix.generator.run_file import claim
from dismix.graders.start_run import claim as claim_grader


def test_record_is_plain_and_complete(monkeypatch):
    monkeypatch.delenv("DISMIX_COMMIT", raising=False)
    record = provenance.provenance()
    assert json.loads(json.dumps(record)) == record
    assert record["versions"]["torch"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", record["date"])
    assert record["hardware"]


def test_commit_can_be_told_where_there_is_no_git(monkeypatch):
    monkeypatch.setenv("DISMIX_COMMIT", "abc123")
    assert provenance.provenance()["commit"] == "abc123"


def test_missing_git_is_no_error(monkeypatch):
    def absent(*_args, **_kwargs):
        raise OSError("no git")

    monkeypatch.setattr(provenance.subprocess, "run", absent)
    assert provenance.commit() == ""


def test_the_commit_of_a_project_around_the_package_is_not_its_own(tmp_path: Path, monkeypatch):
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True)

    package = tmp_path / ".venv" / "provenance.py"
    package.parent.mkdir()
    shutil.copy(provenance.__file__, package)
    monkeypatch.setattr(provenance, "__file__", str(package))
    git("init", "-q")
    (tmp_path / ".gitignore").write_text(".venv\n")
    git("add", ".gitignore")
    git("commit", "-q", "-m", "of somebody else")
    assert provenance.commit() == ""
    git("add", "-f", str(package))
    git("commit", "-q", "-m", "as a part of it")
    assert re.fullmatch(r"[0-9a-f]{12}", provenance.commit())


def test_what_ran_on_the_processor_does_not_name_the_gpu_beside_it(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda _: "a GPU")
    assert provenance.provenance()["hardware"] == "a GPU"
    assert provenance.provenance("cuda")["hardware"] == "a GPU"
    assert provenance.provenance("cpu")["hardware"].endswith("cores")
    claim(tmp_path, {"manifest": "data"}, False, device="cpu")
    made = json.loads((tmp_path / "run.json").read_text())["provenance"]
    assert made["hardware"].endswith("cores")


def test_graders_and_runs_of_the_bench_do_not_name_it_either(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda _: "a GPU")
    claim_grader(tmp_path, {"manifest": "data"}, False, "cpu")
    made = json.loads((tmp_path / "run.json").read_text())["provenance"]
    assert made["hardware"].endswith("cores")
    warm = Warm()
    # In turn, since what was found once is kept.
    for _ in range(2):
        assert warm.provenance(cpu=True)["hardware"].endswith("cores")
        assert warm.provenance(cpu=False)["hardware"] == "a GPU"
