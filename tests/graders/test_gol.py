"""GOL: losses against loops over pairs and points, the sphere, and the neighbours."""

import math

import pytest
import torch
import torch.nn.functional as F

from dismix.errors import DisMixError
from dismix.graders.gol import best_count, rank_spread
from dismix.graders.gol_loss import GOLLoss, enclosing_points, half_circle, make_pairs
from dismix.graders.neighbours import nearest_neighbours
from dismix.graders.registry import create_grader
from dismix.labels import OrdinalTarget


def unit(vector: torch.Tensor) -> torch.Tensor:
    return vector / vector.norm().clamp_min(1e-8)


def slow_order(loss: GOLLoss, embeddings: torch.Tensor, labels: list[int]) -> float:
    """Mean over ordered pairs (base, reference) of different rank."""
    points, terms = loss.reference_points.detach(), []
    last = len(points) - 1
    for base, low_or_high in enumerate(labels):
        for ref, other in enumerate(labels):
            if low_or_high == other:
                continue
            a, b = min(low_or_high, other), max(low_or_high, other)
            move = unit(embeddings[ref] - embeddings[base])
            if low_or_high < other:
                right = unit(points[b] - points[a])
                wrong = points[a - 1] - points[a] if a > 0 else points[0] - points[1]
            else:
                right = unit(points[a] - points[b])
                wrong = points[b + 1] - points[b] if b < last else points[b] - points[b - 1]
            logits = 20 * torch.stack([move @ right, move @ unit(wrong)])
            terms.append(float(F.cross_entropy(logits[None], torch.tensor([0]))))
    return sum(terms) / len(terms)


def slow_metric(loss: GOLLoss, embeddings: torch.Tensor, labels: list[int], tau: float) -> float:
    points, total, pairs = loss.reference_points.detach(), 0.0, 0
    for i in range(len(labels)):
        for j in range(i + 1, len(labels)):
            low, high = (i, j) if labels[i] <= labels[j] else (j, i)
            pairs += 1
            for m, point in enumerate(points):
                d_low = float((point - embeddings[low]).norm())
                d_high = float((point - embeddings[high]).norm())
                if labels[high] - labels[low] > tau:
                    if m <= labels[low]:
                        total += max(0.0, d_low - d_high + 0.25)
                    if m >= labels[high]:
                        total += max(0.0, d_high - d_low + 0.25)
                else:
                    total += max(0.0, abs(d_low - d_high) - (0.25 if tau else 0.0))
    return total / pairs


@pytest.mark.parametrize("tau", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_single_grades_give_the_hard_losses(seed, tau):
    torch.manual_seed(seed)
    labels = torch.randint(5, (8,))
    embeddings = F.normalize(torch.randn(8, 6), dim=-1)
    loss = GOLLoss(5, 6, tau=tau, pairs_per_order=None)
    parts = loss.parts(embeddings, labels)
    points = loss.reference_points.detach()
    centre = sum(float((embeddings[i] - points[y]).norm()) for i, y in enumerate(labels)) / 8
    grades = labels.tolist()
    assert parts["order"].item() == pytest.approx(slow_order(loss, embeddings, grades), rel=1e-4)
    metric = slow_metric(loss, embeddings, grades, tau)
    assert parts["metric"].item() == pytest.approx(metric, rel=1e-4)
    assert parts["centre"].item() == pytest.approx(centre, rel=1e-4)
    total = sum(parts[name].item() for name in ("order", "metric", "centre"))
    assert parts["loss"].item() == pytest.approx(total, rel=1e-5)


def test_pairs_count_as_often_as_the_release_keeps_them():
    """Loss of many similar and few separated pairs, against the mean over kept pairs."""
    torch.manual_seed(0)
    labels, embeddings = torch.tensor([0] * 6 + [2]), F.normalize(torch.randn(7, 4), dim=-1)
    plain, kept = (GOLLoss(3, 4, pairs_per_order=n) for n in (None, 4))
    kept.load_state_dict(plain.state_dict())
    target = OrdinalTarget.from_labels(labels, 3)
    alike = plain.parts(embeddings[:6], target[:6])["metric"].item()
    both = plain.parts(embeddings, target)["metric"].item()
    apart = (both * 21 - alike * 15) / 6
    # 15 similar pairs are kept 4 times, 6 separated ones (both orders, up to 8) all.
    expected = (apart * 6 + alike * 4) / 10
    assert kept.parts(embeddings, target)["metric"].item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("points", [2, 3, 5, 9])
def test_enclosing_points_are_those_of_brute_force(points):
    step = 4 / (points - 1)
    ranks = torch.arange(0, 4.01, 0.1)
    pairs = [(a, b) for a in ranks.tolist() for b in ranks.tolist() if b - a > 0.04]
    low, high = torch.tensor(pairs).T
    below, above = enclosing_points(low, high, step)
    for i, (a, b) in enumerate(pairs):
        assert below[i] == max(m for m in range(points) if m * step <= a + 1e-4)
        assert above[i] == min(m for m in range(points) if m * step >= b - 1e-4)
        assert below[i] < above[i]


@pytest.mark.parametrize("points", [2, 3, 5, 7])
def test_half_circle_spaces_points_monotonically(points):
    found = half_circle(points, 16)
    assert torch.allclose(found.norm(dim=1), torch.ones(points), atol=1e-5)
    apart = torch.cdist(found, found)
    assert (apart[0].diff() > 0).all()
    assert float(apart[0, -1]) == pytest.approx(2.0, abs=1e-5)
    step = 2 * math.sin(math.pi / (points - 1) / 2)
    assert torch.allclose(apart.diagonal(1), torch.full((points - 1,), step), atol=1e-5)


def test_mixes_are_partly_similar_with_a_smaller_margin():
    target = OrdinalTarget.from_rank([1.0, 1.25], 3)
    pairs = make_pairs(target, points=3)
    assert pairs.separated.tolist() == [0.25]
    torch.manual_seed(0)
    loss, embeddings = GOLLoss(3, 4), F.normalize(torch.randn(2, 4), dim=-1)
    points = loss.reference_points.detach()
    low, high = torch.cdist(embeddings, points)
    hinge = (low - high + 0.0625).clamp_min(0)[:2].sum() + (high - low + 0.0625).clamp_min(0)[2]
    expected = 0.25 * hinge + 0.75 * (low - high).abs().sum()
    assert torch.allclose(loss.metric(embeddings, pairs), expected, atol=1e-5)


def test_votes_without_order_make_no_direction():
    target = OrdinalTarget.from_votes(torch.tensor([[0, 4], [2, 2]]), 5)
    pairs = make_pairs(target, points=5)
    assert not pairs.ordered.any()
    loss = GOLLoss(5, 4)
    parts = loss.parts(torch.randn(2, 4), target)
    assert parts["order"].item() == 0.0
    assert parts["metric"].item() == 0.0


def test_mixed_centre_is_between_the_points_and_opposites_are_dropped():
    loss = GOLLoss(5, 8)
    target = OrdinalTarget.from_rank([2.5], 5)
    middle = F.normalize(loss.reference_points[2] + loss.reference_points[3], dim=0)
    assert loss.centre(middle.unsqueeze(0), target, None).item() == pytest.approx(0.0, abs=1e-3)
    opposite = OrdinalTarget.from_votes(torch.tensor([[0, 4]]), 5)
    embedding = torch.randn(1, 8, requires_grad=True)
    found = loss.centre(F.normalize(embedding, dim=-1), opposite, None)
    found.backward()
    assert found.item() == 0.0
    assert torch.isfinite(embedding.grad).all()


def test_order_of_the_batch_does_not_matter():
    target = OrdinalTarget.from_rank(4 * torch.rand(10), 5)
    embeddings, order, loss = torch.randn(10, 6), torch.randperm(10), GOLLoss(5, 6)
    assert torch.allclose(
        loss(embeddings, target), loss(embeddings[order], target[order]), atol=1e-5
    )


def test_neighbours_in_chunks_are_those_of_sorting(monkeypatch):
    monkeypatch.setattr("dismix.graders.neighbours.CHUNK", 7)
    features, reference = torch.randn(5, 4), torch.randn(40, 4)
    expected = torch.cdist(features, reference).argsort(1)[:, :9]
    assert torch.equal(nearest_neighbours(features, reference, 9), expected)
    assert nearest_neighbours(features, reference[:3], 9).shape == (5, 3)


def test_number_of_neighbours_is_chosen_on_validation():
    line = torch.linspace(0, 1, 40).unsqueeze(1)
    probs = F.one_hot((torch.arange(40) // 20), 2).float()
    # One wrong grade beside each validation image misleads a single neighbour only.
    probs[[5, 35]] = probs[[35, 5]]
    seen, votes = line[[5, 35]] + 1e-3, torch.eye(2)
    assert best_count([1, 3], seen, votes, line, probs) == 3
    assert best_count([1, 3, 99], line[:1], votes[:1], line, probs) == 1
    assert rank_spread(torch.tensor([[0.0, 1.0]])).item() == 0.0


def test_reference_holds_votes_and_survives_state_dict():
    grader = create_grader("gol", num_ranks=3, dim=8)
    images = torch.randn(9, 3, 32, 32)
    with pytest.raises(DisMixError, match="fit_reference"):
        grader.predict(images)
    target = OrdinalTarget.from_rank([0.0, 0.5, 1, 1, 1.5, 2, 2, 0, 0], 3)
    grader.eval()
    with torch.no_grad():
        grader.fit_reference([(images[:4], target[:4]), (images[4:], target[4:])])
    grades = grader.predict(images)
    near = torch.cdist(grader.embed(images), grader.embed(images)).argsort(1)[:, :5]
    assert torch.allclose(grades.probabilities, target.probs[near].mean(1), atol=1e-6)
    other = create_grader("gol", num_ranks=3, dim=8, seed=1)
    other.load_state_dict(grader.state_dict())
    assert torch.equal(other.predict(images).probabilities, grades.probabilities)


def test_features_without_sign_are_refused():
    with pytest.raises(DisMixError, match="never negative"):
        create_grader("gol", num_ranks=3, dim=0)
