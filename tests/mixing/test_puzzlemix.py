"""PuzzleMix: the exact solver against brute force, the transport, and the mixes."""

import itertools
import warnings

import pytest
import torch

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.graph_cut import solve_exactly
from dismix.mixing.grid_energy import GridEnergy
from dismix.mixing.message_passing import FlatGrid, solve_nearly, sweep
from dismix.mixing.puzzlemix import PuzzleMix, PuzzleWeights, border_costs, puzzle_energy
from dismix.mixing.saliency import spectral_saliency, unit_sum
from dismix.mixing.transport import assign, distances, move_blocks


def random_grid(batch, labels, height, width, seed=0, strength=0.3) -> GridEnergy:
    g = torch.Generator().manual_seed(seed)
    return GridEnergy(
        torch.rand(batch, labels, height, width, generator=g),
        strength * torch.rand(batch, height - 1, width, generator=g),
        strength * torch.rand(batch, height, width - 1, generator=g),
    )


def slow_value(grid: GridEnergy, b: int, labels) -> float:
    height, width = grid.unary.shape[-2:]
    total, top = 0.0, grid.labels - 1
    for y in range(height):
        for x in range(width):
            total += float(grid.unary[b, labels[y][x], y, x])
            if y + 1 < height:
                gap = (labels[y][x] - labels[y + 1][x]) / top
                total += float(grid.down[b, y, x]) * gap**2
            if x + 1 < width:
                gap = (labels[y][x] - labels[y][x + 1]) / top
                total += float(grid.right[b, y, x]) * gap**2
    return total


def brute_force(grid: GridEnergy) -> torch.Tensor:
    """Least energies over all labellings."""
    batch, labels, height, width = grid.unary.shape
    everything = torch.tensor(list(itertools.product(range(labels), repeat=height * width)))
    everything = everything.view(-1, height, width)
    count = len(everything)
    best = []
    for b in range(batch):
        one = GridEnergy(*(t[b : b + 1].expand(count, *t.shape[1:]) for t in vars(grid).values()))
        best.append(one.value(everything).min())
    return torch.stack(best)


def test_energy_against_a_slow_loop():
    grid = random_grid(2, 3, 3, 4)
    labels = torch.randint(3, (2, 3, 4), generator=torch.Generator().manual_seed(1))
    slow = [slow_value(grid, b, labels[b].tolist()) for b in range(2)]
    assert torch.allclose(grid.value(labels), torch.tensor(slow), atol=1e-5)
    flat = FlatGrid.of(grid).value(labels.flatten(1))
    assert torch.allclose(flat, torch.tensor(slow), atol=1e-5)


@pytest.mark.parametrize(
    ("labels", "height", "width"), [(3, 2, 2), (3, 3, 3), (2, 3, 3), (4, 2, 3), (3, 1, 4)]
)
@pytest.mark.parametrize("strength", [0.05, 0.5, 3.0])
def test_exact_solver_equals_brute_force(labels, height, width, strength):
    grid = random_grid(4, labels, height, width, seed=height + width, strength=strength)
    found = grid.value(solve_exactly(grid))
    assert torch.allclose(found, brute_force(grid), atol=1e-5)


@pytest.mark.parametrize("side", [2, 3])
def test_exact_solver_on_real_energies_equals_brute_force(side):
    g = torch.Generator().manual_seed(side)
    maps = [unit_sum(torch.rand(8, side, side, generator=g) ** 4) for _ in range(2)]
    pictures = [torch.rand(8, 3, 8 * side, 8 * side, generator=g) for _ in range(2)]
    lam = torch.rand(8, generator=g)
    energy = puzzle_energy(
        (maps[0], maps[1]), border_costs(*pictures, side, 4), lam, PuzzleWeights()
    )
    assert bool((energy.down >= 0).all())
    assert torch.allclose(energy.value(solve_exactly(energy)), brute_force(energy), atol=1e-6)


@pytest.mark.parametrize("side", [2, 4, 8, 16])
def test_message_passing_comes_near_the_minimum(side):
    grid = random_grid(16, 3, side, side, strength=0.4)
    exact, near = grid.value(solve_exactly(grid)), grid.value(solve_nearly(grid))
    assert bool((near >= exact - 1e-4).all())
    assert float(((near - exact) / exact).mean()) < 0.01


def test_sweeps_never_raise_the_energy():
    grid = FlatGrid.of(random_grid(8, 3, 5, 6, strength=1.0))
    labels = torch.randint(3, (8, 30), generator=torch.Generator().manual_seed(0))
    values = [grid.value(labels)]
    for _ in range(4):
        labels = sweep(grid, labels, 1)
        values.append(grid.value(labels))
    assert bool((torch.stack(values).diff(dim=0) <= 1e-5).all())
    assert bool((values[-1] < values[0]).all())


def slow_border(first, second, side, neigh, a, b, p, q):
    """Mean difference across the border of blocks a and b (their grid places)."""
    size = first.shape[-1] // side
    sources = {1: first, 0: second}

    def pooled(x):
        return torch.nn.functional.avg_pool2d(x[None], neigh)[0]

    upper, lower = pooled(sources[p]), pooled(sources[q])
    k = size // neigh
    if a[1] == b[1]:
        one = upper[:, (a[0] + 1) * k - 1, a[1] * k : (a[1] + 1) * k]
        two = lower[:, b[0] * k, b[1] * k : (b[1] + 1) * k]
    else:
        one = upper[:, a[0] * k : (a[0] + 1) * k, (a[1] + 1) * k - 1]
        two = lower[:, b[0] * k : (b[0] + 1) * k, b[1] * k]
    return (one - two).abs().mean()


def test_border_costs_against_a_slow_oracle():
    g = torch.Generator().manual_seed(0)
    first, second = (torch.rand(2, 3, 32, 32, generator=g) for _ in range(2))
    down, right = border_costs(first, second, 4, 4)
    assert down.shape == (2, 2, 2, 3, 4)
    assert right.shape == (2, 2, 2, 4, 3)
    for p, q in itertools.product((0, 1), repeat=2):
        slow = slow_border(first[1], second[1], 4, 4, (1, 2), (2, 2), p, q)
        assert torch.allclose(down[1, p, q, 1, 2], slow, atol=1e-6)
        slow = slow_border(first[1], second[1], 4, 4, (3, 1), (3, 2), p, q)
        assert torch.allclose(right[1, p, q, 3, 1], slow, atol=1e-6)


def test_folded_energy_equals_the_unfolded_one_on_whole_blocks():
    """With labels 0 and 2 only it is saliency + borders + prior, up to one constant."""
    g = torch.Generator().manual_seed(3)
    own, other = (unit_sum(torch.rand(1, 2, 2, generator=g)) for _ in range(2))
    first, second = (torch.rand(1, 3, 16, 16, generator=g) for _ in range(2))
    down, right = border_costs(first, second, 2, 4)
    lam, weights = torch.tensor([0.3]), PuzzleWeights()
    energy = puzzle_energy((own, other), (down, right), lam, weights)
    beta = weights.beta / 32
    constant = (
        sum((x[0, 0, 1] + x[0, 1, 0]).sum() for x in (down, right)) * beta * weights.gamma / 2
    )
    for labels in itertools.product((0, 2), repeat=4):
        grid = torch.tensor(labels).view(2, 2)
        z = (grid == 0).long()
        slow = (z * other[0] + (1 - z) * own[0]).sum()
        slow += sum(
            -weights.eta / 4 * torch.log(torch.tensor(0.3 if v else 0.7) ** 2) for v in z.flatten()
        )
        for x in range(2):
            a, b = int(z[0, x]), int(z[1, x])
            slow += beta * weights.gamma * down[0, a, b, 0, x] + beta * (a != b)
        for y in range(2):
            a, b = int(z[y, 0]), int(z[y, 1])
            slow += beta * weights.gamma * right[0, a, b, y, 0] + beta * (a != b)
        assert torch.allclose(energy.value(grid[None])[0] - constant, slow, atol=1e-5)


def test_transport_fills_every_shown_block():
    g = torch.Generator().manual_seed(0)
    for side in (2, 4, 8, 16):
        saliency = unit_sum(torch.rand(32, side, side, generator=g) ** 3).flatten(1)
        wanted = torch.rand(32, side * side, generator=g) < 0.6
        source = assign(saliency, wanted, side, 0.8)
        for row, want in zip(source, wanted, strict=True):
            shown = row[want]
            assert len(shown.unique()) == len(shown)


def test_transport_against_a_slow_loop():
    g = torch.Generator().manual_seed(5)
    side, t_eps = 3, 0.1
    saliency = unit_sum(torch.rand(4, 3, 3, generator=g) ** 4).flatten(1)
    wanted = torch.rand(4, 9, generator=g) < 0.5
    found = assign(saliency, wanted, side, t_eps)
    far = distances(side, torch.device("cpu"))
    for b in range(4):
        cost = t_eps * far - saliency[b][:, None] * wanted[b].float()
        plan = {}
        for _ in range(side):
            plan, bids = {}, {}
            for i in range(9):
                bids.setdefault(int(cost[i].argmin()), []).append(i)
            for place, bidders in bids.items():
                winner = min(bidders, key=lambda i: float(cost[i, place]))
                plan[place] = winner
                for i in bidders:
                    if i != winner:
                        cost[i, place] += 1
        for place, block in plan.items():
            assert int(found[b, place]) == block


def test_costly_moves_move_nothing():
    saliency = unit_sum(torch.rand(3, 4, 4, generator=torch.Generator().manual_seed(0))).flatten(1)
    wanted = torch.ones(3, 16, dtype=torch.bool)
    assert torch.equal(assign(saliency, wanted, 4, 1e3), torch.arange(16).expand(3, 16))
    uniform = torch.full((3, 16), 1 / 16)
    assert torch.equal(assign(uniform, wanted, 4, 0.8), torch.arange(16).expand(3, 16))


def test_move_blocks_moves_whole_blocks():
    image = torch.arange(16.0).view(1, 1, 4, 4)
    moved = move_blocks(image, torch.tensor([[3, 1, 2, 0]]), 2)
    assert moved[0, 0, :2, :2].flatten().tolist() == [10, 11, 14, 15]
    assert moved[0, 0, 2:, 2:].flatten().tolist() == [0, 1, 4, 5]
    assert torch.equal(moved[0, 0, :2, 2:], image[0, 0, :2, 2:])


@pytest.mark.parametrize("size", [(64, 64), (224, 224), (56, 40), (45, 33)])
@pytest.mark.parametrize("solver", ["exact", "bp"])
def test_pixels_tell_the_mask(size, solver):
    g = torch.Generator().manual_seed(0)
    images = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 1, *size) / 3
    maps = torch.rand(4, *size, generator=g) ** 6
    mix = PuzzleMix(4, p=1.0, solver=solver, mean=0.0, std=1.0, blocks=(16,),
                    saliency_fn=lambda x, y: maps[: len(x)])  # fmt: skip
    out, targets, info = mix(images, torch.arange(4), return_info=True)
    lam = info.mask
    expected = lam * images + (1 - lam) * images[info.index]
    assert torch.allclose(out, expected, atol=1e-6)
    assert torch.allclose(info.mask.mean((1, 2, 3)), info.lam, atol=1e-6)
    assert torch.allclose(out.mean((1, 2, 3)) * 3, targets @ torch.arange(4.0), atol=1e-4)
    assert set(info.mask.unique().tolist()) <= {0.0, 0.5, 1.0}


def test_the_mask_keeps_what_matters():
    """Evidence left in one image and right in the other: both halves must survive."""
    maps = torch.full((2, 64, 64), 1e-3)
    maps[0, :, :32] = 1.0
    maps[1, :, 32:] = 1.0
    images = torch.stack([torch.zeros(1, 64, 64), torch.ones(1, 64, 64)])
    mix = PuzzleMix(2, p=1.0, blocks=(4,), transport=False, mean=0.0, std=1.0)
    target = OrdinalTarget.from_labels([0, 1], 2)
    draws = mix.draw(images, target)
    order = maps[draws.rows]
    out = mix.replay(images, target, draws, mix.access(saliency_fn=lambda x, y: order))
    assert out.images[0, 0, :, :16].mean() < 0.1
    assert out.images[0, 0, :, 48:].mean() > 0.9


def test_both_images_move_to_where_the_mask_shows_them():
    g = torch.Generator().manual_seed(0)
    images, maps = torch.rand(8, 1, 16, 16, generator=g), torch.rand(8, 16, 16, generator=g) ** 4
    # Every block to the image that it matters more to: what the other has there must move.
    mix = PuzzleMix(4, p=1.0, blocks=(4,), t_eps=0.02, mean=0.0, std=1.0,
                    weights={"beta": 0.0, "eta": 0.0, "labels": 2})  # fmt: skip
    target = OrdinalTarget.from_labels([0, 1, 2, 3] * 2, 4)
    draws = mix.draw(images, target)
    made = mix.replay(images, target, draws, mix.access(saliency_fn=lambda x, y: maps))
    saliency = unit_sum(torch.nn.functional.avg_pool2d(maps, 4)).flatten(1)
    moves = 0
    for row, other in zip(draws.rows.tolist(), draws.partner.tolist(), strict=True):
        mask = made.info.mask[row]
        blocks = mask[0, ::4, ::4].flatten()
        pictures = []
        for image, shown in ((row, blocks > 0), (other, blocks < 1)):
            source = assign(saliency[image, None], shown[None], 4, 0.02)
            moves += int((source != torch.arange(16))[0][shown].sum())
            pictures.append(move_blocks(images[image, None], source, 4)[0])
        torch.testing.assert_close(made.images[row], mask * pictures[0] + (1 - mask) * pictures[1])
    assert moves > 20


def test_ratio_follows_the_draw():
    g = torch.Generator().manual_seed(0)
    images = torch.rand(64, 1, 32, 32, generator=g)
    mix = PuzzleMix(2, p=1.0, saliency_fn=spectral_saliency, blocks=(8,), mean=0.0, std=1.0)
    labels = torch.zeros(64, dtype=torch.long)
    target = OrdinalTarget.from_labels(labels, 2)
    draws = mix.draw(images, target)
    info = mix.replay(images, target, draws, mix.access()).info
    both = torch.stack([draws.lam, info.lam])
    assert float(torch.corrcoef(both)[0, 1]) > 0.8


def test_pixels_of_another_range_warn_once():
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    mix = PuzzleMix(3, p=1.0, saliency_fn=spectral_saliency, mean=0.0, std=1.0)
    labels = torch.tensor([0, 1, 2, 0])
    with pytest.warns(UserWarning, match="mean and std"):
        mix(images, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mix(images, labels)


def test_pixels_of_0_to_255_are_refused():
    images = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 255
    with pytest.raises(DisMixError, match="far outside of"):
        PuzzleMix(3, p=1.0, saliency_fn=spectral_saliency)(images, torch.tensor([0, 1, 2, 0]))
    with pytest.raises(DisMixError, match=r"std is 0\.0; give numbers above 0"):
        PuzzleMix(3, std=0.0)


def test_without_a_model_it_says_what_is_missing():
    images = torch.rand(4, 3, 32, 32)
    with pytest.raises(DisMixError, match="labels is 1"):
        PuzzleWeights(labels=1)
    with pytest.raises(DisMixError, match=r"puzzlemix needs a model.*saliency_fn"):
        PuzzleMix(3, p=1.0)(images, torch.tensor([0, 1, 2, 0]))
