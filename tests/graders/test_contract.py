"""What every registered grader must do, whatever its method."""

import pytest
import torch
from tests.graders.toy import SMALL, toy_settings, toy_split, train_toy

from dismix.errors import DisMixError
from dismix.graders.about import about_images
from dismix.graders.base import Grader
from dismix.graders.evaluation import clean_batches, evaluate
from dismix.graders.export import export_grader
from dismix.graders.registry import GRADERS, create_grader
from dismix.graders.saving import load_grader, save_grader
from dismix.graders.settings import PRESETS, choose_settings
from dismix.labels import OrdinalTarget

METHODS = list(GRADERS)
every_method = pytest.mark.parametrize("name", METHODS)
NOISE = torch.Generator().manual_seed(3)
IMAGES = torch.rand(6, 3, 32, 32, generator=NOISE) * 2 - 1
MIXED = OrdinalTarget.from_rank([0.5, 1.2, 2.3, 2.0, 0.1, 1.9], 4)
BATCHES = {
    "all grades": OrdinalTarget.from_labels([0, 1, 2, 3, 1, 2], 4),
    "one grade": OrdinalTarget.from_labels([2] * 6, 4),
    "two images": OrdinalTarget.from_labels([0, 3], 4),
    "two alike": OrdinalTarget.from_labels([1, 1], 4),
    "all mixed": OrdinalTarget(MIXED.probs, torch.zeros(6, dtype=torch.bool)),
    "far votes": OrdinalTarget.from_votes(torch.tensor([[0, 3], [2, 2], [0, 3]]), 4),
    "missing grades": OrdinalTarget.from_labels([0, 0, 3, 3], 4),
}


def make(name: str, num_ranks: int = 4) -> Grader:
    return create_grader(name, num_ranks=num_ranks, **SMALL.get(name, {}))


def fitted(name: str) -> Grader:
    grader = make(name).eval()
    split = toy_split(24)
    with torch.no_grad():
        grader.fit_reference(
            clean_batches(split, torch.device("cpu"), 8),
            clean_batches(toy_split(12, seed=1), torch.device("cpu"), 8),
        )
    return grader


def losses(grader, images, target, weights=None):
    """The parts of the loss in every stage, from the same draws and dropout."""
    found = []
    grader.train()
    for stage in grader.stages:
        grader.on_stage_start(stage)
        grader.start_epoch(0)
        torch.manual_seed(0)
        shown = images if stage.views == 1 else torch.stack([images, images.flip(-1)], 1)
        found.append(grader.training_loss(shown, target, stage, weights))
    return found


@every_method
def test_unanimous_votes_are_single_grades(name):
    labels = [0, 1, 2, 3, 1, 2]
    votes = OrdinalTarget.from_votes(torch.tensor([[y] * 5 for y in labels]), 4)
    hard = losses(make(name), IMAGES, BATCHES["all grades"])
    soft = losses(make(name), IMAGES, votes)
    for one, other in zip(hard, soft, strict=True):
        assert one.keys() == other.keys()
        assert one["loss"].item() == pytest.approx(other["loss"].item(), rel=1e-6)


@pytest.mark.parametrize("batch", list(BATCHES))
@every_method
def test_no_batch_breaks_the_loss(name, batch):
    grader, target = make(name), BATCHES[batch]
    for parts in losses(grader, IMAGES[: len(target)], target):
        assert parts["loss"].ndim == 0
        assert parts["loss"].dtype == torch.float32
        assert parts["loss"].requires_grad
        grader.zero_grad()
        parts["loss"].backward()
        assert all(torch.isfinite(value).all() for value in parts.values())
        assert all(torch.isfinite(p.grad).all() for p in grader.parameters() if p.grad is not None)


@every_method
def test_labels_and_laws_are_targets_too(name):
    target = BATCHES["all grades"]
    wanted = losses(make(name), IMAGES, target)
    for given in (target.hard, target.probs):
        for one, other in zip(wanted, losses(make(name), IMAGES, given), strict=True):
            assert torch.equal(one["loss"], other["loss"])
    with pytest.raises(DisMixError, match="there are 6 images and 5 targets"):
        losses(make(name), IMAGES, target[:5])
    with pytest.raises(DisMixError, match=r"label 7 is outside 0\.\.3"):
        losses(make(name), IMAGES, torch.tensor([0, 1, 2, 3, 1, 7]))
    for wrong in (torch.ones(6, 1), torch.ones(1), -torch.ones(6)):
        with pytest.raises(DisMixError, match=r"weights must be \(B,\), not negative"):
            losses(make(name), IMAGES, target, wrong)


@every_method
def test_weights_reach_the_loss(name):
    target = BATCHES["all grades"]
    plain = losses(make(name), IMAGES, target)
    ones = losses(make(name), IMAGES, target, torch.ones(6))
    uneven = losses(make(name), IMAGES, target, torch.tensor([5.0, 0.1, 2.0, 0.3, 1.0, 4.0]))
    for a, b in zip(plain, ones, strict=True):
        assert a["loss"].item() == pytest.approx(b["loss"].item(), rel=1e-5)
    assert any(
        abs(a["loss"].item() - c["loss"].item()) > 1e-6 for a, c in zip(plain, uneven, strict=True)
    )


@every_method
def test_an_image_of_weight_zero_teaches_nobody(name):
    labels = [0, 1, 2, 3, 1, 2]
    weights = torch.tensor([0.0, 1.0, 2.0, 0.5, 1.0, 1.0])
    found = [
        losses(make(name), IMAGES, OrdinalTarget.from_labels([first, *labels[1:]], 4), weights)
        for first in (0, 3)
    ]
    for one, other in zip(*found, strict=True):
        assert one["loss"].item() == pytest.approx(other["loss"].item(), rel=1e-6)
    for parts in losses(make(name), IMAGES, BATCHES["all grades"], torch.zeros(6)):
        parts["loss"].backward()
        assert parts["loss"].item() == pytest.approx(0.0, abs=1e-6)


@every_method
def test_bfloat16_autocast_keeps_losses_in_float32(name):
    with torch.autocast("cpu", torch.bfloat16):
        for parts in losses(make(name), IMAGES, BATCHES["all grades"]):
            assert parts["loss"].dtype == torch.float32
            assert torch.isfinite(parts["loss"])


@every_method
def test_grades_are_laws_and_repeatable(name):
    grader = fitted(name).train()
    grades = grader.predict(IMAGES)
    assert grader.training
    assert grades.probabilities.shape == (6, 4)
    assert torch.allclose(grades.probabilities.sum(1), torch.ones(6), atol=1e-5)
    assert grades.probabilities.min() >= 0
    assert grades.rank.shape == grades.label.shape == (6,)
    assert grades.label.dtype == torch.long
    assert 0 <= int(grades.label.min()) <= int(grades.label.max()) <= 3
    assert not grades.rank.requires_grad
    again = grader.predict(IMAGES)
    assert torch.equal(grades.probabilities, again.probabilities)
    # One image alone gets what it gets in company.
    alone = grader.predict(IMAGES[:1])
    assert torch.allclose(alone.rank, grades.rank[:1], atol=1e-4)
    assert grader.predict(IMAGES[:, :1]).rank.shape == (6,)
    pixels = ((IMAGES + 1) * 127.5).round().to(torch.uint8)
    assert torch.allclose(grader.predict(pixels).rank, grades.rank, atol=0.1)


@every_method
def test_state_and_file_round_trips(name, tmp_path):
    grader = fitted(name)
    expected = grader.predict(IMAGES)
    other = make(name)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1)
    other.load_state_dict(grader.state_dict())
    assert torch.equal(other.predict(IMAGES).probabilities, expected.probabilities)
    grader.about = about_images(["a", "b", "c", "d"], 32)
    save_grader(grader, tmp_path)
    loaded = Grader.load(tmp_path)
    assert torch.equal(loaded.predict(IMAGES).probabilities, expected.probabilities)
    assert loaded.about == grader.about
    assert loaded.name == name
    assert loaded.config == grader.config


@every_method
def test_reference_is_asked_for_by_name(name):
    grader = make(name)
    if grader.uses_reference:
        with pytest.raises(DisMixError, match=f"'{name}' has no reference images yet"):
            grader.predict(IMAGES)
    else:
        grader.predict(IMAGES)


@every_method
def test_presets_are_complete(name):
    for preset in PRESETS:
        settings = choose_settings(name, preset)
        config = GRADERS[name].make.config_type(**settings.hparams)
        assert config is not None
    common = choose_settings(name, "dismix")
    assert (common.optimizer, common.epochs, common.batch_size) == ("adam", 200, 64)
    assert GRADERS[name].summary


@every_method
def test_two_and_seven_ranks(name):
    for ranks in (2, 7):
        grader = make(name, ranks)
        target = OrdinalTarget.from_labels([i % ranks for i in range(6)], ranks)
        assert all(torch.isfinite(p["loss"]) for p in losses(grader, IMAGES, target))


@every_method
def test_forty_ordered_images_are_learned(name, tmp_path):
    # POE reads noisy samples and rounds a mean, which takes longer to settle.
    epochs = 100 if name == "poe" else 40
    settings = toy_settings(
        name, epochs=epochs, batch_size=20, validate_every=epochs, select="last", augment=False,
        **SMALL.get(name, {}),
    )  # fmt: skip
    train_toy(tmp_path, settings)
    grader = load_grader(tmp_path)
    assert evaluate(grader, toy_split())["accuracy"] > 0.95


@pytest.mark.slow
@every_method
def test_exports_equal_the_model(name, tmp_path):
    grader = fitted(name)
    grader.about = about_images(["a", "b", "c", "d"], 32)
    if not grader.exportable:
        with pytest.raises(DisMixError, match="cannot be exported"):
            export_grader(grader, tmp_path / "model.pt2")
        return
    assert export_grader(grader, tmp_path / "model.pt2") <= 1e-4
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    assert export_grader(grader, tmp_path / "model.onnx") <= 1e-4


def test_unknown_methods_and_settings_offer_near_names():
    with pytest.raises(DisMixError, match=r"unknown grader 'corel'; did you mean 'coral'"):
        create_grader("corel", num_ranks=3)
    with pytest.raises(DisMixError, match=r"unknown setting 'droput'; did you mean 'dropout'"):
        create_grader("ce", num_ranks=3, droput=0.1)
    with pytest.raises(DisMixError, match="unknown preset 'paper'"):
        choose_settings("ce", "paper")
