"""Co-Mixup: its objective against slow loops, descent, partitions, shares and labels."""

import itertools

import numpy as np
import pytest
import torch

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.comix_solver import CoMixSolver, CoMixWeights, distance, same_sets
from dismix.mixing.comixup import CoMixup, cell_shares, comix_problem
from dismix.mixing.saliency import spectral_saliency


def random_problem(parts=2, size=6, side=4, seed=0, fillers=0, **weights):
    rng = np.random.default_rng(seed)
    total = parts * size - fillers
    saliency = rng.random((total, side * side)) ** 4
    saliency /= saliency.sum(1, keepdims=True)
    table = np.concatenate([saliency, rng.integers(0, 25, (total, 2))], 1)
    flat = np.full(parts * size, -1)
    flat[:total] = np.arange(total)
    partition = flat.reshape(size, parts).T
    shares = rng.dirichlet(np.ones(size), parts)
    problem = comix_problem(table, partition, shares, side, CoMixWeights(**weights))
    start = rng.integers(0, size - (1 if fillers else 0), (parts, size, side * side))
    return problem, start


def slow_objective(solver: CoMixSolver, part: int) -> float:
    problem, cells, side = solver.problem, solver.cells[part], solver.problem.side
    outputs = [o for o in range(len(cells)) if problem.real[part, o]]
    total = 0.0
    filled = {o: np.zeros(len(cells)) for o in outputs}
    for o in outputs:
        for place in range(side * side):
            a, b = cells[o, place]
            total += (problem.cost[part, a, place] + problem.cost[part, b, place]) / 2
            total -= 5e-4 * (a != b)
            filled[o][a] += 0.5
            filled[o][b] += 0.5
            for other in (place + 1, place + side):
                if other < side * side and (other != place + 1 or other % side):
                    s, t = {*cells[o, place]}, {*cells[o, other]}
                    gap = 0.0 if s == t else (0.25 if s & t else 1.0)
                    total += problem.weights.beta / side**2 * gap
    for o, other in itertools.permutations(outputs, 2):
        pair = filled[o] @ problem.compat[part] @ filled[other]
        total += problem.weights.gamma / side**2 * pair
    return float(total)


@pytest.mark.parametrize("fillers", [0, 1])
def test_objective_against_a_slow_loop(fillers):
    problem, start = random_problem(fillers=fillers)
    solver = CoMixSolver(problem, start)
    for _ in range(3):
        value = solver.objective()
        for part in range(2):
            assert value[part] == pytest.approx(slow_objective(solver, part), abs=1e-9)
        solver.sweep(halves=True)
    assert (solver.cells[..., 0] != solver.cells[..., 1]).any()


@pytest.mark.parametrize("seed", range(4))
def test_objective_never_rises_without_thresholds(seed):
    problem, start = random_problem(parts=3, size=8, seed=seed, tau_type="none")
    solver = CoMixSolver(problem, start)
    values = [solver.objective()]
    for sweep in range(4):
        for output in range(8):
            solver.improve(output, halves=sweep > 0)
            values.append(solver.objective())
    steps = np.diff(np.stack(values), axis=0)
    assert steps.max() < 1e-9
    assert (values[-1] < values[0] - 0.1).all()


def test_one_output_comes_near_the_best_of_all_labellings():
    """2 x 2 blocks, 3 sources, without halves: 81 labellings can all be tried."""
    gaps = []
    for seed in range(10):
        problem, start = random_problem(parts=1, size=3, side=2, seed=seed)
        solver = CoMixSolver(problem, start)
        unary = problem.cost + solver.penalty(0)[:, :, None]
        best = min(
            float(solver.cost_of(unary, np.repeat(np.array([labels])[..., None], 2, -1))[0])
            for labels in itertools.product(range(3), repeat=4)
        )
        solver.improve(0, halves=False)
        found = float(solver.cost_of(unary, solver.cells[:, 0])[0])
        assert found >= best - 1e-9
        gaps.append(found - best)
    assert np.mean(gaps) < 0.02


def test_thresholds():
    problem, start = random_problem(parts=1, size=5, tau_type="hard")
    solver = CoMixSolver(problem, start)
    solver.filled[:] = 0.0
    solver.filled[0, 1, 2] = 16.0
    solver.filled[0, 3, 4] = 10.0
    hard = solver.penalty(0)[0]
    assert hard[2] == pytest.approx(2 / 16 * 16, rel=0.01)
    assert hard[4] == pytest.approx(0.0, abs=0.01)
    soft_problem, _ = random_problem(parts=1, size=5, tau_type="soft")
    soft = CoMixSolver(soft_problem, start)
    soft.filled[:] = solver.filled
    assert soft.penalty(0)[0, 2] == pytest.approx(2 / 16 * (16 - 0.83 * 16), rel=0.1)


def test_outputs_of_the_same_sources_are_driven_apart():
    def twins(resolve: bool) -> int:
        count = 0
        for seed in range(6):
            problem, start = random_problem(parts=2, size=10, seed=seed, resolve=resolve)
            solver = CoMixSolver(problem, start)
            solver.run()
            count += int((same_sets(solver.filled, problem.real).sum((1, 2)) > 0).sum())
        return count

    assert twins(True) <= twins(False)


def test_distance_is_symmetric_and_ignores_order():
    pairs = np.array(list(itertools.product(range(3), repeat=2)))
    table = distance(pairs[:, None], pairs[None])
    assert (table == table.T).all()
    assert distance(np.array([0, 1]), np.array([1, 0])) == 0


@pytest.mark.parametrize(
    ("batch", "sizes"), [(64, [16] * 4), (41, [14, 14, 13]), (21, [11, 10]), (3, [3]), (1, [])]
)
def test_partitions(batch, sizes):
    mix = CoMixup(3, p=1.0, saliency_fn=spectral_saliency)
    images = torch.rand(batch, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(batch) % 3
    draws = mix.draw(images, OrdinalTarget.from_labels(labels, 3))
    assert sorted((draws.parts >= 0).sum(1).tolist(), reverse=True) == sizes
    used_rows = draws.parts[draws.parts >= 0]
    assert sorted(used_rows.tolist()) == list(range(batch if sizes else 0))
    out, targets = mix(images, labels)
    assert out.shape == images.shape
    assert torch.allclose(targets.sum(1), torch.ones(batch), atol=1e-5)


@pytest.mark.parametrize("size", [(32, 32), (30, 45)])
def test_pixels_tell_the_shares(size):
    batch = 9
    images = torch.arange(float(batch)).view(-1, 1, 1, 1).expand(-1, 1, *size)
    maps = torch.rand(batch, *size, generator=torch.Generator().manual_seed(0)) ** 8
    mix = CoMixup(batch, p=1.0, saliency_fn=lambda x, y: maps[: len(x)])
    out, targets, info = mix(images, torch.arange(batch), return_info=True)
    assert torch.allclose(info.weights, targets, atol=1e-6)
    assert torch.allclose(out.mean((1, 2, 3)), targets @ torch.arange(float(batch)), atol=1e-4)
    assert torch.allclose(info.mask.mean((1, 2, 3)), info.lam, atol=1e-6)
    assert float((info.weights > 0).sum(1).float().mean()) > 1.3


def test_shares_count_pixels_at_the_border():
    cells = torch.zeros(1, 4, 2, dtype=torch.long)
    cells[0, 3] = 1
    shares = cell_shares(cells, 2, 2, (5, 5))
    assert shares[0, 1] == pytest.approx(4 / 25)


def test_a_lone_image_still_gets_a_source():
    images = torch.rand(8, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    mix = CoMixup(4, p=0.05, saliency_fn=spectral_saliency, seed=1)
    lone = 0
    for _ in range(40):
        _, _, info = mix(images, torch.arange(8) % 4, return_info=True)
        if int(info.mixed.sum()) == 1:
            row = int(info.mixed.int().argmax())
            lone += bool(info.index[row] != row)
    assert lone > 3


def test_partner_rules_are_refused():
    with pytest.raises(DisMixError, match="no partners"):
        CoMixup(3, pairing="adjacent")
