"""Benchmarks are run by hand, so they would break unseen: one runs here, all must still import."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from dismix.data.phantom import PhantomSpec
from dismix.data.phantom.plan import plan_images
from dismix.labels import OrdinalTarget

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def imported(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a benchmark as a module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location(f"benchmark_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_every_benchmark_imports(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(imported(path, monkeypatch).main)


def test_perfect_mixes_are_as_severe_as_their_labels_say(monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = imported(BENCHMARKS / "oracle_mixes.py", monkeypatch)
    spec = PhantomSpec(subject="knee", train=60, val=0, test=0, size=64, jitter=0.3)
    planned = list(plan_images(spec))
    for policies in ("interpolating", "preserving", "combined"):
        made = {
            labels: oracle.perfect_mixes(planned, f"{policies}:{labels}", 40, seed=1)
            for labels in ("true", "rank")
        }
        (pictures, drawn), (same, asked) = made["true"], made["rank"]
        assert torch.equal(pictures, same)
        if policies != "interpolating":
            # Partners are found by majorities, so sources may truly be further apart.
            continue
        assert float((drawn.rank - asked.rank).abs().max()) <= 0.3 + 1e-5
        assert float((drawn.rank - drawn.rank.round()).abs().mean()) > 0.1


def test_ready_pictures_take_the_place_of_images(monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = imported(BENCHMARKS / "oracle_mixes.py", monkeypatch)
    target = OrdinalTarget.from_labels([4, 4], 5)
    mixer = oracle.DrawnMixes(torch.full((2, 1, 8, 8), 255, dtype=torch.uint8), target, 0.5, 0)
    images, labels = mixer(torch.zeros(4, 1, 8, 8), torch.zeros(4, dtype=torch.long))
    replaced = images.flatten(1).amax(1) > 0.9
    assert int(replaced.sum()) == 2
    assert (labels.argmax(1) == torch.where(replaced, 4, 0)).all()


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
