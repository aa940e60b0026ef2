"""POE: the loss against loops, its triplets, and predictions that depend on the image alone."""

import math

import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence

from dismix.graders.poe_loss import Gaussians, POELoss, choose_triplets, j_divergence
from dismix.graders.registry import create_grader
from dismix.labels import OrdinalTarget


def gaussians(count: int, dim: int = 6, seed: int = 0) -> Gaussians:
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randn(2, count, dim, generator=generator)
    return Gaussians(draw[0], 0.5 * draw[1])


def as_distribution(given: Gaussians, row: int) -> Independent:
    return Independent(Normal(given.mean[row], (0.5 * given.log_variance[row]).exp()), 1)


def slow_order_loss(given: Gaussians, labels: list[int], margin: float) -> float:
    """The release's triplets by loops, for single grades."""
    count, terms = len(labels), []

    def apart(i: int, j: int) -> float:
        a, b = as_distribution(given, i), as_distribution(given, j)
        return float(kl_divergence(a, b) + kl_divergence(b, a))

    for i in range(count):
        j = (i + 1) % count
        near = abs(labels[i] - labels[j])
        options = [
            (abs(abs(labels[i] - labels[k]) - near), k)
            for k in range(count)
            if k != i and abs(labels[i] - labels[k]) != near
        ]
        if not options:
            continue
        k = min(options)[1]
        sign = math.copysign(1, near - abs(labels[i] - labels[k]))
        term = sign * (apart(i, k) - apart(i, j)) + margin
        if term > 0:
            terms.append(term)
    return sum(terms) / len(terms) if terms else 0.0


def test_j_divergence_is_that_of_torch_distributions():
    given = gaussians(2)
    a, b = as_distribution(given, 0), as_distribution(given, 1)
    expected = kl_divergence(a, b) + kl_divergence(b, a)
    found = j_divergence(given[torch.tensor([0])], given[torch.tensor([1])])
    assert torch.allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_soft_loss_on_single_grades_is_the_hard_one(seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(5, (9,), generator=generator)
    given, logits = gaussians(9, seed=seed), torch.randn(4, 9, 5, generator=generator)
    loss = POELoss(5, alpha=0.1, beta=0.2)
    parts = loss.parts(logits, given, labels)
    task = -sum(logits[t, b].log_softmax(0)[labels[b]] for t in range(4) for b in range(9)) / 36
    normal = (
        sum(float(kl_divergence(as_distribution(given, b), _standard(6))) for b in range(9)) / 9
    )
    order = slow_order_loss(given, labels.tolist(), 5.0)
    assert float(parts["task"]) == pytest.approx(float(task), rel=1e-5)
    assert float(parts["normal"]) == pytest.approx(normal, rel=1e-5)
    assert float(parts["order"]) == pytest.approx(order, rel=1e-4)
    assert float(parts["loss"]) == pytest.approx(float(task) + 0.1 * normal + 0.2 * order, rel=1e-4)


def _standard(dim: int) -> Independent:
    return Independent(Normal(torch.zeros(dim), torch.ones(dim)), 1)


def test_nearly_equal_mixes_make_no_triplet():
    target = OrdinalTarget.from_rank([1.0, 1.5, 1.51, 1.49], num_ranks=5)
    assert choose_triplets(target).sign.tolist()[0] == 0
    assert choose_triplets(target, min_gap=0.0).sign.abs().sum() > 0


def test_cyclic_shift_of_the_batch_changes_nothing():
    # Ranks without equal differences, which the batch's order would decide between.
    given, shift = gaussians(6), torch.arange(6).roll(2)
    target = OrdinalTarget.from_rank([0.0, 6.3, 1.0, 13.1, 3.7, 10.9], 15)
    loss = POELoss(15)
    assert torch.allclose(loss.order(given, target), loss.order(given[shift], target[shift]))


def test_large_log_variance_stays_finite_in_half_precision():
    mean = torch.randn(4, 6, requires_grad=True)
    spread = torch.full((4, 6), 90.0, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = POELoss(3)(torch.zeros(4, 3), Gaussians(mean, spread), torch.tensor([0, 1, 2, 0]))
    loss.backward()
    assert loss.dtype == torch.float32
    assert torch.isfinite(loss)
    assert torch.isfinite(mean.grad).all()


@torch.no_grad()
def test_grades_are_the_mean_over_draws_of_the_gaussians():
    grader = create_grader("poe", backbone="tiny", num_ranks=4, seed=0, dim=8, samples=5).eval()
    # Deviations far from 1, where they are not the variances.
    grader.norm.running_var.fill_(0.1)
    images = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(1)) * 2 - 1
    given = grader.embed(images)
    found = grader.predict(images)
    for row in range(3):
        own = as_distribution(given, row).base_dist
        laws = [grader.head(own.mean + own.stddev * noise).softmax(-1) for noise in grader.noise]
        torch.testing.assert_close(found.probabilities[row], torch.cat(laws).mean(0))
        harmonic = 1 / (1 / own.variance).mean()
        torch.testing.assert_close(found.uncertainty[row], harmonic)


def test_grades_depend_on_the_image_alone():
    grader = create_grader("poe", num_ranks=4, dim=16, samples=8)
    images = torch.rand(5, 3, 32, 32) * 2 - 1
    together, alone = grader.predict(images), grader.predict(images[3:4])
    assert torch.allclose(together.probabilities[3:4], alone.probabilities, atol=1e-6)
    assert torch.equal(together.probabilities, grader.predict(images).probabilities)
    variance = torch.exp(grader.eval().embed(images).log_variance).double().detach()
    harmonic = torch.tensor([1 / (1 / row).mean() for row in variance])
    assert torch.allclose(together.uncertainty.double(), harmonic, rtol=1e-4)
