"""Rules that choose checkpoints, settings from text, balanced sampling."""

from dataclasses import replace

import pytest
import torch
from tests.graders.toy import toy_settings, toy_split, toy_training

from dismix.errors import DisMixError
from dismix.graders.averaging import AveragedState
from dismix.graders.base import Stage
from dismix.graders.evaluation import evaluate
from dismix.graders.plan import has_prefix, learning_rate, stage_ends
from dismix.graders.registry import create_grader
from dismix.graders.sampling import balanced_rows
from dismix.graders.selection import MEMORY, Selector
from dismix.graders.settings import TrainSettings, choose_settings
from dismix.graders.validation import validate
from dismix.labels import OrdinalTarget


def scores(*rows):
    return [dict(zip(("accuracy", "mae", "loss"), row, strict=True)) for row in rows]


def chosen(rule, history):
    selector = Selector(rule)
    for epoch, row in enumerate(history, 1):
        selector.update(row, epoch)
    return selector.epoch


def test_accuracy_breaks_ties_by_mae_then_loss():
    assert chosen("accuracy", scores((0.5, 0.6, 0.3), (0.5, 0.6, 0.2), (0.5, 0.7, 0.1))) == 2
    assert chosen("accuracy", scores((0.5, 0.6, 0.3), (0.6, 0.9, 0.9), (0.6, 0.9, 0.9))) == 2


def test_loss_and_last():
    history = scores((0.9, 0.1, 0.5), (0.1, 0.9, 0.1), (0.5, 0.5, 0.3))
    assert chosen("loss", history) == 2
    assert chosen("last", history) == 3


def test_smoothed_ignores_a_lucky_epoch():
    calm = [0.50, 0.52, 0.80, 0.53, 0.56, 0.60, 0.62, 0.63, 0.63, 0.63, 0.63, 0.63]
    history = scores(*((a, 1 - a, 1 - a) for a in calm))
    assert chosen("accuracy", history) == 3
    mean, best = calm[0], (calm[0], 1)
    for epoch, value in enumerate(calm[1:], 2):
        mean = MEMORY * mean + (1 - MEMORY) * value
        best = max(best, (mean, epoch))
    assert chosen("smoothed", history) == best[1] == 12


def test_selectors_survive_a_pause():
    history = scores((0.5, 0.6, 0.3), (0.4, 0.6, 0.2), (0.45, 0.7, 0.1), (0.6, 0.7, 0.1))
    for rule in ("accuracy", "smoothed", "loss", "last"):
        first, second = Selector(rule), Selector(rule)
        for epoch, row in enumerate(history[:2], 1):
            first.update(row, epoch)
        second.restore(first.state())
        for epoch, row in enumerate(history[2:], 3):
            second.update(row, epoch)
        assert second.epoch == chosen(rule, history)


def test_rules_by_wrong_names():
    with pytest.raises(DisMixError, match=r"unknown rule 'acuracy'; did you mean 'accuracy'"):
        TrainSettings("ce", select=("acuracy",))


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"epochs": "many"}, "setting 'epochs': 'many' does not fit; give a whole number"),
     ({"lr": "-1"}, "setting 'lr': -1.0 is out of bounds; give numbers > 0"),
     ({"epochs": 0}, "setting 'epochs': 0 is out of bounds; give numbers >= 1"),
     ({"rank_weights": "a,b"}, "numbers with commas between or balanced"),
     ({"rank_weights": "-1,1"}, "setting 'rank_weights'.* are no weights; give numbers that"),
     ({"rank_weights": "0,0"}, "some above 0"), ({"rank_weights": "nan,1"}, "are no weights"),
     ({"clip": "-1"}, "setting 'clip': -1.0 is out of bounds"), ({"average": 2}, ">= 0 and <= 1"),
     ({"dropout": "1.5"}, "setting 'dropout': 1.5 is out of bounds; give numbers >= 0 and < 1"),
     ({"augment": "maybe"}, "true or false"), ({"schedule": "cosin"}, "cosine or constant"),
     ({"momentum": "0.9"}, "unknown setting 'momentum' of 'ce'")],
)  # fmt: skip
def test_settings_that_do_not_fit_are_named(changes, words):
    with pytest.raises(DisMixError, match=words):
        create_grader("ce", num_ranks=2, **choose_settings("ce", changes=changes).hparams)


def test_settings_from_text():
    found = choose_settings(
        "sord", changes={"rank_weights": "1, 2,3", "augment": "no", "alpha": "1.5",
                         "select": "loss,last", "lr": "1e-3", "metric": "absolute"},
    )  # fmt: skip
    assert found.rank_weights == (1.0, 2.0, 3.0)
    assert found.augment is False
    assert found.hparams == {"alpha": 1.5, "metric": "absolute"}
    assert found.select == ("loss", "last")


def test_stage_ends_leave_an_epoch_for_everyone():
    shares = (Stage("a", 0.01), Stage("b", 0.98), Stage("c", 0.01))
    for epochs in range(3, 40):
        ends = stage_ends(shares, epochs)
        assert ends[-1] == epochs
        assert all(b > a for a, b in zip([0, *ends], ends, strict=False))


def test_prefixes_end_at_dots():
    assert has_prefix("margins", ("margins",))
    assert not has_prefix("margins_old", ("margins",))
    assert has_prefix("anything.weight", ("",))


def test_schedules():
    stage = Stage("fit", 1.0)
    step = TrainSettings("ce", lr=1.0, schedule="step")
    assert [learning_rate(step, stage, s) for s in (0.0, 0.59, 0.6)] == [1.0, 1.0, 0.1]
    cosine = TrainSettings("ce", lr=1.0, final_lr=0.1)
    assert learning_rate(cosine, stage, 1.0) == pytest.approx(0.1)
    assert learning_rate(TrainSettings("ce", lr=0.5, schedule="constant"), stage, 0.9) == 0.5


def test_balanced_rows_repeat_for_the_same_epoch():
    target = OrdinalTarget.from_labels([0] * 900 + [1] * 90 + [2] * 10, 3)
    rows = balanced_rows(target, 0, 4)
    assert torch.equal(rows, balanced_rows(target, 0, 4))
    assert not torch.equal(rows, balanced_rows(target, 0, 5))
    share = target.hard[rows].bincount(minlength=3) / 1000
    assert (share - 1 / 3).abs().max() < 0.06


def test_averages_hold_batch_statistics_too():
    layer = torch.nn.BatchNorm1d(2)
    average = AveragedState(layer, decay=0.5)
    layer(torch.randn(8, 2) * 3 + 5)
    seen = layer.running_mean.clone()
    average.update()
    # The first update keeps a tenth of the old value, zero.
    assert torch.allclose(average.tensors["running_mean"], 0.9 * seen)
    with average.applied():
        assert torch.allclose(layer.running_mean, 0.9 * seen)
        assert not layer.training
    assert torch.equal(layer.running_mean, seen)
    assert layer.training


def test_what_was_best_stays_what_it_was_while_training_goes_on() -> None:
    training = toy_training(toy_settings(select="accuracy,loss"))
    average = AveragedState(training.grader, 0.5)
    validate(training, average, toy_split(), toy_split(20, seed=1))
    kept = {
        rule: {name: tensor.clone() for name, tensor in state.items()}
        for rule, state in training.best.items()
    }
    assert set(kept) == {"accuracy", "loss"}
    with torch.no_grad():
        for parameter in training.grader.parameters():
            parameter.add_(1.0)
    average.update()
    for rule, state in training.best.items():
        assert all(torch.equal(tensor, kept[rule][name]) for name, tensor in state.items())


def test_the_loss_of_validation_is_against_the_votes() -> None:
    grader = create_grader("ce", backbone="tiny", num_ranks=4, seed=0).eval()
    split = toy_split(6)
    votes = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))
    split = replace(split, target=OrdinalTarget.from_probs(votes / votes.sum(1, keepdim=True)))
    said = grader.predict(split.images(torch.arange(6), "cpu")).probabilities
    slow = 0.0
    for law, wanted in zip(said.tolist(), split.target.probs.tolist(), strict=True):
        slow += sum((sum(law[: k + 1]) - sum(wanted[: k + 1])) ** 2 for k in range(3)) / 6
    assert evaluate(grader, split)["loss"] == pytest.approx(slow, rel=1e-5)
