"""The package as others get it: a wheel that runs, versions that agree, no heavy import."""

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import dismix

ROOT = Path(__file__).parents[1]


def test_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert dismix.__version__ == project["version"]
    assert re.search(rf"^version: {re.escape(dismix.__version__)}$", citation, re.M)


def test_public_names_exist_and_load_lazily():
    code = (
        "import sys, dismix\nassert 'torch' not in sys.modules\n"
        "for name in dismix.__all__: getattr(dismix, name)\n"
        "assert 'torch' in sys.modules\nassert set(dismix.__all__) <= set(dir(dismix))\n"
        "try: dismix.nothing\nexcept AttributeError: print('ok')\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.stdout == "ok\n", result.stderr


def test_constraints_pin_the_torch_that_pulls_no_cuda():
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert "torch==2.13.0" in pins
    assert "torchvision==0.28.0" in pins
    assert not [pin for pin in pins if pin.lower().startswith(("nvidia", "triton"))]


def test_nothing_committed_names_this_machine():
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\n")
    here = str(ROOT.parent) + "/"
    for name in filter(None, listed):
        path = ROOT / name
        if path.is_file() and path.stat().st_size < 2**20:
            assert here not in path.read_text(errors="replace"), name


def test_no_merge_was_left_half_done():
    marks = "^(<<<<<<<|>>>>>>>) "
    found = subprocess.run(
        ["git", "grep", "-nE", marks], cwd=ROOT, capture_output=True, text=True, check=False
    )
    # No match makes it 1; outside a checkout there is nothing to look at.
    assert found.stdout == ""


def test_an_environment_of_another_python_is_made_anew(tmp_path, monkeypatch):
    place = spec_from_file_location("setup_tool", ROOT / "tools" / "setup.py")
    tool = module_from_spec(place)
    place.loader.exec_module(tool)
    made = []
    monkeypatch.setattr(tool, "STAMP", tmp_path / "stamp")
    monkeypatch.setattr(tool, "uv_install", lambda _: True)
    monkeypatch.setattr(tool.venv, "create", lambda *_, **how: made.append(how["clear"]))
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 3 9\n")
    other.chmod(0o755)
    for python, times in ((Path(sys.executable), 0), (other, 1), (tmp_path / "absent", 2)):
        (tmp_path / "stamp").unlink(missing_ok=True)
        monkeypatch.setattr(tool, "PYTHON", python)
        tool.main()
        assert made == [True] * times


@pytest.mark.slow
def test_wheel_installs_and_runs(tmp_path):
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(tmp_path)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "dismix/py.typed" in names
    assert not [n for n in names if not n.startswith(("dismix/", "dismix-"))]
    target = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target)]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    code = (
        "import dismix; assert dismix.__file__.startswith(r'%s')\n"
        "from dismix.cli import main; main()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code % target, "data", "phantom", "-o", str(tmp_path / "p"),
         "--train", "4", "--val", "2", "--test", "2", "-q"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={"PYTHONPATH": str(target)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "8 images" in result.stdout
