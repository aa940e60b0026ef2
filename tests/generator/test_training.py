"""The loop: interrupted, spread over processes, broken, and with dead codes."""

import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.generator.toy import toy_recipe, toy_split, toy_training, train_toy

from dismix.accelerators import make_accelerator
from dismix.errors import DisMixError
from dismix.generator.checkpoint import FILE, chosen_epoch, load_last
from dismix.generator.model import Generator
from dismix.generator.steps import Steps, set_lr


def _killed(run: Path, at: int) -> None:
    torch.set_num_threads(1)

    def die(text: str, done: int, total: int) -> None:
        if done >= at:
            os.kill(os.getpid(), signal.SIGKILL)

    train_toy(run, toy_recipe(adversary_steps=2, plain=0.34, polish=0.34), progress=die)


@pytest.mark.parametrize("at", [1, 6])
def test_a_killed_run_ends_with_the_same_bits(tmp_path: Path, at: int) -> None:
    torch.set_num_threads(1)
    recipe = toy_recipe(adversary_steps=2, plain=0.34, polish=0.34)
    train_toy(tmp_path / "whole", recipe)
    child = multiprocessing.get_context("fork").Process(target=_killed, args=(tmp_path / "cut", at))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    train_toy(tmp_path / "cut", recipe, resume=True)
    whole, cut = (load_file(tmp_path / name / FILE) for name in ("whole", "cut"))
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[key], cut[key]) for key in whole)
    lines = [(tmp_path / n / "metrics.jsonl").read_text().splitlines() for n in ("whole", "cut")]
    epochs = [[json.loads(line)["epoch"] for line in text] for text in lines]
    assert epochs[0] == epochs[1] == [1, 2, 3]


def test_saving_takes_a_small_part_of_the_time(tmp_path: Path, monkeypatch) -> None:
    from dismix.generator import checkpoint, training

    plain, saved = training.save_training, []

    def counted(*args) -> None:
        saved.append(args[-1]["epoch"])
        plain(*args)

    monkeypatch.setattr(training, "save_training", counted)
    monkeypatch.setattr(checkpoint, "SAVING_SHARE", 1e-9)
    train_toy(tmp_path / "rarely", toy_recipe())
    assert saved == [1, 3]
    saved.clear()
    monkeypatch.setattr(checkpoint, "SAVING_SHARE", 1e9)
    train_toy(tmp_path / "always", toy_recipe())
    assert saved == [1, 2, 3]


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    script = str(Path(__file__).parent / "toy.py")
    env = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    subprocess.run([sys.executable, script, str(tmp_path / "one")], check=True, env=env)
    launch = ["-m", "torch.distributed.run", "--nproc_per_node=2", "--master_port=29611"]
    subprocess.run([sys.executable, *launch, script, str(tmp_path / "two")], check=True, env=env)
    one, two = (load_file(tmp_path / name / FILE) for name in ("one", "two"))
    weights = [key for key in one if key.startswith("module/objective/model")]
    assert weights
    # Adam divides by the gradient's size, so that rounding can turn a tiny gradient's sign.
    for key in weights:
        torch.testing.assert_close(two[key], one[key], atol=5e-3, rtol=5e-2, msg=key)
    gaps = torch.cat([(two[key].float() - one[key].float()).abs().flatten() for key in weights])
    assert gaps.median() < 1e-5


def test_a_term_that_is_not_finite_stops_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(DisMixError, match="'reconstruct' is not finite at step") as caught:
        train_toy(tmp_path, toy_recipe(lr=1e30, warmup=0, clip=0))
    assert "--set lr" in str(caught.value)
    assert not (tmp_path / FILE).exists()


def test_dead_codes_are_revived_and_logged(tmp_path: Path) -> None:
    train_toy(tmp_path, toy_recipe(epochs=4))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["revived_ordinal"] > 0
    assert 0 < lines[0]["usage_ordinal"] <= 1
    # Codes born at the end would have no time to find their place.
    assert "revived_ordinal" not in lines[-1]
    off = tmp_path / "off"
    train_toy(off, toy_recipe(epochs=1, revive=False))
    assert "revived_ordinal" not in json.loads((off / "metrics.jsonl").read_text())


def test_what_a_run_leaves(tmp_path: Path) -> None:
    training = train_toy(tmp_path, toy_recipe(epochs=2, strip_every=2))
    line = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    wanted = {"loss", "w_reconstruct", "images_per_second", "perplexity_nonordinal", "psnr_val"}
    assert wanted <= line.keys()
    assert training.best["epoch"] == 2
    assert (tmp_path / "strips" / "epoch_0002.png").stat().st_size > 0
    model = Generator.load(tmp_path)
    for name, tensor in training.average.tensors.items():
        torch.testing.assert_close(model.get_parameter(name), tensor)


def test_the_last_weights_are_those_of_the_last_epoch(tmp_path: Path) -> None:
    training = train_toy(tmp_path, toy_recipe(epochs=2))
    other = Generator.seeded(training.model.config, seed=9)
    assert load_last(tmp_path, other) == 2
    for name, tensor in training.average.tensors.items():
        assert torch.equal(other.get_parameter(name), tensor), name
    assert not torch.equal(other.quant_conv.weight, training.model.quant_conv.weight)
    with pytest.raises(DisMixError, match="not a checkpoint of this generator"):
        load_last(tmp_path / "elsewhere", other)


def test_plain_epochs_only_rebuild(tmp_path: Path) -> None:
    training = train_toy(tmp_path, toy_recipe(epochs=4, plain=0.5, evaluate_every=1))
    assert training.best["epoch"] > 2
    lines = [json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    for line in lines[:2]:
        assert {"reconstruct", "rank_ordinal", "critic_adversary"} <= line.keys()
        assert not {"rank_nonordinal", "control", "realism", "critic_realism"} & line.keys()
    for line in lines[2:]:
        assert {"reconstruct", "rank_nonordinal", "control", "critic_realism"} <= line.keys()


def test_weights_from_before_codes_had_to_part_are_not_chosen(tmp_path: Path) -> None:
    late = {"plain": 0.25, "reversal_start": 0.5, "reversal_ramp": 0.01, "evaluate_every": 1}
    training = train_toy(tmp_path, toy_recipe(epochs=4, **late))
    assert training.best["epoch"] == chosen_epoch(tmp_path) == 4
    assert chosen_epoch(tmp_path / "elsewhere") is None


def test_plain_epochs_leave_the_discriminator_alone(tmp_path: Path) -> None:
    recipe = toy_recipe(epochs=2, plain=0.5)
    fresh, learned = toy_training(recipe), toy_training(recipe)
    steps = Steps(learned, make_accelerator(cpu=True))
    split = toy_split(8)
    images, levels = split.images(torch.arange(8), "cpu"), split.target.levels

    def unchanged() -> bool:
        pairs = zip(fresh.critics.discriminator.parameters(),
                    learned.critics.discriminator.parameters(), strict=True)  # fmt: skip
        return all(torch.equal(a, b) for a, b in pairs)

    steps(images, levels, 0, 0, 0.0)
    assert unchanged()
    steps(images, levels, 1, 0, 0.5)
    assert not unchanged()


def test_polishing_teaches_the_decoder_alone(tmp_path: Path) -> None:
    recipe = toy_recipe(epochs=3, polish=0.34, mix_realism=0.1)
    fresh, learned = toy_training(recipe), toy_training(recipe)
    steps = Steps(learned, make_accelerator(cpu=True))
    split = toy_split(8)
    images, levels = split.images(torch.arange(8), "cpu"), split.target.levels
    parts = steps(images, levels, 2, 0, 0.67)
    changed = {
        name.split(".")[0]
        for (name, one), two in zip(
            fresh.model.named_parameters(), learned.model.parameters(), strict=True
        )
        if not torch.equal(one, two)
    }
    assert changed == {"decoder", "post_quant_conv"}
    assert {"reconstruct", "realism", "mix_realism"} <= parts.keys()
    assert not {"rank_ordinal", "rank_nonordinal", "quantize_nonordinal"} & parts.keys()


def test_polishing_starts_the_learning_rate_once_more() -> None:
    recipe = toy_recipe(epochs=10, polish=0.2, lr=1.0, schedule="cosine", warmup=0.0)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)

    def rate(share: float) -> float:
        set_lr(optimizer, recipe, share)
        return float(optimizer.param_groups[0]["lr"])

    assert [round(rate(x), 3) for x in (0.0, 0.4, 0.799, 0.8, 0.9, 1.0)] == [
        1.0, 0.5, 0.0, 0.5, 0.25, 0.0,
    ]  # fmt: skip


def test_weights_are_averaged_over_the_steps() -> None:
    training, split = toy_training(toy_recipe(ema=0.6)), toy_split(8)
    steps = Steps(training, make_accelerator(cpu=True))
    slow = {name: p.detach().clone() for name, p in training.model.named_parameters()}
    first = {name: p.clone() for name, p in slow.items()}
    images, levels = split.images(torch.arange(8), "cpu"), split.target.levels
    for step in range(4):
        steps(images, levels, 0, step, 0.1)
        decay = min(0.6, (1 + step) / (10 + step))
        for name, p in training.model.named_parameters():
            slow[name] = decay * slow[name] + (1 - decay) * p.detach()
    assert training.average.updates == 4
    for name, mean in training.average.tensors.items():
        torch.testing.assert_close(mean, slow[name])
    assert any(not torch.equal(slow[name], first[name]) for name in slow)


def test_the_discriminator_joins_some_time_after_the_plain_epochs() -> None:
    training = toy_training(toy_recipe(epochs=8, plain=0.5, discriminator_start=0.25))
    steps, split = Steps(training, make_accelerator(cpu=True)), toy_split(8)
    images, levels = split.images(torch.arange(8), "cpu"), split.target.levels
    joined = [
        float(steps.prepare(images, levels, int(8 * share), 0, share).realism)
        for share in (0.0, 0.3, 0.5, 0.7, 0.75, 0.9)
    ]
    assert joined == [0, 0, 0, 0, 1, 1]


def test_a_batch_that_processes_cannot_share(tmp_path: Path) -> None:
    class Three:
        num_processes = 3

    from dismix.generator.training import run_training

    training = toy_training(toy_recipe())
    other: Any = Three()
    with pytest.raises(DisMixError, match="cannot be shared by 3 processes"):
        run_training(training, None, None, tmp_path, other)  # type: ignore[arg-type]


def test_learning_rate_follows_the_schedule() -> None:
    recipe = toy_recipe(schedule="cosine", warmup=0.1)
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], 0.2)
    rates = []
    for share in (0.0, 0.05, 0.1, 0.55, 1.0):
        set_lr(optimizer, recipe, share)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates[0] < rates[1] < rates[2] == pytest.approx(0.2)
    assert rates[3] == pytest.approx(0.2 * 0.5 * (1 + math.cos(math.pi * 0.5)))
    assert rates[4] == pytest.approx(0.0, abs=1e-9)
    # Readers of codes that settle go on at their own rate.
    optimizers = toy_training(recipe).optimizers
    for optimizer in optimizers.values():
        set_lr(optimizer, recipe, 0.55)
    critic, reader = (group["lr"] for group in optimizers["critics"].param_groups)
    assert critic == pytest.approx(recipe.lr_critic * rates[3] / 0.2)
    assert reader == recipe.lr_adversary
