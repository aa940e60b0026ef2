"""Benchmarks are run by hand, so they would break unseen: one runs here, all must still import."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_every_benchmark_imports(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location(f"benchmark_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    assert callable(module.main)


def test_overhead_of_mixing_counts_what_the_pool_decodes() -> None:
    words = "--device cpu --arch tiny --backbone tiny --size 64 --batch 4 --steps 6 --rounds 1"
    script = str(BENCHMARKS / "mixing_overhead.py")
    command = [
        sys.executable,
        script,
        *words.split(),
        "--pool",
        "4",
        "--reuse",
        "1",
        "--mixers",
        "mixup",
    ]
    found = subprocess.run(command, text=True, capture_output=True, check=False)
    assert found.returncode == 0, found.stderr
    line = next(x for x in found.stdout.splitlines() if x.startswith("dismix pool"))
    decoded, used = (int(line.split(f" {word}")[0].split()[-1]) for word in ("decoded", "used"))
    assert 0 < decoded <= used
