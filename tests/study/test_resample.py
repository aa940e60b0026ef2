import numpy as np
import pytest

from dismix.errors import DisMixError
from dismix.study.resample import interval, resampled_means


def slow_means(values, folds, groups, draws, seed):
    """The same resampling, one draw and one image at a time."""
    rng = np.random.default_rng(seed)
    numbers, found = sorted({*folds}), []
    for _ in range(draws):
        picked = []
        for fold in rng.choice(numbers, len(numbers)):
            inside = [i for i in range(len(folds)) if folds[i] == fold]
            names = sorted({groups[i] for i in inside})
            repeats = rng.integers(0, len(values), len(values))
            for name in rng.choice(names, len(names)):
                members = [i for i in inside if groups[i] == name]
                picked += [values[repeats, i].mean() for i in members]
        found.append(np.mean(picked))
    return np.array(found)


def test_agrees_with_resampling_by_hand():
    rng = np.random.default_rng(1)
    folds = np.repeat([0, 1, 2], [9, 12, 15])
    groups = np.arange(36) // 3
    values = rng.normal(size=(2, 36)) + 0.4 * folds + np.repeat(rng.normal(size=12), 3)
    fast = resampled_means(values, folds, groups, draws=6000, seed=0)
    slow = slow_means(values, folds, groups, 1500, 0)
    assert fast.mean() == pytest.approx(slow.mean(), abs=0.05)
    assert fast.std() == pytest.approx(slow.std(), rel=0.1)
    for q in (0.025, 0.975):
        assert np.quantile(fast, q) == pytest.approx(np.quantile(slow, q), abs=0.12)


def test_patients_and_lucky_folds_widen_it():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(1, 120))
    folds, alone = np.repeat(np.arange(4), 30), np.arange(120)
    width = {}
    for name, values, groups in (
        ("plain", noise, alone),
        ("lucky", noise + np.repeat([0.0, 2.0, 0.0, -2.0], 30), alone),
        ("patients", np.repeat(noise[:, ::3], 3, axis=1), np.arange(120) // 3),
    ):
        found = interval(values, folds, groups)
        width[name] = found.high - found.low
    assert width["lucky"] > 2 * width["plain"]
    assert width["patients"] > 1.3 * width["plain"]


def test_the_same_images_give_the_same_interval():
    values = np.random.default_rng(0).normal(size=(2, 20))
    folds, groups = np.arange(20) // 10, np.arange(20)
    assert interval(values, folds, groups) == interval(values, folds, groups)
    with pytest.raises(DisMixError, match="no images"):
        interval(np.zeros((1, 0)), folds[:0], groups[:0])


@pytest.mark.parametrize("count", [2, 5])
def test_a_true_zero_is_seldom_excluded(count):
    """False alarms stay near the promised 2.5 % though trainings vary more than images do."""
    rng = np.random.default_rng(3)
    folds, groups, wrong = np.arange(100) * count // 100, np.arange(100), 0
    fall = 2 / np.sqrt(100 / count)
    for seed in range(200):
        values = rng.normal(size=(1, 100)) + (fall * rng.normal(size=count))[folds]
        found = interval(values, folds, groups, level=0.975, draws=300, seed=seed)
        wrong += not found.low <= 0 <= found.high
    assert wrong <= 10


def test_a_true_gain_is_found():
    rng = np.random.default_rng(4)
    folds, groups, seen = np.arange(300) // 60, np.arange(300), 0
    for seed in range(40):
        values = rng.normal(size=(1, 300)) + 0.35 + (0.13 * rng.normal(size=5))[folds]
        seen += interval(values, folds, groups, level=0.975, draws=300, seed=seed).low > 0
    assert seen > 24
