"""Mixers in the workers of a data loader, however these are started."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dismix.errors import DisMixError
from dismix.mixing.adapters import as_collate
from dismix.mixing.dismix import DisMix
from dismix.mixing.mixup import Mixup
from dismix.mixing.registry import create_mixer
from dismix.mixing.saliency import spectral_saliency


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


class ImagesAndLabels(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((1, 8, 8), index / 8 - 0.5), index % 5


def net() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 5))


@pytest.mark.parametrize("name", ["manifold_mixup", "ordinal_manifold_mixup", "alignmixup"])
def test_what_mixes_inside_a_model_is_no_collate_function(name):
    mix = create_mixer(name, 5, p=1.0, model=net())
    with pytest.raises(DisMixError, match=f"^{name} mixes inside the model, .*training loop$"):
        as_collate(mix)

    def own(samples):
        return mix(*torch.utils.data.default_collate(samples))

    loader = DataLoader(ImagesAndLabels(), 4, collate_fn=own, num_workers=1)
    with pytest.raises(DisMixError, match="a data loader's worker has none that learns; call mix"):
        next(iter(loader))


@pytest.mark.parametrize("name", ["puzzlemix", "comixup", "guidedmixup", "sumix"])
def test_a_model_is_looked_at_in_the_main_process_only(name):
    options = {"saliency": "grad"} if name == "guidedmixup" else {}
    mix = as_collate(create_mixer(name, 5, p=1.0, model=net(), **options))
    images, _ = next(iter(DataLoader(ImagesAndLabels(), 4, collate_fn=mix)))
    assert images.shape == (4, 1, 8, 8)
    loader = DataLoader(ImagesAndLabels(), 4, collate_fn=mix, num_workers=1)
    with pytest.raises(DisMixError, match=f"^{name} needs a model .* none that learns") as caught:
        next(iter(loader))
    assert "\n" not in str(caught.value)
    assert ("give saliency_fn" in str(caught.value)) == (name != "sumix")


def test_a_saliency_of_the_users_own_works_in_a_worker():
    mix = create_mixer("puzzlemix", 5, p=1.0, model=net(), saliency_fn=spectral_saliency)
    loader = DataLoader(ImagesAndLabels(), 4, collate_fn=as_collate(mix), num_workers=1)
    assert len([*loader]) == 2


def test_runs_of_other_seeds_mix_otherwise_in_workers_too():
    made = []
    for seed in (1, 1, 2):
        mix = as_collate(Mixup(5, p=1.0, seed=seed))
        order = torch.Generator().manual_seed(0)
        loader = DataLoader(
            ImagesAndLabels(), 8, collate_fn=mix, num_workers=1, generator=order
        )  # fmt: skip
        made.append(next(iter(loader))[1])
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_have_the_switch_as_it_was_when_they_started(persistent):
    """As the guide says: switched between epochs, but not under workers that live on."""
    mix = Mixup(5, p=1.0)
    loader = DataLoader(
        ImagesAndLabels(), 8, collate_fn=as_collate(mix), num_workers=1,
        persistent_workers=persistent,
    )  # fmt: skip
    wanted = next(iter(DataLoader(ImagesAndLabels(), 8)))[0]
    assert not torch.equal(next(iter(loader))[0], wanted)
    mix.eval()
    assert torch.equal(next(iter(loader))[0], wanted) == (not persistent)
