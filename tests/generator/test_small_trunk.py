"""A small ordinal trunk beside a large guide: it starts from a reader of its own."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.generator.conftest import SmallRun

from dismix.errors import DisMixError
from dismix.generator import guide
from dismix.generator.model import Generator
from dismix.generator.run_file import take_graders
from dismix.generator.run_plan import plan_run
from dismix.generator.start_run import train_generator
from dismix.generator.trunk import LITE0, LITE0_WEIGHTS


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put weights of the right form where they are looked for."""
    from dismix._compat import import_torchvision

    import_torchvision()
    import timm

    folder = tmp_path / "weights"
    folder.mkdir()
    state = timm.create_model(LITE0, pretrained=False).state_dict()
    save_file(state, folder / f"{LITE0_WEIGHTS}.safetensors")
    monkeypatch.setenv("DISMIX_WEIGHTS", str(folder))


@pytest.mark.usefixtures("weights")
def test_it_is_frozen_as_its_reader_and_not_as_chance_left_it(
    small_run: SmallRun, tmp_path: Path
) -> None:
    settings = {**small_run.settings, "guide_kind": "lite0"}
    run = tmp_path / "run"
    train_generator(small_run.data, run, arch="tiny", settings=settings, size=32, cpu=True)
    reader, trunk = load_file(run / "reader.safetensors"), Generator.load(run).ordinal_trunk
    assert trunk is not None
    for name, tensor in trunk.state_dict().items():
        assert torch.equal(tensor, reader[f"trunk.{name}"]), name
    # The guide is the large one.
    assert any(name.startswith("backbone.") for name in load_file(run / "guide.safetensors"))


@pytest.mark.usefixtures("weights")
def test_a_frozen_one_that_starts_from_nothing_is_refused(
    small_run: SmallRun, tmp_path: Path
) -> None:
    settings = {**small_run.settings, "guide_kind": "lite0", "guide_steps": 0}
    with pytest.raises(DisMixError, match=r"cannot stay frozen.*guide_steps more than 0"):
        train_generator(
            small_run.data, tmp_path / "run", arch="tiny", settings=settings, size=32, cpu=True
        )


def test_a_reader_of_another_trunk_is_not_taken(small_run: SmallRun, tmp_path: Path) -> None:
    plan = plan_run(small_run.data, arch="tiny", settings=small_run.settings, size=32)
    for trunk, taken in (("conv", True), ("lite0", False)):
        described = {**plan.described, "config": {**plan.described["config"]}}
        described["config"]["ordinal_trunk"] = trunk
        run = tmp_path / trunk
        run.mkdir()
        take_graders(run, small_run.run.parent, described)
        assert (run / "guide.safetensors").exists() == taken


@pytest.mark.usefixtures("weights")
def test_the_guides_own_learning_rate_leaves_a_small_reader_alone(
    small_run: SmallRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taught: dict[str, float | None] = {}
    learn = guide.train_guide

    def noted(*args: Any, **options: Any) -> guide.Guide:
        taught[options["kind"]] = options["lr"]
        return learn(*args, **options)

    monkeypatch.setattr(guide, "train_guide", noted)
    settings = {**small_run.settings, "guide_kind": "lite0", "guide_lr": 1e-3}
    run = tmp_path / "run"
    train_generator(small_run.data, run, arch="tiny", settings=settings, size=32, cpu=True)
    assert taught == {"lite0": 1e-3, "conv": None}


def test_a_guide_that_learned_at_another_rate_is_not_taken(
    small_run: SmallRun, tmp_path: Path
) -> None:
    for rate, taken in ((0.0, True), (2e-3, False)):
        settings = {**small_run.settings, "guide_lr": rate}
        plan = plan_run(small_run.data, arch="tiny", settings=settings, size=32)
        run = tmp_path / str(rate)
        run.mkdir()
        take_graders(run, small_run.run.parent, plan.described)
        assert (run / "guide.safetensors").exists() == taken
