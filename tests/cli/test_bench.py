"""The commands as users type them."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from dismix.bench.runner import Summary
from dismix.cli.app import app
from dismix.cli.options import pairs
from dismix.errors import DisMixError

runner = CliRunner()
FEW = ["--set", "mixer=none", "--set", "grader=ce", "--set", "epochs=1"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DISMIX_CACHE", str(tmp_path / "cache"))


def call(*words):
    return runner.invoke(app, ["bench", *map(str, words)], catch_exceptions=False)


def test_plan_run_and_status_tell_the_same(tmp_path):
    here = ["-o", tmp_path / "bench", *FEW, "--set", "seed=0,1"]
    planned = call("plan", "smoke", *here, "-q").stdout.splitlines()
    assert [line.split()[1] for line in planned[:2]] == ["missing", "missing"]
    assert "2 runs, 2 to run, about" in planned[-1]
    assert planned[-1].endswith("on one CPU core or as measured here, and 0 s for 0 generators")
    ran = call("run", "smoke", *here, "-q", "--cpu")
    assert ran.exit_code == 0
    assert "2 done (2 now), 0 failed, 0 left" in ran.stdout
    assert "2 done (0 now)" in call("run", "smoke", *here, "-q", "--cpu").stdout
    assert call("plan", "smoke", *here, "-q").stdout.count(" done ") == 2
    status = json.loads(call("status", "smoke", *here, "--json").stdout)
    assert status["total"]["done"] == 2
    assert status["seconds_left"] == 0
    assert "seed 0" in call("status", "smoke", *here).stdout
    whole = call("report", tmp_path / "bench", "-q").stdout.strip()
    assert whole == str(tmp_path / "bench" / "report.html")
    own = call("report", "smoke", "-o", tmp_path / "bench", "-q").stdout.strip()
    assert own == str(tmp_path / "bench" / "reports" / "smoke" / "report.html")
    elsewhere = call("report", "-o", tmp_path / "bench", "--to", tmp_path / "there", "-q")
    assert elsewhere.stdout.strip() == str(tmp_path / "there" / "report.html")
    with pytest.raises(DisMixError, match="elsewhere would be another one; leave"):
        call("report", tmp_path / "bench", "-o", tmp_path / "elsewhere", "-q")
    with pytest.raises(DisMixError, match="no generator of a DisMix run is here"):
        call("figures", "-o", tmp_path / "bench", "-q")


@pytest.mark.parametrize("gpu", [False, True])
def test_a_plan_for_a_gpu_says_so_where_there_is_none(tmp_path, monkeypatch, gpu):
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    content = json.loads(call("plan", "smoke", "--json").stdout)
    for hardware in ("one H200", None):
        content["cost"] = {} if hardware is None else {"hardware": hardware}
        (tmp_path / "mine.yaml").write_text(json.dumps(content))
        here = ["-o", tmp_path / "bench", *FEW, "--set", "seed=0", "-q"]
        large = ["--set", "backbone=resnet18", "--set", "weights=none"]
        last = call("plan", tmp_path / "mine.yaml", *here, *large).stdout.splitlines()[-1]
        assert f" on {hardware or 'one GPU'} or as measured here, and " in last
        assert (
            last.endswith("; there is no GPU here, where all of it takes many times as long") != gpu
        )
        last = call("plan", tmp_path / "mine.yaml", *here).stdout.splitlines()[-1]
        assert (" on one CPU core or as measured here, and " in last) != gpu
        assert "no GPU here" not in last
    content["cost"] = {"images_per_s": 100}
    (tmp_path / "mine.yaml").write_text(json.dumps(content))
    last = call("plan", tmp_path / "mine.yaml", *here).stdout.splitlines()[-1]
    assert " by the plan's rates or as measured here, and " in last
    assert call("run", tmp_path / "mine.yaml", *here, "--cpu").exit_code == 0
    more = ["-o", tmp_path / "bench", *FEW, "--set", "seed=0,1", "-q"]
    last = call("plan", tmp_path / "mine.yaml", *more).stdout.splitlines()[-1]
    assert " as measured here, and 0 s for 0 generators" in last
    assert "GPU" not in last


def test_progress_names_the_run_and_the_time_left(tmp_path):
    from tests.bench.study import tiny_study

    from dismix.bench.runner import run_study

    study, bench = tiny_study(tmp_path, factors={"grader": ["ce"], "seed": [0, 1]})
    said = []
    run_study(study, bench, cpu=True, progress=lambda *words: said.append(words))
    lines = [stage for stage, _, _ in said if stage.startswith("benchmark | ")]
    assert lines[0].startswith("benchmark | run 1 of 2: knee ce none seed 0, about ")
    assert lines[0].endswith(" left")
    assert said[-1][1:] == (2, 2)


@pytest.mark.parametrize("cpu", [False, True])
def test_runs_reckon_with_the_rates_of_this_machine(tmp_path, monkeypatch, cpu):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    costs = []
    monkeypatch.setattr(
        "dismix.bench.runner.run_study", lambda *_, cost, **__: costs.append(cost) or Summary()
    )
    content = json.loads(call("plan", "smoke", "--json").stdout)
    content["cost"] = {"images_per_s": 2200, "hardware": "one H200"}
    (tmp_path / "mine.yaml").write_text(json.dumps(content))
    words = ["run", tmp_path / "mine.yaml", "-o", tmp_path / "bench", *FEW, "-q"]
    assert call(*words, *["--cpu"] * cpu).exit_code == 0
    assert costs[0]["hardware"] == ("one CPU core" if cpu else "one H200")


def test_plans_are_listed_and_printed_as_json():
    assert "variability" in call("plans").stdout
    content = json.loads(call("plan", "main", "--json", "--set", "epochs=7").stdout)
    assert content["settings"]["epochs"] == 7


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan", "mian"], "did you mean 'main'"),
        (["plan", "main"], "--data NAME=MANIFEST"),
        (["run", "smoke", "--set", "epoch=3"], "did you mean 'epochs'"),
        (["run", "smoke", "--data", "here"], "'here' lacks a name or a value"),
        (["run", "smoke", "--data", "a=nowhere"], "no such file or folder"),
        (["run", "smoke", "--jobs", "2", "--engine", "in_process"], "one at a time"),
        (["run", "smoke", "--gpus", "0.25", "--jobs", "4"], "--gpus: .* add --engine ray"),
        (["run", "smoke", "--address", "auto"], "--address: says nothing to other engines"),
        (["run", "smoke", "--set", "seed=0", "--set", "seed=1"], "'seed' is given twice"),
        (["report", "smoke"], "no plan 'smoke' was run here; `dismix bench run smoke` first"),
    ],
)
def test_mistakes_are_one_line(tmp_path, words, said):
    with pytest.raises(DisMixError, match=said):
        call(*words, "-o", tmp_path)


def test_a_plan_is_printed_without_loading_torch():
    code = (
        "import sys\nsys.argv = ['dismix', 'bench', 'plan', 'smoke', '--json']\n"
        "from dismix.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "assert not {'torch', 'pandas', 'scipy'} & set(sys.modules), 'heavy import'\n"
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-300:]
    assert json.loads(result.stdout)["kind"] == "grader"


def test_a_study_takes_a_setting_once_too():
    with pytest.raises(DisMixError, match=r"'mixers.dismix.detail' is given twice; give it once"):
        pairs(["mixers.dismix.detail=1", "mixers.dismix.detail=0"], "--set")
    with pytest.raises(DisMixError, match="--set: 'detail' lacks a name or a value; write NAME"):
        pairs(["detail"], "--set")
    with pytest.raises(DisMixError, match="--set: '=1' lacks a name"):
        pairs(["=1"], "--set")
