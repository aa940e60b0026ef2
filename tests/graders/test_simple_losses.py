"""Cross-entropy, OR-CNN, CORAL, CORN and SORD against loops over images and tasks."""

import math

import pytest
import torch

from dismix.graders.coral import CoralHead
from dismix.graders.corn import CornLoss
from dismix.graders.cross_entropy import SoftCrossEntropyLoss
from dismix.graders.grades import grades_from_levels
from dismix.graders.or_cnn import LevelsLoss
from dismix.graders.sord import SordLoss
from dismix.labels import OrdinalTarget
from dismix.laws import monotone_levels

C = 5


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


def softmax(row):
    top = [math.exp(z - max(row)) for z in row]
    return [t / sum(top) for t in top]


def hard_ce(logits, labels):
    return -sum(math.log(softmax(z)[y]) for z, y in zip(logits, labels, strict=True)) / len(labels)


def hard_levels(logits, labels):
    total = 0.0
    for z, y in zip(logits, labels, strict=True):
        for k in range(C - 1):
            total -= math.log(sigmoid(z[k]) if y > k else 1 - sigmoid(z[k]))
    return total / len(labels)


def hard_corn(logits, labels):
    """The authors' form: task k is trained on the images that passed task k-1."""
    total, count = 0.0, 0
    for k in range(C - 1):
        for z, y in zip(logits, labels, strict=True):
            if y > k - 1:
                total -= math.log(sigmoid(z[k]) if y > k else 1 - sigmoid(z[k]))
                count += 1
    return total / count


def hard_sord(logits, labels):
    total = 0.0
    for z, y in zip(logits, labels, strict=True):
        blur = softmax([-2.0 * (y - c) ** 2 for c in range(C)])
        total -= sum(b * math.log(p) for b, p in zip(blur, softmax(z), strict=True))
    return total / len(labels)


CASES = [
    (SoftCrossEntropyLoss(C), hard_ce, C),
    (LevelsLoss(C), hard_levels, C - 1),
    (CornLoss(C), hard_corn, C - 1),
    (SordLoss(C), hard_sord, C),
]
every_loss = pytest.mark.parametrize(
    ("loss", "slow", "width"), CASES, ids=["ce", "levels", "corn", "sord"]
)


def logits_of(width, count=12, seed=0):
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed)) * 2


@every_loss
def test_single_grades_give_the_hard_loss(loss, slow, width):
    logits = logits_of(width)
    labels = [0, 1, 2, 3, 4, 4, 3, 0, 0, 1, 2, 2]
    expected = slow(logits.tolist(), labels)
    assert loss(logits, torch.tensor(labels)).item() == pytest.approx(expected, rel=1e-5)
    one_hot = OrdinalTarget.from_labels(labels, C)
    assert loss(logits, one_hot.probs).item() == pytest.approx(expected, rel=1e-5)
    assert loss(logits, one_hot).item() == pytest.approx(expected, rel=1e-5)


@every_loss
def test_soft_loss_averages_over_annotators(loss, slow, width):
    """Votes {1, 1, 2} are two images of grade 1 and one of grade 2 that look the same."""
    logits = logits_of(width, 1)
    votes = OrdinalTarget.from_votes(torch.tensor([[1, 1, 2]]), C)
    expected = slow(logits.tolist() * 3, [1, 1, 2])
    assert loss(logits, votes).item() == pytest.approx(expected, rel=1e-5)


@every_loss
def test_weights_repeat_images(loss, slow, width):
    logits = logits_of(width, 3)
    labels = [4, 1, 2]
    weighted = loss(logits, torch.tensor(labels), torch.tensor([2.0, 0.0, 1.0]))
    expected = slow([logits[0].tolist()] * 2 + [logits[2].tolist()], [4, 4, 2])
    assert weighted.item() == pytest.approx(expected, rel=1e-5)
    nothing = loss(logits.requires_grad_(), torch.tensor(labels), torch.zeros(3))
    assert nothing.item() == 0
    assert nothing.requires_grad


def test_peers_agree():
    coral = pytest.importorskip("coral_pytorch.losses")
    from coral_pytorch.dataset import levels_from_labelbatch

    labels = torch.tensor([0, 1, 4, 3, 2, 2])
    logits = logits_of(C - 1, 6)
    levels = levels_from_labelbatch(labels, C)
    expected = coral.coral_loss(logits, levels)
    assert LevelsLoss(C)(logits, labels).item() == pytest.approx(float(expected), rel=1e-5)
    expected = coral.corn_loss(logits, labels, C)
    assert CornLoss(C)(logits, labels).item() == pytest.approx(float(expected), rel=1e-5)


def test_levels_that_cross_become_a_law():
    grades = grades_from_levels(torch.tensor([[0.9, 0.3, 0.7, 0.1], [0.2, 0.6, 0.6, 0.6]]))
    # Running minimum: 0.9, 0.3, 0.3, 0.1 and 0.2 four times.
    assert grades.label.tolist() == [1, 0]
    assert grades.rank.tolist() == pytest.approx([1.6, 0.8])
    assert grades.probabilities[0].tolist() == pytest.approx([0.1, 0.6, 0.0, 0.2, 0.1], abs=1e-6)


def test_running_minimum_is_that_of_the_labels():
    levels = torch.rand(50, 4, generator=torch.Generator().manual_seed(1))
    assert torch.equal(grades_from_levels(levels).rank, monotone_levels(levels).sum(-1))


def test_corn_levels_are_products():
    grades = CornLoss(4).grades(torch.tensor([[1.0, 0.0, -1.0]]))
    a, b, c = sigmoid(1.0), 0.5, sigmoid(-1.0)
    law = [1 - a, a - a * b, a * b - a * b * c, a * b * c]
    assert grades.probabilities[0].tolist() == pytest.approx(law, rel=1e-5)


def test_coral_questions_share_one_direction():
    head = CoralHead(6, C)
    features = torch.randn(9, 6)
    gaps = head(features)[:, :-1] - head(features)[:, 1:]
    assert torch.allclose(gaps, gaps[:1].expand_as(gaps), atol=1e-6)
    assert (gaps > 0).all()


def test_autocast_does_not_round_the_labels_of_sord() -> None:
    rng = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(16, 5, generator=rng), torch.arange(16) % 5
    loss = SordLoss(5, alpha=1.0)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = loss(logits, labels)
    torch.testing.assert_close(rounded, loss(logits, labels), rtol=1e-6, atol=1e-6)
