"""The examples of loops run as they stand."""

import importlib.util
import math
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", ["plain", "collate", "timm", "lightning"])
def test_loops_train_on_mixes(name, toy_run, monkeypatch):
    if name == "lightning" and not any(
        importlib.util.find_spec(package) for package in ("lightning", "pytorch_lightning")
    ):
        pytest.skip("Lightning is not installed")
    monkeypatch.setenv("DISMIX_CACHE", str(toy_run.parent))
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"loop_{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    few = {"steps": 2} if name in ("plain", "timm") else {}
    losses = module.main(str(toy_run), **few)
    assert losses
    assert all(math.isfinite(loss) for loss in losses)


def test_a_collate_function_works_in_worker_processes(toy_run, monkeypatch):
    monkeypatch.setenv("DISMIX_CACHE", str(toy_run.parent))
    spec = importlib.util.spec_from_file_location("collate", EXAMPLES / "loop_collate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.main(str(toy_run), workers=1)
