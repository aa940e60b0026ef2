"""Mixers in the workers of a data loader, however these are started."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from dismix.mixing.adapters import as_collate
from dismix.mixing.dismix import DisMix
from dismix.mixing.mixup import Mixup


def batches(mix, start: str, workers: int = 1):
    images = torch.rand(16, 1, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1
    data = TensorDataset(images, torch.arange(16) % 5)
    loader = DataLoader(
        data, 4, collate_fn=as_collate(mix), num_workers=workers, multiprocessing_context=start
    )
    return [*loader]


def test_a_spawned_worker_takes_the_mixer_along(toy_run):
    for images, targets in batches(DisMix.load(toy_run, p=1.0), "spawn"):
        assert images.shape == (4, 1, 32, 32)
        assert targets.shape == (4, 5)


def test_forked_workers_mix_differently():
    first, second = batches(Mixup(5, p=1.0), "fork", 2)[:2]
    assert not torch.equal(first[1], second[1])


@pytest.mark.parametrize("live", [False, True])
def test_a_forked_worker_starts_a_pool_of_its_own(toy_run, live):
    with DisMix.load(toy_run, p=1.0, pool=8) as mix:
        if live:
            mix(torch.zeros(2, 1, 32, 32), torch.tensor([0, 1]))
        made = batches(mix, "fork", 2)
    assert len({tuple(images.flatten(1).sum(1).tolist()) for images, _ in made}) == 4
