"""Batches: every image, the right partner, the same again for the same seed and epoch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dismix.data.batches import Batches, batch_bounds
from dismix.data.store import ImageStore, StoreSettings, build_store
from dismix.data.transforms import augment, draw_augment, equalize, to_unit
from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget


def numbered(count: int, side: int = 8) -> torch.Tensor:
    """Images whose value is their row."""
    rows = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1)
    return rows.expand(count, 1, side, side).contiguous()


def target_of(count: int) -> OrdinalTarget:
    return OrdinalTarget.from_labels(torch.arange(count) % 5, num_ranks=5)


def noise(count: int, channels: int = 3, side: int = 16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (count, channels, side, side)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def flat(batches: Batches) -> list[int]:
    return [i for batch in batches for i in batch.index.tolist()]


def orders(batches: Batches) -> list[list[int]]:
    return [batch.index.tolist() for batch in batches]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 16, 17, 31, 100])
@pytest.mark.parametrize("size", [1, 2, 4, 8, 64])
def test_bounds_cover_everything_without_a_batch_of_one(count: int, size: int) -> None:
    bounds = batch_bounds(count, size)
    assert [i for start, stop in bounds for i in range(start, stop)] == list(range(count))
    lengths = [stop - start for start, stop in bounds]
    assert max(lengths) <= size + 1
    if count > 1 and size > 1:
        assert min(lengths) >= 2
    dropped = batch_bounds(count, size, drop_last=True)
    assert len(dropped) == max(1, count // size)
    assert {stop - start for start, stop in dropped} == {min(size, count)}


@pytest.mark.parametrize(
    ("count", "steps", "seen"),
    [(351, 5, 320), (127, 2, 127), (128, 2, 128), (57, 1, 57), (65, 1, 65), (1, 1, 1)],
)
def test_training_batches_follow_the_rule(count: int, steps: int, seen: int) -> None:
    batches = Batches(torch.zeros(count, 1, 2, 2, dtype=torch.uint8), None, 64)
    sizes = [len(batch) for batch in batches]
    assert len(batches) == len(sizes) == steps
    assert sum(sizes) == seen


def test_evaluation_sees_every_image_in_order() -> None:
    batches = Batches(numbered(130), target_of(130), 64, shuffle=False, augment=False)
    assert flat(batches) == list(range(130))
    assert [len(batch) for batch in batches] == [64, 64, 2]


def test_images_targets_and_indices_belong_together() -> None:
    batches = Batches(numbered(23), target_of(23), 5, seed=3, augment=False)
    for batch in batches:
        assert batch.images.dtype == torch.float32
        assert torch.equal(batch.images[:, 0, 0, 0], batch.index / 127.5 - 1)
        assert batch.target is not None
        assert torch.equal(batch.target.hard, batch.index % 5)
        assert batch.index.dtype == torch.long


def test_an_epoch_is_a_permutation_and_epochs_differ() -> None:
    batches = Batches(numbered(40), None, 8, seed=1)
    first = flat(batches)
    assert sorted(first) == list(range(40))
    assert flat(batches) == first  # a pass does not advance the epoch
    batches.set_epoch(1)
    second = flat(batches)
    assert sorted(second) == list(range(40))
    assert second != first
    assert flat(Batches(numbered(40), None, 8, seed=2)) != first


def test_a_resumed_run_sees_what_the_whole_run_saw() -> None:
    images = noise(20)

    def run(batches: Batches, epochs: range) -> list[torch.Tensor]:
        seen = []
        for epoch in epochs:
            batches.set_epoch(epoch)
            seen += [batch.images for batch in batches]
        return seen

    torch.manual_seed(0)
    whole = run(Batches(images, None, 5, seed=7), range(4))
    torch.manual_seed(99)  # no global state takes part
    resumed = run(Batches(images, None, 5, seed=7), range(2, 4))
    assert all(torch.equal(a, b) for a, b in zip(whole[8:], resumed, strict=True))
    assert not torch.equal(whole[0], whole[4])


def test_augmentation_does_not_depend_on_the_batch_size() -> None:
    images = noise(16)

    def by_row(size: int) -> torch.Tensor:
        result = torch.empty(16, 3, 16, 16)
        for batch in Batches(images, None, size, seed=5):
            result[batch.index] = batch.images
        return result

    assert torch.equal(by_row(4), by_row(8))
    assert torch.equal(by_row(4), by_row(16))


def test_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    list(Batches(noise(8), None, 4))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_pipeline_is_equalise_then_augment(channels: int) -> None:
    images = noise(6, channels) // 4
    batches = Batches(images, None, 6, shuffle=False, seed=4, equalize=True)
    seed = np.random.SeedSequence([4, 0]).generate_state(1, np.uint64)[0]
    params = draw_augment(6, torch.Generator().manual_seed(int(seed) >> 1))
    batch = next(iter(batches))
    assert batch.images.shape == (6, channels, 16, 16)
    assert torch.equal(batch.images, augment(equalize(images), params))
    plain = next(iter(Batches(images, None, 6, shuffle=False, augment=False)))
    assert torch.equal(plain.images, to_unit(images))


def test_augmentation_options_reach_the_images() -> None:
    images = noise(12)
    options: dict[str, Any] = {"shuffle": False, "flips": (1.0, 0.0), "max_degrees": 0.0}
    batch = next(iter(Batches(images, None, 12, **options)))
    assert torch.equal(batch.images, to_unit(images.flip(3)))


def test_rows_choose_a_split() -> None:
    rows = torch.tensor([9, 2, 5])
    batches = Batches(numbered(10), target_of(10), 2, shuffle=False, rows=rows, augment=False)
    assert orders(batches) == [[9, 2, 5]]
    batch = next(iter(batches))
    assert batch.target is not None
    assert batch.target.hard.tolist() == [4, 2, 0]


@pytest.mark.parametrize("world", [2, 3, 4])
def test_processes_share_an_epoch(world: int) -> None:
    images = numbered(23)
    single = flat(Batches(images, None, 1, seed=2, drop_last=False))
    shares = [
        Batches(images, None, 4, seed=2, rank=rank, world_size=world, drop_last=False)
        for rank in range(world)
    ]
    assert len({len(share) for share in shares}) == 1
    together = [i for share in shares for i in flat(share)]
    assert len(set(together)) == len(together) == 23 // world * world
    assert set(together) == set(single[: len(together)])
    alone = {i: b.images[k] for b in Batches(images, None, 4, seed=2, drop_last=False)
             for k, i in enumerate(b.index.tolist())}  # fmt: skip
    for share in shares:
        for batch in share:
            for k, i in enumerate(batch.index.tolist()):
                assert torch.equal(batch.images[k], alone[i])
    evaluated = [
        Batches(images, None, 4, shuffle=False, rank=rank, world_size=world)
        for rank in range(world)
    ]
    assert sorted(i for share in evaluated for i in flat(share)) == list(range(23))


def test_a_store_and_its_tensor_give_the_same(tmp_path: Path) -> None:
    files = []
    for i in range(6):
        files.append(tmp_path / f"{i}.png")
        Image.fromarray(noise(6)[i].permute(1, 2, 0).numpy()).save(files[-1])
    files[2].write_text("broken")
    store = build_store(files, StoreSettings(size=16), tmp_path / "cache", on_error="skip")
    assert isinstance(store, ImageStore)
    target = target_of(6)
    from_store = list(Batches(store, target, 2, seed=1, drop_last=False))
    from_memory = list(Batches(store, target, 2, seed=1, drop_last=False, resident=True))
    assert store.to_device("cpu") is store.to_device("cpu")
    assert sorted(i for batch in from_store for i in batch.index.tolist()) == [0, 1, 3, 4, 5]
    for a, b in zip(from_store, from_memory, strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.index, b.index)
    with pytest.raises(DisMixError, match="row 2 has no image; use the rows in the store's"):
        Batches(store, target, 2, rows=torch.tensor([1, 2]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": target_of(4)}, "4 targets were given for 5 images"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"rows": torch.tensor([], dtype=torch.long)}, "no images to make batches of"),
        ({"rows": torch.tensor([5])}, "row 5 has no image"),
        ({"rank": 2, "world_size": 2}, "process 2 of 2 cannot share"),
        ({"rank": 0, "world_size": 6}, "process 0 of 6 cannot share 5 images"),
        ({"source": torch.zeros(5, 1, 8, 8)}, "images must be uint8"),
    ],
)
def test_mistakes_are_found_before_training(change: dict[str, Any], words: str) -> None:
    options: dict[str, Any] = {"source": numbered(5), "target": target_of(5), "batch_size": 2}
    with pytest.raises(DisMixError, match=words):
        Batches(**{**options, **change})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_an_accelerator_holds_the_store(tmp_path: Path) -> None:
    files = []
    for i in range(5):
        files.append(tmp_path / f"{i}.png")
        Image.fromarray(noise(5)[i].permute(1, 2, 0).numpy()).save(files[-1])
    store = build_store(files, StoreSettings(size=16), tmp_path / "cache")
    batches = Batches(store, target_of(5), 2, seed=1, drop_last=False, device="cuda")
    assert isinstance(batches.source, torch.Tensor)
    assert store.to_device("cuda") is store.to_device("cuda:0")
    for ours, cpu in zip(batches, Batches(store, None, 2, seed=1, drop_last=False), strict=True):
        assert ours.images.is_cuda
        assert ours.index.tolist() == cpu.index.tolist()
        assert (ours.images.cpu() - cpu.images).abs().max() < 1e-4


def test_a_mask_chooses_rows_as_positions_do() -> None:
    mask = torch.tensor([False, False, True, True, False, True])
    chosen = Batches(numbered(6), None, 2, rows=mask, shuffle=False, augment=False)
    assert flat(chosen) == [2, 3, 5]
    with pytest.raises(DisMixError, match="mask"):
        Batches(numbered(6), None, 2, rows=mask[:4])
