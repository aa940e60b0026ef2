"""Rank-N-Contrast: the sorted form against the release's loop; two stages."""

import math

import pytest
import torch

from dismix.graders.registry import create_grader
from dismix.graders.rnc_loss import RnCLoss
from dismix.labels import OrdinalTarget


def slow_loss(features: torch.Tensor, vectors: list[list[float]], temperature: float) -> float:
    """The release's formula with label vectors compared in L1, by loops in double precision."""
    rows, count = features.double().tolist(), len(features)
    near = [[-math.dist(a, b) / temperature for b in rows] for a in rows]
    far = [[sum(abs(p - q) for p, q in zip(a, b, strict=True)) for b in vectors] for a in vectors]
    total = 0.0
    for i in range(count):
        for j in range(count):
            if i != j:
                rivals = [k for k in range(count) if k != i and far[i][k] >= far[i][j] - 1e-6]
                total += math.log(sum(math.exp(near[i][k]) for k in rivals)) - near[i][j]
    return total / (count * (count - 1))


@pytest.mark.parametrize("seed", range(4))
def test_hard_labels_give_the_release_loss(seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(5, (10,), generator=generator)
    features = torch.randn(10, 4, generator=generator)
    found = RnCLoss(5)(features, labels)
    # With one number a label, as in the release.
    expected = slow_loss(features, [[float(y)] for y in labels], 2.0)
    assert float(found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_votes_give_the_release_loss_on_levels(seed):
    generator = torch.Generator().manual_seed(seed)
    votes = torch.randint(4, (9, 3), generator=generator)
    target = OrdinalTarget.from_votes(votes, 4)
    features = torch.randn(9, 4, generator=generator)
    found = RnCLoss(4, temperature=0.5)(features, target)
    exact = [[sum(k < v for v in row) / 3 for k in range(3)] for row in votes.tolist()]
    assert float(found) == pytest.approx(slow_loss(features, exact, 0.5), rel=1e-5)


def test_order_of_the_batch_does_not_matter():
    generator = torch.Generator().manual_seed(0)
    target = OrdinalTarget.from_rank(4 * torch.rand(12, generator=generator), 5)
    features, order = torch.randn(12, 3, generator=generator), torch.randperm(12)
    loss = RnCLoss(5)
    assert torch.allclose(loss(features, target), loss(features[order], target[order]), atol=1e-6)


def test_far_features_neither_overflow_nor_vanish():
    features = torch.tensor([[0.0], [1.0], [1e5]], requires_grad=True)
    loss = RnCLoss(3)(features, torch.tensor([0, 1, 1]))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(features.grad).all()
    assert features.grad.abs().sum() > 0


def test_grid_makes_small_differences_ties():
    features = torch.tensor([[0.0], [1.0], [2.0]])
    near, same = (OrdinalTarget.from_rank([0.0, r, 1.0], 3) for r in (0.96, 1.0))
    assert torch.equal(RnCLoss(3, min_gap=0.25)(features, near), RnCLoss(3)(features, same))
    assert not torch.equal(RnCLoss(3)(features, near), RnCLoss(3)(features, same))


def test_weights_are_those_of_the_anchors():
    features, labels = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([0, 1, 2])
    loss = RnCLoss(3)
    # As little as there is: without any weight an image is nobody's neighbour either.
    shares = torch.eye(3).clamp_min(1e-9)
    rows = [float(loss(features, labels, shares[i])) for i in range(3)]
    assert sum(rows) / 3 == pytest.approx(float(loss(features, labels)), rel=1e-6)
    mixed = float(loss(features, labels, torch.tensor([1.0, 2.0, 1e-9])))
    assert mixed == pytest.approx((rows[0] + 2 * rows[1]) / 3, rel=1e-6)
    alone = float(loss(features[:2], labels[:2], torch.tensor([1.0, 2.0])))
    assert float(loss(features, labels, torch.tensor([1.0, 2.0, 0.0]))) == pytest.approx(alone)


@pytest.mark.parametrize("head", ["regression", "classification"])
def test_stages_train_the_encoder_then_the_head(head):
    grader = create_grader("rnc", num_ranks=5, head=head)
    encode, last = grader.stages
    target = OrdinalTarget.from_rank([0.0, 1.5, 4.0], 5)
    grader.training_loss(torch.randn(3, 2, 3, 32, 32), target, encode)["loss"].backward()
    assert next(grader.backbone.parameters()).grad is not None
    assert grader.head.weight.grad is None
    grader.zero_grad()
    grader.training_loss(torch.randn(3, 3, 32, 32), target, last)["loss"].backward()
    assert next(grader.backbone.parameters()).grad is None
    assert grader.head.weight.grad.abs().sum() > 0


def test_regression_gives_the_law_around_its_rank():
    grader = create_grader("rnc", num_ranks=5)
    torch.nn.init.zeros_(grader.head.weight)
    torch.nn.init.constant_(grader.head.bias, 2.75)
    grades = grader.predict(torch.zeros(1, 3, 32, 32))
    assert grades.probabilities.tolist() == [[0.0, 0.0, 0.25, 0.75, 0.0]]
    assert grades.rank.tolist() == [2.75]
    assert grades.label.tolist() == [3]


@torch.no_grad()
def test_the_regression_learns_the_mean_of_the_votes():
    grader = create_grader("rnc", backbone="tiny", num_ranks=4, seed=0).eval()
    images = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    said = grader.head(grader.backbone(images)).flatten().tolist()
    wanted = [1.5, 0.25]
    loss = grader.training_loss(images, OrdinalTarget.from_rank(wanted, 4), grader.stages[1])
    assert float(loss["loss"]) == pytest.approx(
        sum(abs(a - b) for a, b in zip(said, wanted, strict=True)) / 2, rel=1e-5
    )
