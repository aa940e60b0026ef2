"""The loop: interrupted, staged, weighted, mixed, balanced and spread over processes."""

import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file
from tests.graders.toy import SMALL, toy_settings, toy_split, toy_training, train_toy

from dismix.accelerators import make_accelerator
from dismix.errors import DisMixError
from dismix.generator.checkpoint import FILE
from dismix.graders.base import Grader, Grades, Stage
from dismix.graders.cross_entropy import CrossEntropyGrader
from dismix.graders.evaluation import fit_reference
from dismix.graders.pooled import PooledConfig
from dismix.graders.settings import choose_settings
from dismix.graders.state import epochs_done
from dismix.graders.training import Training, run_training
from dismix.labels import OrdinalTarget


class Staged(CrossEntropyGrader):
    """Two stages: everything, then the head with its bias ten times faster."""

    stages = (
        Stage("all", 0.5, views=2),
        Stage("head", 0.5, ("head",), {"head.bias": 10.0}, mixing=False),
    )

    def training_loss(self, images, target, stage, weights=None):
        if images.ndim == 5:
            images, target = images.flatten(0, 1), target.expand(images.shape[1])
            weights = None if weights is None else weights.repeat_interleave(stage.views)
        return super().training_loss(images, target, stage, weights)


def staged(settings, **parts):
    base = toy_training(settings)
    torch.manual_seed(0)
    grader = Staged(base.grader.backbone, 4, **settings.hparams)
    grader.name = "ce"
    return Training(grader, settings, 0, **parts)


def run_staged(run, settings, *, resume=False, progress=None, **parts):
    training = staged(settings, **parts)
    run_training(
        training, toy_split(), toy_split(20, seed=1), run, make_accelerator(cpu=True),
        resume=resume, progress=progress, save_seconds=0.0,
    )  # fmt: skip
    return training


def _mixer(name: str | None) -> Any:
    if name is None:
        return None
    return pytest.importorskip("dismix.mixing.registry").create_mixer(name, 4, p=0.5)


def _killed(run: Path, at: int, mix: str | None) -> None:
    torch.set_num_threads(1)

    def die(text: str, done: int, total: int) -> None:
        if done >= at:
            os.kill(os.getpid(), signal.SIGKILL)

    run_staged(run, toy_settings(), progress=die, mixer=_mixer(mix))


@pytest.mark.parametrize(
    ("at", "mix"), [(1, None), (3, None), (5, None), (7, None), (3, "mixup"), (3, "cutmix")]
)
def test_a_killed_run_ends_with_the_same_bits(tmp_path: Path, at: int, mix: str | None) -> None:
    torch.set_num_threads(1)
    run_staged(tmp_path / "whole", toy_settings(), mixer=_mixer(mix))
    child = multiprocessing.get_context("fork").Process(
        target=_killed, args=(tmp_path / "cut", at, mix)
    )
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    run_staged(tmp_path / "cut", toy_settings(), resume=True, mixer=_mixer(mix))
    for name in (FILE, "model.safetensors"):
        whole, cut = (load_file(tmp_path / folder / name) for folder in ("whole", "cut"))
        assert whole.keys() == cut.keys()
        assert all(torch.equal(whole[key], cut[key]) for key in whole)
    lines = [(tmp_path / n / "metrics.jsonl").read_text().splitlines() for n in ("whole", "cut")]
    read = [[json.loads(line) for line in text] for text in lines]
    assert [row["epoch"] for row in read[1]] == [1, 2, 3, 4]
    assert [row["loss"] for row in read[0]] == [row["loss"] for row in read[1]]


def test_stages_freeze_all_but_what_they_train(tmp_path: Path) -> None:
    seen: list[tuple[str, Any]] = []

    class Watching(Staged):
        def training_loss(self, images, target, stage, weights=None):
            state = {k: v.clone() for k, v in self.state_dict().items() if torch.is_tensor(v)}
            seen.append((stage.name, images.shape, state, self.backbone.training))
            return super().training_loss(images, target, stage, weights)

    settings = toy_settings()
    training = toy_training(settings)
    training.grader = Watching(training.grader.backbone, 4)
    training.grader.name = "ce"
    training.__post_init__()
    run_training(training, toy_split(), toy_split(20, seed=1), tmp_path, make_accelerator(cpu=True))
    assert [name for name, *_ in seen] == ["all"] * 4 + ["head"] * 4
    assert all(shape[1] == 2 and len(shape) == 5 for name, shape, *_ in seen if name == "all")
    assert all(len(shape) == 4 for name, shape, *_ in seen if name == "head")
    assert [mode for *_, mode in seen] == [True] * 4 + [False] * 4
    first, last = seen[4][2], seen[-1][2]
    changed = {k for k in first if not torch.equal(first[k], last[k])}
    assert changed == {"head.weight", "head.bias"}
    # Only the last stage is validated: an untrained head has nothing to say.
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert ["val_averaged_accuracy" in row for row in rows] == [False, False, True, True]


def test_learning_rates_of_a_stage() -> None:
    from dismix.graders.plan import begin_stage, set_learning_rate

    training = staged(toy_settings(weight_decay=0.1))
    optimizer = begin_stage(training.grader, training.grader.stages[1], training.settings)
    set_learning_rate(optimizer, 0.01)
    rates = {
        name: (group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for name, p in training.grader.named_parameters()
        if any(p is q for q in group["params"])
    }
    assert rates == {"head.weight": (0.01, 0.1), "head.bias": (0.1, 0.0)}


def test_learns_and_keeps_the_chosen_model(tmp_path: Path) -> None:
    settings = toy_settings(epochs=30, select="loss,accuracy,last", dropout=0.0)
    training = train_toy(tmp_path, settings)
    for rule, name in (("loss", "model"), ("accuracy", "model-accuracy"), ("last", "model-last")):
        grader = Grader.load(tmp_path / f"{name}.safetensors")
        assert grader.about["select"] == rule
        assert grader.about["epoch"] == training.selectors[rule].epoch
        split = toy_split(20, seed=2)
        grades = grader.predict(split.source)
        assert (grades.label == split.target.hard).float().mean() > 0.9
    assert training.selectors["last"].epoch == 30


@dataclass(frozen=True)
class _Config(PooledConfig):
    pass


class Recording(CrossEntropyGrader):
    config_type: ClassVar[Any] = _Config
    weights: ClassVar[list[Any]] = []
    targets: ClassVar[list[Any]] = []

    def training_loss(self, images, target, stage, weights=None):
        self.weights.append(weights)
        self.targets.append(target)
        return super().training_loss(images, target, stage, weights)


def recorded(tmp_path, settings, **parts):
    Recording.weights.clear()
    Recording.targets.clear()
    training = toy_training(settings)
    grader = Recording(training.grader.backbone, 4)
    grader.name = "ce"
    training = Training(grader, settings, 0, **parts)
    run_training(training, toy_split(), toy_split(20, seed=1), tmp_path, make_accelerator(cpu=True))
    return Recording.weights, Recording.targets


def test_rank_and_sample_weights_reach_the_method(tmp_path: Path) -> None:
    own = torch.linspace(1, 2, 40)
    settings = toy_settings(epochs=1, rank_weights="1,2,3,4", batch_size=40, augment=False)
    weights, targets = recorded(tmp_path, settings, sample_weights=own)
    expected = torch.tensor([1.0, 2, 3, 4])[toy_split().target.hard] * own
    assert weights[0].sort().values.tolist() == pytest.approx(expected.sort().values.tolist())
    assert (weights[0] / torch.tensor([1.0, 2, 3, 4])[targets[0].hard]).min() >= 1
    with pytest.raises(DisMixError, match="3 rank weights were given for 4 ranks"):
        recorded(tmp_path / "b", toy_settings(rank_weights="1,2,3"))


def test_mixers_are_called_and_seeded_once(tmp_path: Path) -> None:
    calls: list[Any] = []

    class Half:
        def reseed(self, *seeds: int) -> None:
            calls.append(seeds)

        def __call__(self, images: torch.Tensor, target: OrdinalTarget) -> Any:
            calls.append(len(images))
            order = torch.arange(len(images)).roll(1)
            return 0.5 * (images + images[order]), target.mix(target[order], 0.5)

    _, targets = recorded(tmp_path, toy_settings(epochs=2), mixer=Half())
    assert [c for c in calls if isinstance(c, tuple)] == [(0, 0)]
    assert not any(bool(t.clean.any()) for t in targets)


def test_mixing_begins_and_ends_by_epoch(tmp_path: Path) -> None:
    called = []

    class Counted:
        def __call__(self, images: Any, target: Any, **_: Any) -> Any:
            called.append(len(images))
            return images, target

    whole = toy_settings(epochs=4)
    recorded(tmp_path / "whole", whole, mixer=Counted())
    all_epochs = len(called)
    called.clear()
    part = replace(whole, mix_from=0.25, mix_until=0.5)
    recorded(tmp_path / "part", part, mixer=Counted())
    assert len(called) == all_epochs / 4
    with pytest.raises(DisMixError, match="no epoch of 4 lies between"):
        replace(whole, mix_until=0.1)
    # Records of earlier trainings know nothing of it.
    assert "mix_until" not in whole.to_dict()
    assert part.to_dict()["mix_until"] == 0.5


def test_library_mixers_fit_in(tmp_path: Path) -> None:
    mixing = pytest.importorskip("dismix.mixing.registry")
    mixer = mixing.create_mixer("mixup", 4, p=1.0)
    _, targets = recorded(tmp_path, toy_settings(epochs=1), mixer=mixer)
    assert not bool(targets[0].clean.all())


def test_balanced_sampling_is_an_option(tmp_path: Path) -> None:
    labels = [0] * 34 + [1, 1, 2, 2, 3, 3]
    split = toy_split()
    rare = type(split)(split.source, OrdinalTarget.from_labels(labels, 4), False)
    for balanced in (False, True):
        Recording.targets.clear()
        training = toy_training(toy_settings(epochs=6, balanced=balanced))
        grader = Recording(training.grader.backbone, 4)
        grader.name = "ce"
        run_training(
            Training(grader, training.settings, 0), rare, split, tmp_path / str(balanced),
            make_accelerator(cpu=True),
        )  # fmt: skip
        share = torch.cat([t.hard for t in Recording.targets]).bincount(minlength=4).float()
        share /= share.sum()
        assert (share[0] < 0.4) == balanced


def test_small_sets_and_odd_batches(tmp_path: Path) -> None:
    train_toy(tmp_path / "few", toy_settings(epochs=1, batch_size=64))
    # 33 images in batches of 32: the odd one joins, a batch of one never happens.
    train_toy(tmp_path / "odd", toy_settings(epochs=1, batch_size=32), train=toy_split(33))
    for run in ("few", "odd"):
        row = json.loads((tmp_path / run / "metrics.jsonl").read_text().splitlines()[-1])
        assert math.isfinite(row["loss"])


def test_a_loss_that_is_not_finite_stops_with_a_cure(tmp_path: Path) -> None:
    with pytest.raises(DisMixError, match=r"'loss' is not finite in epoch .*smaller learning rate"):
        train_toy(tmp_path, toy_settings(lr=1e30, optimizer="sgd"))


def test_grades_that_are_not_finite_are_not_kept(tmp_path: Path) -> None:
    class Broken(CrossEntropyGrader):
        def logits(self, images):
            return super().logits(images) * (1 if self.training else torch.nan)

    training = toy_training(toy_settings(epochs=1, select="last"))
    grader = Broken(training.grader.backbone, 4)
    grader.name = "ce"
    with pytest.raises(DisMixError, match="'val_averaged_mae_expected' is not finite in epoch 1"):
        run_training(
            Training(grader, training.settings, 0), toy_split(), toy_split(20, seed=1), tmp_path,
            make_accelerator(cpu=True),
        )  # fmt: skip
    assert not (tmp_path / "model.safetensors").exists()


def test_the_global_generator_is_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train_toy(tmp_path, toy_settings(epochs=1))
    assert torch.equal(torch.rand(3), expected)


def test_too_few_epochs_for_the_stages() -> None:
    with pytest.raises(DisMixError, match="1 epochs cannot hold the 2 stages all, head"):
        staged(toy_settings(epochs=1))


def test_reference_sets_come_from_clean_training_images(tmp_path: Path) -> None:
    fitted: list[Any] = []

    class Neighbour(CrossEntropyGrader):
        uses_reference = True

        def fit_reference(self, batches, validation=None):
            assert not self.training
            assert not torch.is_grad_enabled()
            images = torch.cat([images for images, _ in batches])
            held = torch.cat([images for images, _ in validation])
            fitted.append((images, len(held)))
            self.reference = {"means": images.mean(dim=(1, 2, 3))}

        def grade(self, images) -> Grades:
            self.require_reference()
            return super().grade(images)

    training = toy_training(toy_settings(epochs=2, select="accuracy,loss"))
    grader = Neighbour(training.grader.backbone, 4)
    grader.name = "ce"
    split = toy_split()
    run_training(
        Training(grader, training.settings, 0), split, toy_split(20, seed=1), tmp_path,
        make_accelerator(cpu=True),
    )  # fmt: skip
    from dismix.data.transforms import to_unit

    assert len(fitted) == 4
    for images, held in fitted:
        assert torch.equal(images, to_unit(split.source))
        assert held == 20


def test_what_one_process_finds_broken_stops_all(tmp_path: Path, monkeypatch) -> None:
    from dismix.graders import training as loop

    monkeypatch.setattr(loop, "agree", torch.ones_like)
    with pytest.raises(DisMixError, match="is not finite in epoch 1"):
        train_toy(tmp_path, toy_settings())
    assert not (tmp_path / "last.safetensors").exists()


def test_a_broken_weight_is_not_saved(tmp_path: Path, monkeypatch) -> None:
    from dismix.graders import training as loop

    plain = loop._Loop.run_epoch

    def spoiled(self, epoch, progress):
        metrics = plain(self, epoch, progress)
        next(self.training.grader.parameters()).data.fill_(float("nan"))
        return metrics

    monkeypatch.setattr(loop._Loop, "run_epoch", spoiled)
    with pytest.raises(DisMixError, match="not finite after epoch 1"):
        train_toy(tmp_path, toy_settings(validate_every=4))
    assert not (tmp_path / "last.safetensors").exists()


@pytest.mark.slow
# Nothing of one process may be lost that others need: a mixer's draws, or the batch statistics of
# an encoder that is frozen later on.
@pytest.mark.parametrize(("what", "port"), [("mixup", 29618), ("rnc", 29619)])
def test_two_processes_go_on_exactly(tmp_path: Path, what: str, port: int) -> None:
    script = str(Path(__file__).parent / "toy.py")
    env = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    launch = ["-m", "torch.distributed.run", "--nproc_per_node=2", f"--master_port={port}"]

    def train(run: str, *words: str) -> None:
        arguments = [script, str(tmp_path / run), what, *words]
        subprocess.run([sys.executable, *launch, *arguments], check=words == (), env=env)

    train("whole")
    train("cut", "stop")
    assert epochs_done(tmp_path / "cut") == 2
    train("cut")
    whole, cut = (load_file(tmp_path / name / "last.safetensors") for name in ("whole", "cut"))
    assert ("module/mixer1/_extra_state" in whole) == (what == "mixup")
    assert all(torch.equal(whole[key], cut[key]) for key in whole)
    one, two = (load_file(tmp_path / "whole" / f"process{i}.safetensors") for i in range(2))
    assert any(name.endswith("running_mean") for name in one)
    assert [name for name in one if not torch.equal(one[name], two[name])] == []


def test_batch_statistics_that_move_are_shared(monkeypatch) -> None:
    from dismix.graders import averaging
    from dismix.graders.plan import set_stage_mode

    grader = toy_training(toy_settings("rnc")).grader
    average = averaging.AveragedState(grader, decay=0.9)
    shared: list[torch.Tensor] = []
    monkeypatch.setattr(averaging, "average", shared.extend)
    encode, head = grader.stages
    set_stage_mode(grader, encode)
    average.share_statistics()
    moving = [b for name, b in grader.named_buffers() if "running_" in name]
    assert len(moving) == 8
    followed = [t for name, t in average.tensors.items() if "running_" in name]
    # The very tensors, so that what is written into them stays.
    assert {id(t) for t in shared} == {id(t) for t in [*moving, *followed]}
    shared.clear()
    set_stage_mode(grader, head)
    average.share_statistics()
    assert shared == []


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    script = str(Path(__file__).parent / "toy.py")
    env = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    subprocess.run([sys.executable, script, str(tmp_path / "one")], check=True, env=env)
    launch = ["-m", "torch.distributed.run", "--nproc_per_node=2", "--master_port=29617"]
    subprocess.run([sys.executable, *launch, script, str(tmp_path / "two")], check=True, env=env)
    texts = [(tmp_path / n / "metrics.jsonl").read_text().splitlines() for n in ("one", "two")]
    losses = [[json.loads(line)["loss"] for line in text] for text in texts]
    # Batch statistics are those of each process's half, so the runs agree roughly only.
    assert losses[1] == pytest.approx(losses[0], rel=0.3)


@pytest.mark.parametrize("method", ["gol", "mwr"])
def test_mixes_are_no_reference(method: str) -> None:
    grader = toy_training(toy_settings(method, **SMALL[method])).grader
    split, seen = toy_split(), []
    mixed = OrdinalTarget(split.target.probs, torch.arange(len(split)) < 24)
    grader.fit_reference = lambda batches, chosen=None: seen.append(  # type: ignore[method-assign]
        sum(len(images) for images, _ in batches)
    )
    fit_reference(grader, replace(split, target=mixed), None)
    weights = (torch.arange(len(split)) % 2).float()
    fit_reference(grader, replace(split, target=mixed), None, weights=weights)
    none = OrdinalTarget(split.target.probs, torch.zeros(len(split), dtype=torch.bool))
    fit_reference(grader, replace(split, target=none), None, weights=weights)
    assert seen == [24, 12, 20]


def test_grading_leaves_frozen_parts_frozen() -> None:
    grader = toy_training(toy_settings()).grader.train()
    grader.backbone.eval()
    grader.predict(torch.zeros(2, 3, 16, 16))
    assert grader.training
    assert not grader.backbone.training


@pytest.mark.parametrize(
    ("method", "changes", "wanted"),
    [
        ("ce", {"epochs": 3.0}, 3),
        ("gol", {"neighbours": 3}, (3,)),
        ("ce", {"batch_size": 16.0}, 16),
    ],
)
def test_numbers_that_are_no_text_become_what_a_setting_is(method, changes, wanted) -> None:
    settings = choose_settings(method, changes=changes)
    ((name, _),) = changes.items()
    found = settings.hparams[name] if name in settings.hparams else getattr(settings, name)
    assert found == wanted
    assert type(found) is type(wanted)


def test_a_part_of_an_epoch_is_refused() -> None:
    with pytest.raises(DisMixError, match=r"'epochs': '2\.5' does not fit; give a whole number"):
        choose_settings("ce", changes={"epochs": 2.5})
