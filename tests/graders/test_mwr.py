"""MWR: places in windows, triplets, the search with an oracle, and reference pairs."""

import pytest
import torch
from torch import nn

from dismix.graders.mwr_loss import (
    MWRLoss,
    Windows,
    absolute_rank,
    draw_triplets,
    relative_rank,
)
from dismix.graders.mwr_search import choose_pairs, search
from dismix.graders.registry import create_grader
from dismix.labels import OrdinalTarget


class Oracle(nn.Module):
    """Features are ranks: the first coordinate of each image is its position."""

    def forward(self, low, high, image):
        middle, half = (low + high) / 2, (high - low) / 2
        return ((image - middle) / half).clamp(-1, 1)[:, 0]


class Weak(nn.Module):
    """Depends on all three images, with a weight to learn."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.3, -0.2, 0.5]))

    def forward(self, low, high, image):
        return torch.tanh(torch.stack([low[:, 0], high[:, 0], image[:, 0]], 1) @ self.weight)


@pytest.mark.parametrize("num_ranks", range(2, 9))
def test_every_window_holds_a_rank_and_all_ranks_are_covered(num_ranks):
    windows = Windows.of(num_ranks)
    low, high = windows.low.tolist(), windows.high.tolist()
    assert low[0] == 0
    assert high[-1] == num_ranks - 1
    if num_ranks > 2:
        assert all(b - a == 2 for a, b in zip(low, high, strict=True))
    for rank in range(num_ranks):
        window = int(windows.around(torch.tensor(float(rank))))
        assert low[window] <= rank <= high[window]


def test_place_in_a_window_and_back():
    positions = torch.arange(5.0)
    low, high = torch.tensor([1.0, 0.5]), torch.tensor([3.0, 2.5])
    law = OrdinalTarget.from_rank([2.0, 1.0], 5).probs
    rho = relative_rank(law, positions, low, high)
    assert rho.tolist() == [0.0, -0.5]
    assert absolute_rank(rho, low, high).tolist() == [2.0, 1.0]


def test_mean_place_has_the_gradient_of_the_annotators_mean():
    votes = torch.tensor([[0, 1, 4], [2, 2, 3]])
    rho = torch.tensor([0.1, -0.4], requires_grad=True)
    low, high = torch.tensor([0.0, 1.0]), torch.tensor([2.0, 3.0])
    each = [
        (rho[i] - max(-1.0, min(1.0, float(v) - 1 - i))) ** 2
        for i, row in enumerate(votes)
        for v in row
    ]
    slow = torch.autograd.grad(sum(each) / 6, rho)[0]
    target = OrdinalTarget.from_votes(votes, 5)
    wanted = relative_rank(target.probs, torch.arange(5.0), low, high)
    fast = torch.autograd.grad((rho - wanted).square().mean(), rho)[0]
    assert torch.allclose(slow, fast, atol=1e-6)


def test_loss_is_the_squared_error_over_the_drawn_triplets():
    torch.manual_seed(0)
    labels = torch.randint(5, (16,))
    features, loss = torch.randn(16, 1), MWRLoss(5, Weak(), repeats=3)
    target = OrdinalTarget.from_labels(labels, 5)
    drawn = draw_triplets(
        target, target, loss.windows, repeats=3, generator=torch.Generator().manual_seed(1)
    )
    errors = []
    for a, b, x, valid in zip(drawn.low, drawn.high, drawn.image, drawn.valid, strict=True):
        if valid:
            middle, half = (labels[a] + labels[b]) / 2, (labels[b] - labels[a]) / 2
            wanted = ((labels[x] - middle) / half).clamp(-1, 1)
            one = (features[i : i + 1] for i in (int(a), int(b), int(x)))
            errors.append(float((loss.regressor(*one)[0].detach() - wanted) ** 2))
    found = loss(features, target, generator=torch.Generator().manual_seed(1))
    assert len(errors) > 30
    assert found.item() == pytest.approx(sum(errors) / len(errors), rel=1e-4)


def test_ends_are_clean_of_their_grade_and_never_the_image_itself():
    torch.manual_seed(0)
    target = OrdinalTarget.from_rank(4 * torch.rand(40), 5)
    whole = OrdinalTarget.from_labels(torch.arange(40) % 5, 5)
    clean = torch.rand(40) < 0.6
    target = OrdinalTarget(torch.where(clean[:, None], whole.probs, target.probs), clean)
    windows = Windows.of(5)
    drawn = draw_triplets(target, target, windows, repeats=20)
    assert drawn.valid.float().mean() > 0.9
    low, high, image = (part[drawn.valid] for part in (drawn.low, drawn.high, drawn.image))
    assert clean[low].all()
    assert clean[high].all()
    assert (target.hard[high] - target.hard[low] == 2).all()
    assert ((low != image) & (high != image)).all()


def test_windows_lie_around_the_image_as_often_as_in_the_release():
    target = OrdinalTarget.from_labels([4] * 4 + [0, 1, 2, 3, 5, 6, 7, 8] * 2, 9)
    drawn = draw_triplets(target, target, Windows.of(9), repeats=5000)
    centre = (target.hard[drawn.low] + target.hard[drawn.high]) / 2 - target.hard[drawn.image]
    of_four = centre[(drawn.image < 4) & drawn.valid]
    shares = [(of_four == o).float().mean().item() for o in (-2, -1, 0, 1, 2)]
    assert shares == pytest.approx([0.1, 0.2, 0.4, 0.2, 0.1], abs=0.02)


def test_remembered_features_stand_in_for_absent_grades():
    loss = MWRLoss(3, Weak(), memory=2)
    whole = torch.tensor([0, 0, 0, 2, 2, 2])
    loss(torch.arange(6.0).unsqueeze(1), whole)
    kept, ends = loss._remembered
    assert kept[ends.clean].flatten().tolist() == [0.0, 3.0, 1.0, 4.0]
    only_middle = torch.tensor([1, 1])
    features = torch.tensor([[7.0], [8.0]], requires_grad=True)
    found = loss(features, only_middle)
    found.backward()
    assert found.item() > 0
    assert features.grad.abs().sum() > 0
    loss.forget()
    assert loss(features, only_middle).item() == 0.0


def test_remembered_features_do_not_outlive_an_epoch():
    grader = create_grader("mwr", num_ranks=3)
    target = OrdinalTarget.from_labels([0, 1, 2], 3)
    grader.training_loss(torch.randn(3, 3, 32, 32), target, grader.stages[0])
    assert grader.loss._remembered is not None
    grader.start_epoch(1)
    assert grader.loss._remembered is None


@pytest.mark.parametrize(
    ("scheme", "num_ranks"),
    [("arithmetic", n) for n in range(2, 9)] + [("geometric", n) for n in (3, 5, 8)],
)
def test_search_with_an_oracle_finds_the_rank_from_every_start(scheme, num_ranks):
    windows = Windows.of(num_ranks, scheme)
    target = OrdinalTarget.from_labels(torch.arange(num_ranks).repeat(3), num_ranks)
    features = (target.probs @ windows.positions).unsqueeze(1)
    pairs = choose_pairs(Oracle(), features, target, windows, count=2, candidates=4)
    truth = torch.arange(num_ranks).repeat(num_ranks)
    start = torch.arange(float(num_ranks)).repeat_interleave(num_ranks)
    if scheme == "geometric":
        # A window one rank wide cannot be left downwards: its lower end is its own window.
        truth, start = truth[start <= truth], start[start <= truth]
    images = windows.positions[truth].unsqueeze(1)
    found = search(Oracle(), images, start, pairs, windows)
    ranks = torch.arange(num_ranks)
    assert torch.allclose((found.probabilities * ranks).sum(1), truth.float(), atol=1e-4)
    assert torch.allclose(found.spread, torch.zeros(len(truth)), atol=1e-5)


def test_search_keeps_fractions():
    windows = Windows.of(5)
    target = OrdinalTarget.from_labels(torch.arange(5), 5)
    pairs = choose_pairs(Oracle(), target.rank.unsqueeze(1), target, windows, candidates=2)
    found = search(Oracle(), torch.tensor([[2.25]]), torch.tensor([0.0]), pairs, windows)
    assert torch.allclose(found.probabilities, torch.tensor([[0, 0, 0.75, 0.25, 0]]), atol=1e-5)


def test_the_better_pairs_are_chosen():
    """Half of the images at the ends are mislabelled: pairs of good ones win."""
    target = OrdinalTarget.from_labels([0] * 10 + [1] * 10 + [2] * 10, 3)
    features = target.rank.clone().unsqueeze(1)
    features[5:10], features[25:] = 1.2, 0.8
    pairs = choose_pairs(Oracle(), features, target, Windows.of(3), count=3, candidates=40)
    assert pairs["low"].flatten().tolist() == [0.0] * 3
    assert pairs["high"].flatten().tolist() == [2.0] * 3


def test_missing_grade_is_replaced_by_the_nearest():
    grader = create_grader("mwr", num_ranks=5)
    images, target = torch.randn(6, 3, 32, 32), OrdinalTarget.from_labels([0, 0, 1, 1, 3, 3], 5)
    grader.eval()
    with torch.no_grad():
        grader.fit_reference([(images, target)])
    assert torch.isfinite(grader.predict(images).probabilities).all()
    assert set(grader.reference["high_place"].flatten().tolist()) <= {1.0, 3.0}
    assert (grader.reference["low_place"] < grader.reference["high_place"]).all()


def test_reference_survives_state_dict():
    grader, other = (create_grader("mwr", num_ranks=3, seed=seed) for seed in (0, 1))
    images, target = torch.randn(6, 3, 32, 32), OrdinalTarget.from_labels([0, 1, 2] * 2, 3)
    grader.eval()
    with torch.no_grad():
        grader.fit_reference([(images, target)])
    other.load_state_dict(grader.state_dict())
    assert torch.equal(other.predict(images).probabilities, grader.predict(images).probabilities)


@torch.no_grad()
def test_the_search_starts_where_the_neighbours_are():
    grader = create_grader("mwr", backbone="tiny", num_ranks=5, seed=0, neighbours=1).eval()
    images = torch.rand(10, 3, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1
    target = OrdinalTarget.from_labels([0, 1, 2, 3, 4] * 2, 5)
    # Says that every image lies in the middle of its window, so the search stays there.
    for parameter in grader.loss.regressor.parameters():
        parameter.zero_()
    grader.fit_reference([(images, target)])
    assert grader.predict(images).rank.tolist() == pytest.approx([1.0, 1.0, 2.0, 3.0, 3.0] * 2)
