"""What stops a training, and what it leaves behind when it stops."""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.generator.toy import toy_recipe, toy_split, toy_training, train_toy
from torch import nn

from dismix.accelerators import make_accelerator
from dismix.errors import DisMixError
from dismix.generator import steps as steps_module
from dismix.generator.checkpoint import FILE
from dismix.generator.health import LOOK_EVERY, stop_if_broken, stop_if_weights_broken
from dismix.generator.training import run_training


def test_the_term_is_named_before_the_loss_it_spoils() -> None:
    nan, one = torch.tensor(math.nan), torch.tensor(1.0)
    stop_if_broken({"loss": one, "realism": one}, "now")
    with pytest.raises(DisMixError, match="'realism' is not finite at step 3") as caught:
        stop_if_broken({"loss": nan, "reconstruct": one, "realism": nan}, "at step 3")
    assert "--set realism=" in str(caught.value)
    with pytest.raises(DisMixError, match="'gradient_norm'") as caught:
        stop_if_broken({"loss": nan, "gradient_norm": nan}, "now")
    assert "--set gradient_norm" not in str(caught.value)


def test_weights_are_named() -> None:
    layer = nn.Linear(2, 2)
    stop_if_weights_broken({"a": layer}, "now")
    with torch.no_grad():
        layer.bias[1] = math.inf
    with pytest.raises(DisMixError, match=r"'a\.bias' is not finite now"):
        stop_if_weights_broken({"a": layer}, "now")


def _poisoned(monkeypatch: pytest.MonkeyPatch, at: int, what: str) -> list[int]:
    """Make one step of a training return or leave behind what is not finite."""
    done: list[int] = []
    plain = steps_module.Steps.__call__

    def call(self, images, levels, epoch, step, share):
        parts = plain(self, images, levels, epoch, step, share)
        done.append(step)
        if len(done) == at and what == "term":
            parts["similarity"] = parts["similarity"] * math.nan
        if len(done) == at and what == "weight":
            with torch.no_grad():
                self.training.model.post_quant_conv.bias.fill_(math.nan)
        return parts

    monkeypatch.setattr(steps_module.Steps, "__call__", call)
    return done


def test_a_broken_term_stops_within_a_few_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = _poisoned(monkeypatch, 3, "term")
    recipe = toy_recipe(batch_size=2, epochs=1, evaluate_every=9)
    training, split = toy_training(recipe), toy_split(60)
    with pytest.raises(DisMixError, match="'similarity' is not finite at step 11 of 30 in epoch 1"):
        run_training(training, split, toy_split(9), tmp_path, make_accelerator(cpu=True))
    assert len(done) <= 3 + LOOK_EVERY
    assert not (tmp_path / FILE).exists()


def test_a_weight_broken_by_the_last_step_is_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Three steps an epoch: the sixth is the last of the second epoch.
    _poisoned(monkeypatch, 6, "weight")
    with pytest.raises(DisMixError, match=r"post_quant_conv.bias' is not finite after epoch 2"):
        train_toy(tmp_path, toy_recipe(evaluate_every=1))
    kept = load_file(tmp_path / FILE)
    assert all(torch.isfinite(t).all() for t in kept.values() if t.is_floating_point())
    weights = load_file(tmp_path / "generator.safetensors")
    assert all(torch.isfinite(t).all() for t in weights.values() if t.is_floating_point())
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1]


def test_a_collapsed_codebook_stops_unless_it_is_revived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = steps_module.Steps.__call__

    def call(self, images, levels, epoch, step, share):
        parts = plain(self, images, levels, epoch, step, share)
        with torch.no_grad():
            # One code is near everything, the others are out of reach.
            self.training.model.quantize.embedding.weight.fill_(1e6)[0] = 0.0
        return parts

    monkeypatch.setattr(steps_module.Steps, "__call__", call)
    with pytest.raises(DisMixError, match="collapsed to one code in epoch 2") as caught:
        train_toy(tmp_path / "off", toy_recipe(revive=False, clip=1.0))
    assert "revive=true" in str(caught.value)
    train_toy(tmp_path / "on", toy_recipe(revive=True, clip=1.0))


def test_what_is_logged(tmp_path: Path) -> None:
    train_toy(tmp_path, toy_recipe(epochs=1))
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert line["gradient_norm"] > 0
    assert line["peak_memory_mib"] > 50
