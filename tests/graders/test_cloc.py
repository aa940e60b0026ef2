"""CLOC: the multi-margin loss against loops, its margins, its stages."""

import pytest
import torch
import torch.nn.functional as F

from dismix.graders.cloc_loss import CLOCLoss, default_margins
from dismix.graders.plan import begin_stage, learning_rate, set_learning_rate
from dismix.graders.registry import create_grader
from dismix.graders.settings import TrainSettings
from dismix.labels import OrdinalTarget


def slow_loss(
    features: torch.Tensor, labels: list[int], margins: list[float], reference: bool = False
) -> float:
    """Mean over negatives, positives and anchors, by loops; or the release's division."""
    place = [sum(margins[:y]) for y in range(len(margins) + 1)]
    count, anchors = len(labels), []
    for i in range(count):
        positives = [p for p in range(count) if p != i and labels[p] == labels[i]]
        negatives = [k for k in range(count) if labels[k] != labels[i]]
        total = 0.0
        for p in positives:
            hinges = []
            for k in negatives:
                near = float(F.cosine_similarity(features[i], features[p], dim=0))
                far = float(F.cosine_similarity(features[i], features[k], dim=0))
                hinges.append(max(0.0, far - near + abs(place[labels[i]] - place[labels[k]])))
            total += sum(hinges) / len(hinges) if hinges else 0.0
        pairs = len(positives) * (len(negatives) if reference else 1)
        anchors.append(total / pairs if pairs else 0.0)
    return sum(anchors) / count


@pytest.mark.parametrize("reduction", ["mean", "reference"])
@pytest.mark.parametrize("seed", range(3))
def test_single_grades_give_the_hard_loss(seed, reduction):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (9,), generator=generator)
    features, margins = torch.randn(9, 5, generator=generator), [0.3, 0.7, 0.2]
    found = CLOCLoss(4, margins, reduction=reduction)(features, labels)
    expected = slow_loss(features, labels.tolist(), margins, reduction == "reference")
    assert found.item() == pytest.approx(expected, rel=1e-4)


def test_votes_share_out_pairs_and_margins():
    """Three images, votes {0}, {0, 1}, {1}: the soft form written out."""
    features = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    target = OrdinalTarget.from_votes(torch.tensor([[0, 0], [0, 1], [1, 1]]), 2)
    near, far, margin = 0.8, 0.6, 0.5
    # Anchor 0: positive 1 (half), negatives 1 (half) and 2 (whole, margin 0.5, 0.25 less).
    first = 0.5 * max(0.0, 0.0 - near + margin - margin / 2) / (0.5 * 0.5 + 0.5)
    # Anchor 1: both others half positive and half negative, at the same margin.
    second = 0.25 * max(0.0, far - near) + 0.25 * max(0.0, near - far)
    third = 0.5 * max(0.0, 0.0 - far + margin - margin / 2) / (0.5 * 0.5 + 0.5)
    found = CLOCLoss(2, [margin])(features, target)
    assert found.item() == pytest.approx((first + second + third) / 3, abs=1e-6)


def test_order_of_the_batch_does_not_matter():
    target = OrdinalTarget.from_rank(4 * torch.rand(10), 5)
    features, order = torch.randn(10, 3), torch.randperm(10)
    loss = CLOCLoss(5)
    assert torch.allclose(loss(features, target), loss(features[order], target[order]), atol=1e-6)


def test_single_grades_can_only_shrink_margins():
    loss = CLOCLoss(4)
    loss(torch.randn(12, 3), torch.arange(12) % 4).backward()
    assert (loss.raw_margins.grad >= 0).all()
    assert (loss.raw_margins.grad > 0).any()


def test_fixed_margins_get_no_gradient():
    loss, features = CLOCLoss(4), torch.randn(12, 3, requires_grad=True)
    loss.fix_margins()
    loss(features, torch.arange(12) % 4).backward()
    assert loss.raw_margins.grad is None
    assert features.grad.abs().sum() > 0


def test_margins_start_as_given_and_never_vanish():
    assert torch.allclose(CLOCLoss(3, [0.3, 0.9]).margins, torch.tensor([0.3, 0.9]), atol=1e-6)
    loss = CLOCLoss(3)
    torch.nn.init.constant_(loss.raw_margins, -50.0)
    assert (loss.margins >= 0.05).all()
    assert sum(default_margins(12)) <= 1.6 + 1e-6


def test_hard_contrast_leaves_mixed_images_out():
    target = OrdinalTarget.from_labels([0, 0, 2, 2, 1], 3)
    mixed = OrdinalTarget(target.probs, torch.tensor([True] * 4 + [False]))
    features = torch.randn(5, 4)
    loss = CLOCLoss(3, hard_contrast=True)
    assert torch.allclose(loss(features, mixed), loss(features[:4], target[:4]), atol=1e-6)


def test_stages_learn_then_fix_the_margins():
    grader = create_grader("cloc", num_ranks=3)
    images, target = torch.randn(6, 3, 32, 32), OrdinalTarget.from_labels([0, 0, 1, 1, 2, 2], 3)
    names = [name for name, _ in grader.named_parameters() if "margin" in name]
    joint, fixed = grader.stages
    assert joint.share + fixed.share == pytest.approx(1.0)
    assert all(name.startswith(tuple(joint.travel)) for name in names)
    assert not any(name.startswith(fixed.trainable) for name in names)
    for stage, learns in ((joint, True), (fixed, False)):
        grader.on_stage_start(stage)
        grader.zero_grad(set_to_none=True)
        grader.training_loss(images, target, stage)["loss"].backward()
        assert (grader.contrast.raw_margins.grad is not None) == learns


@pytest.mark.parametrize(("steps", "lr"), [(50, 1e-4), (2000, 1e-4), (50, 3e-3)])
@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_margins_go_equally_far_in_few_steps_and_in_many(steps, lr, schedule):
    grader = create_grader("cloc", num_ranks=3)
    stage = grader.stages[0]
    settings = TrainSettings("cloc", lr=lr, schedule=schedule)
    optimizer = begin_stage(grader, stage, settings, steps)
    start = grader.contrast.raw_margins.detach().clone()
    for step in range(steps):
        set_learning_rate(optimizer, learning_rate(settings, stage, step / steps))
        grader.contrast.raw_margins.grad = torch.ones(2)
        optimizer.step()
    moved = start - grader.contrast.raw_margins.detach()
    assert torch.allclose(moved, torch.full((2,), 1.25), atol=0.05)
    assert 0.14 < float(grader.margins[0]) < 0.18
    rates = {group["scale"] for group in optimizer.param_groups}
    assert 1.0 in rates
    assert len(rates) == 2


def test_the_contrast_has_its_weight():
    grader = create_grader("cloc", backbone="tiny", num_ranks=3, seed=0, weight=0.3)
    images = torch.rand(6, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    target = OrdinalTarget.from_labels([0, 0, 1, 1, 2, 2], 3)
    parts = grader.training_loss(images, target, grader.stages[0])
    assert parts["contrast"] > 0
    torch.testing.assert_close(parts["loss"], parts["task"] + 0.3 * parts["contrast"])
