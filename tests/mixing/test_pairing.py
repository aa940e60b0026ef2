"""Partners: laws of the rules, fallbacks, the whole-set sampler, adapters and loaders."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.adapters import TimmCompat, as_collate
from dismix.mixing.mixup import Mixup
from dismix.mixing.pairing import PAIRINGS, derangement, find_partners, pairing_rule
from dismix.mixing.puzzlemix import PuzzleMix
from dismix.mixing.sampler import OrdinalPairSampler, rank_table


def target(labels, ranks=5):
    return OrdinalTarget.from_labels(torch.tensor(labels), ranks)


@pytest.mark.parametrize("name", list(PAIRINGS))
@pytest.mark.parametrize("batch", [1, 2, 3, 8])
def test_nobody_is_paired_with_itself(name, batch):
    g = torch.Generator().manual_seed(0)
    labels = target([i % 3 for i in range(batch)])
    for _ in range(20):
        found = find_partners(pairing_rule(name), labels, g)
        assert found.index.shape == (batch,)
        if batch > 1:
            assert bool((found.index != torch.arange(batch)).all())


def test_derangements_are_uniform_over_partners():
    g = torch.Generator().manual_seed(0)
    counts = torch.zeros(4, 4)
    for _ in range(3000):
        index = derangement(4, g)
        counts[torch.arange(4), index] += 1
    assert bool((counts.diagonal() == 0).all())
    off = counts[~torch.eye(4, dtype=torch.bool)]
    assert bool(((off / 3000 - 1 / 3).abs() < 0.04).all())


def test_adjacent_takes_neighbours_then_the_same_then_anyone():
    rule, g = pairing_rule("adjacent"), torch.Generator().manual_seed(0)
    labels = target([0, 1, 1, 3, 3])
    met = {i: set() for i in range(5)}
    for _ in range(100):
        found = find_partners(rule, labels, g)
        for i, j in enumerate(found.index.tolist()):
            met[i].add(j)
    assert met == {0: {1, 2}, 1: {0}, 2: {0}, 3: {4}, 4: {3}}
    assert found.fell_back.tolist() == [False, False, False, True, True]
    alone = find_partners(rule, target([0, 4]), g)
    assert alone.index.tolist() == [1, 0]
    two = find_partners(pairing_rule("adjacent:2"), target([1, 3]), g)
    assert not two.fell_back.any()


def test_kernel_has_its_law():
    labels, g = target([0, 0, 1, 2, 4]), torch.Generator().manual_seed(0)
    rule = pairing_rule("kernel:1.0")
    counts = torch.zeros(5)
    for _ in range(4000):
        counts[find_partners(rule, labels, g).index[0]] += 1
    weights = torch.tensor([0.0, 1.0, 0.6065, 0.1353, 0.000335])
    expected = weights / weights.sum()
    assert bool(((counts / 4000 - expected).abs() < 0.025).all())
    near = find_partners(pairing_rule("kernel:0.001"), labels, g)
    assert near.index[:2].tolist() == [1, 0]
    assert not near.fell_back.any()


def test_own_rules_are_checked():
    with pytest.raises(DisMixError, match="one row number"):
        find_partners(lambda t, g: torch.tensor([0, 9]), target([0, 1]), torch.Generator())
    with pytest.raises(DisMixError, match="pairing 'randon'"):
        pairing_rule("randon")
    with pytest.raises(DisMixError, match="takes no option"):
        pairing_rule("random:3")
    with pytest.raises(DisMixError, match="not a number"):
        pairing_rule("kernel:x")


def test_fallbacks_are_reported():
    mix = Mixup(5, p=1.0, pairing="adjacent")
    _, _, info = mix(torch.rand(3, 1, 4, 4), torch.tensor([0, 1, 4]), return_info=True)
    assert info.fell_back.tolist() == [False, False, True]


def test_unimodal_targets_of_far_ranks():
    mix = Mixup(5, p=1.0, target="unimodal")
    images = torch.rand(2, 1, 4, 4)
    _, targets, info = mix(images, torch.tensor([0, 4]), return_info=True)
    assert bool(((info.target.probs > 0).sum(1) == 2).all())
    assert torch.allclose(targets @ torch.arange(5.0), info.target.rank, atol=1e-5)
    peak = targets.argmax(1)
    assert bool((peak - info.target.rank).abs().max() <= 0.5 + 1e-5)


def test_saliency_mixers_pair_the_drawn_rows():
    mix = PuzzleMix(5, p=0.5, saliency_fn=lambda x, y: x.mean(1))
    labels = target([0, 1, 2, 3] * 4)
    for _ in range(20):
        draws = mix.draw(torch.rand(16, 1, 8, 8), labels)
        if len(draws) > 1:
            assert set(draws.partner.tolist()) == set(draws.rows.tolist())


def test_rank_table_and_sampler():
    counts = torch.tensor([20, 2, 10, 0, 5])
    table = rank_table(counts, 1.0)
    assert torch.allclose(table.sum(1), torch.ones(5, dtype=torch.float64))
    slow = torch.tensor([(n - (k == 1)) * 2.718281828 ** (-((1 - k) ** 2) / 2)
                         for k, n in enumerate(counts.tolist())])  # fmt: skip
    assert torch.allclose(table[1].float(), slow / slow.sum(), atol=1e-5)
    near = rank_table(counts, None)
    assert near[0].tolist() == [0, 1, 0, 0, 0]
    assert torch.allclose(near[1], torch.tensor([20.0, 0, 10, 0, 0]).double() / 30)
    # Rank 3 has no images: the nearest to rank 4 is rank 2.
    assert near[4].tolist() == [0, 0, 1, 0, 0]


def test_sampler_with_consecutive_pairing_mixes_neighbours_of_rare_ranks():
    labels = torch.tensor([0] * 40 + [1] * 2 + [2] * 10)
    data = TensorDataset(torch.rand(52, 1, 4, 4), labels)
    sampler = OrdinalPairSampler(OrdinalTarget.from_labels(labels, 3), 16, sigma=None)
    mix = Mixup(3, p=1.0, pairing="consecutive")
    anchors = []
    loader = DataLoader(data, batch_sampler=sampler)
    assert len(loader) == 7
    for images, given in loader:
        _, _, info = mix(images, given, return_info=True)
        assert bool(((given[info.index] - given).abs() == 1).all())
        anchors += given[::2].tolist()
    assert sorted(anchors) == sorted(labels.tolist())
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first
    sampler.set_epoch(0)
    assert list(sampler) == first


@pytest.mark.parametrize("sigma", [1.0, None])
def test_a_sampler_takes_targets_in_any_form(sigma):
    ranks = [0, 0, 3, 1, 1, 2, 0, 3]
    wanted = list(OrdinalPairSampler(OrdinalTarget.from_labels(ranks, 4), 4, sigma=sigma))
    laws = torch.nn.functional.one_hot(torch.tensor(ranks)).float()
    for given in (ranks, np.array(ranks), torch.tensor(ranks), laws, laws.tolist()):
        assert list(OrdinalPairSampler(given, 4, sigma=sigma)) == wanted
    # Ranks above the highest have no images, so that nobody is paired with them.
    wide = OrdinalPairSampler(OrdinalTarget.from_labels(ranks, 6), 4, sigma=sigma).table
    assert torch.equal(wide[:4, :4], OrdinalPairSampler(ranks, 4, sigma=sigma).table)
    assert not wide[:4, 4:].any()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([0.5, 1.0], "labels must be whole numbers"),
        ([0, -1], "label -1 is outside"),
        (["mild", "severe"], "targets must be numbers, got 'mild'"),
        ([], "labels must be whole numbers"),
    ],
)
def test_a_sampler_refuses_what_is_no_target(given, words):
    with pytest.raises(DisMixError, match=words):
        OrdinalPairSampler(given, 4)


@pytest.mark.parametrize("workers", [0, 2])
def test_collate_in_loaders(workers):
    data = TensorDataset(torch.rand(24, 1, 4, 4), torch.arange(24) % 3)
    loader = DataLoader(data, 6, collate_fn=as_collate(Mixup(3, p=1.0)), num_workers=workers,
                        generator=torch.Generator().manual_seed(0))  # fmt: skip
    epochs = [[t for _, t in loader] for _ in range(2)]
    ratios = [round(float(t.square().sum()), 5) for epoch in epochs for t in epoch]
    assert all(t.shape == (6, 3) for epoch in epochs for t in epoch)
    # Neither two workers nor two epochs may draw the same mixes.
    assert len(set(ratios)) == 8


def test_gradient_mixers_say_so_in_a_worker():
    data = TensorDataset(torch.rand(4, 1, 8, 8), torch.arange(4) % 3)
    mix = as_collate(PuzzleMix(3, p=1.0))
    with pytest.raises(DisMixError, match="training loop"):
        mix([data[i] for i in range(4)])


def test_batches_without_images_and_targets_in_front_are_refused():
    samples = [{"image": torch.zeros(1, 4, 4), "grade": i % 3} for i in range(4)]
    with pytest.raises(DisMixError, match="got a dict of image, grade; give as_collate a collate"):
        as_collate(Mixup(3))(samples)
    with pytest.raises(DisMixError, match="got a Tensor"):
        as_collate(Mixup(3))([torch.zeros(1, 4, 4)] * 4)

    def pair(given):
        batch = torch.utils.data.default_collate(given)
        return batch["image"], batch["grade"], "kept"

    images, targets, rest = as_collate(Mixup(3), pair)(samples)
    assert (images.shape, targets.shape, rest) == ((4, 1, 4, 4), (4, 3), "kept")


@pytest.mark.parametrize("form", ["rank", "cumulative"])
def test_timm_takes_laws_only(form):
    with pytest.raises(DisMixError, match=r"timm needs targets \(B, C\); give the mixer"):
        TimmCompat(Mixup(5, target=form))


def test_timm_interface():
    mix = TimmCompat(Mixup(5, p=1.0), label_smoothing=0.1)
    images, labels = torch.rand(3, 1, 4, 4), torch.tensor([0, 1, 2])
    _, targets = mix(images, labels)
    assert torch.allclose(targets.sum(1), torch.ones(3))
    assert float(targets.min()) == pytest.approx(0.02)
    mix.mixup_enabled = False
    assert torch.equal(mix(images, labels)[0], images)
    assert not mix.mixup_enabled


def test_processes_of_one_training_draw_differently(monkeypatch):
    drawn = []
    for rank in ("0", "1", "0"):
        monkeypatch.setenv("RANK", rank)
        drawn.append(Mixup(3, p=1.0)(torch.zeros(2, 1, 1, 1), torch.tensor([0, 1]))[1])
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0], drawn[2])


def test_the_list_of_mixers_needs_no_torch():
    code = "import sys; from dismix.mixing import MIXERS; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code + "; print(len(MIXERS))"], check=True)


def test_a_rule_may_return_numpy_or_a_list():
    images, labels, order = torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 0]), [1, 0, 3, 2]
    made = [
        Mixup(3, p=1.0, pairing=lambda target, rng, found=found: found)(images, labels)[0]
        for found in (torch.tensor(order), order, np.array(order))
    ]
    assert torch.equal(made[0], made[1])
    assert torch.equal(made[0], made[2])


def test_a_gap_below_zero_is_refused():
    with pytest.raises(DisMixError, match="max_gap is -1; give 0 or more"):
        Mixup(3, pairing="near:-1")


def test_timm_gets_laws_of_targets_too():
    images, labels = torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 0])
    found = [
        TimmCompat(Mixup(3, p=1.0), label_smoothing=0.1)(images, given)[1]
        for given in (labels, OrdinalTarget.from_labels(labels, 3))
    ]
    assert torch.equal(*found)
