"""Several processes: one guide, the same weights everywhere, and a guide that outlives a kill."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from dismix.accelerators import make_accelerator
from dismix.data.manifest import read_manifest
from dismix.errors import DisMixError
from dismix.generator.processes import trained_once
from dismix.generator.reading import reading_of
from dismix.generator.recipe_choice import choose_recipe, fitted_guide
from dismix.generator.run_plan import plan_run
from dismix.generator.start_run import train_generator


def test_a_network_is_trained_once_and_then_read(tmp_path: Path) -> None:
    calls = []

    def train() -> nn.Linear:
        calls.append(1)
        return nn.Linear(3, 2)

    path, accelerator = tmp_path / "guide.safetensors", make_accelerator(cpu=True)
    first = trained_once(path, train, lambda: nn.Linear(3, 2), accelerator)
    again = trained_once(path, train, lambda: nn.Linear(3, 2), accelerator)
    assert len(calls) == 1
    assert torch.equal(first.weight, again.weight)
    assert not again.weight.requires_grad
    with pytest.raises(DisMixError, match="delete it"):
        trained_once(path, train, lambda: nn.Linear(4, 2), accelerator)


def test_a_resumed_run_learns_under_the_same_guide(small_run, tmp_path: Path) -> None:
    def train(epochs: int, **more: bool) -> dict[str, float]:
        settings = {**small_run.settings, "epochs": epochs}
        return train_generator(
            small_run.data, tmp_path, arch="tiny", settings=settings, size=32, cpu=True, **more
        )

    best = train(1)
    guide = tmp_path / "guide.safetensors"
    assert guide.stat().st_size > 0
    kept = guide.stat().st_mtime_ns
    train(1, resume=True)
    assert guide.stat().st_mtime_ns == kept
    described = json.loads((tmp_path / "run.json").read_text())
    assert len(described["provenance"]["resumed"]) == 1
    assert described["reading"] == reading_of(read_manifest(small_run.data).meta)
    with pytest.raises(DisMixError, match="started with another recipe"):
        train(2, resume=True)
    # Without its checkpoint it is still a generator that took its time.
    (tmp_path / "last.safetensors").unlink()
    weights = (tmp_path / "generator.safetensors").read_bytes()
    with pytest.raises(DisMixError, match="holds a run already; choose another folder"):
        train(2)
    assert (tmp_path / "generator.safetensors").read_bytes() == weights
    assert json.loads((tmp_path / "run.json").read_text()) == described
    # It is over, so there is nothing to go on with.
    assert train(1, resume=True) == best
    assert (tmp_path / "generator.safetensors").read_bytes() == weights
    assert not (tmp_path / "last.safetensors").exists()
    # Another start must not learn under what a killed run left.
    (tmp_path / "generator.safetensors").unlink()
    train(2)
    assert guide.stat().st_mtime_ns != kept


def test_the_guide_has_a_bar_and_a_length_that_fits_a_trial(small_run, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    settings = {k: v for k, v in small_run.settings.items() if k != "guide_steps"}
    train_generator(
        small_run.data, tmp_path, arch="tiny", settings=settings, size=32, cpu=True,
        progress=lambda *words: told.append(words),
    )  # fmt: skip
    # Two steps of the generator: 40 images in batches of 16.
    described = json.loads((tmp_path / "run.json").read_text())
    assert described["recipe"]["guide_steps"] == 20
    guide = [(done, total) for stage, done, total in told if stage == "teaching the guide"]
    assert guide == [(n + 1, len(guide)) for n in range(len(guide))]
    assert 15 <= len(guide) <= 25
    stages = [stage.split(" | ")[0] for stage, *_ in told]
    assert stages.index("teaching the guide") < stages.index("training")
    # What the user chose is taken.
    plan = plan_run(small_run.data, arch="tiny", settings={**settings, "guide_steps": 600}, size=32)
    assert plan.recipe.guide_steps == 600


@pytest.mark.parametrize(
    ("images", "arch", "settings"),
    [(351, "light", {}), (5612, "light", {"epochs": 10}), (1000, "tiny", {}),
     (300, "tiny", {"epochs": 30})],
)  # fmt: skip
def test_guides_of_recorded_runs_are_as_long_as_before(images, arch, settings) -> None:
    recipe = choose_recipe("default", arch, settings)
    assert fitted_guide(images, recipe) == recipe


@pytest.mark.slow
def test_two_processes_share_guide_and_weights(small_run, tmp_path: Path) -> None:
    script = str(Path(__file__).parent / "pair.py")
    env = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    where = [str(small_run.data), str(tmp_path / "two"), str(small_run.cache)]
    launch = ["-m", "torch.distributed.run", "--nproc_per_node=2", "--master_port=29612"]
    subprocess.run([sys.executable, *launch, script, *where], check=True, env=env)
    first, second = (load_file(tmp_path / "two" / f"rank{r}.safetensors") for r in (0, 1))
    assert first.keys() == second.keys()
    assert [key for key in first if key.startswith("guide.")]
    for key in first:
        if not key.endswith("usage.counts"):
            assert torch.equal(first[key], second[key]), key
    where[1] = str(tmp_path / "one")
    subprocess.run([sys.executable, script, *where], check=True, env=env)
    one = load_file(tmp_path / "one" / "rank0.safetensors")
    for key in (key for key in one if key.startswith("guide.")):
        assert torch.equal(one[key], first[key]), key
    # Partners of the mixes are neighbours within a process's share, and the guide's views have
    # other noise, so the two trainings are alike and not equal.
    lines = [
        json.loads((tmp_path / name / "metrics.jsonl").read_text().splitlines()[-1])
        for name in ("one", "two")
    ]
    for name in ("reconstruct", "mix", "guide"):
        assert lines[1][name] == pytest.approx(lines[0][name], rel=0.25), name


@pytest.mark.parametrize(
    "settings",
    [{"guide_kind": "lite0", "guide_steps": 0}, {"guide": 0, "mix": 0, "seen": 0}, {}],
)
def test_a_trunk_that_nothing_taught_does_not_stay_frozen(small_run, settings) -> None:
    def plan(**more) -> bool:
        chosen = {**small_run.settings, **settings, **more}
        return plan_run(small_run.data, arch="tiny", settings=chosen, size=32).recipe.freeze_trunk

    if settings:
        with pytest.raises(DisMixError, match=r"'freeze_trunk': .*nothing cannot stay frozen"):
            plan()
    else:
        assert plan()
    assert not plan(freeze_trunk=False)
