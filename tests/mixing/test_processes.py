"""Processes of one training: streams and batches of their own, states of each other."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.adapters import as_collate
from dismix.mixing.dismix import DisMix
from dismix.mixing.mixup import Mixup
from dismix.mixing.sampler import OrdinalPairSampler
from dismix.mixing.streams import process_count, process_number
from dismix.mixing.sumix import SUMix

VARIABLES = ("RANK", "SLURM_PROCID", "LOCAL_RANK", "WORLD_SIZE")


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def become(monkeypatch):
    """Turn this process into another one of a distributed training."""

    def change(rank, world=4):
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: world)

    return change


def targets_of(mix, steps=1):
    images, labels = torch.zeros(6, 1, 1, 1), torch.arange(6) % 3
    return [mix(images, labels)[1] for _ in range(steps)][-1]


def test_the_number_of_a_process(monkeypatch, become):
    assert (process_number(), process_count()) == (0, 1)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert process_number() == 3
    monkeypatch.setenv("SLURM_PROCID", "2")
    assert process_number() == 2
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert (process_number(), process_count()) == (1, 4)
    for nothing in ("", " ", "-1", "first"):
        monkeypatch.setenv("RANK", nothing)
        monkeypatch.setenv("WORLD_SIZE", nothing)
        assert (process_number(), process_count()) == (2, 1)
    become(5, 8)
    assert (process_number(), process_count()) == (5, 8)


@pytest.mark.parametrize("name", VARIABLES[:3])
def test_processes_draw_apart_whoever_numbers_them(monkeypatch, name):
    drawn = []
    for number in ("0", "1", ""):
        monkeypatch.setenv(name, number)
        drawn.append(targets_of(Mixup(3, p=1.0)))
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0], drawn[2])


def test_a_process_alone_draws_as_ever():
    words = np.random.SeedSequence([7, 0]).generate_state(1, np.uint64)
    assert Mixup(3, seed=7).generator.initial_seed() == int(words[0]) >> 1


def test_a_mixer_made_before_the_processes_draws_apart_in_them(become):
    before, alone = pickle.dumps(Mixup(3, p=1.0)), targets_of(Mixup(3, p=1.0))
    drawn = []
    for rank in (0, 1, 2, 1):
        become(rank)
        drawn.append(targets_of(pickle.loads(before)))
    assert torch.equal(drawn[0], alone)
    assert torch.equal(drawn[1], drawn[3])
    assert len({tuple(d.flatten().tolist()) for d in drawn}) == 3
    # A generator that was given is the caller's affair.
    given = [Mixup(3, p=1.0, generator=torch.Generator().manual_seed(1)) for _ in range(2)]
    first = targets_of(given[0])
    become(2)
    assert torch.equal(targets_of(given[1]), first)


def test_a_state_is_gone_on_with_by_its_process_and_left_by_others(become):
    for owner in (0, 2):
        become(owner)
        mix = Mixup(3, p=1.0)
        targets_of(mix, 2)
        state = {name: value.clone() for name, value in mix.state_dict().items()}
        after, later = targets_of(mix), {}
        for rank in (0, 1, 2, 3):
            become(rank)
            again = Mixup(3, p=1.0, seed=9)
            again.load_state_dict(state)
            later[rank] = targets_of(again)
            # What is saved from now on is this process's own, and goes on exactly.
            own = {name: value.clone() for name, value in again.state_dict().items()}
            third = Mixup(3, p=1.0)
            third.load_state_dict(own)
            assert torch.equal(targets_of(third), targets_of(again))
        assert torch.equal(later[owner], after)
        assert len({tuple(d.flatten().tolist()) for d in later.values()}) == 4


def test_a_generator_that_was_given_stays_the_callers(become):
    given = torch.Generator().manual_seed(3)
    mix = Mixup(3, p=1.0, generator=given)
    targets_of(mix)
    state = {name: value.clone() for name, value in mix.state_dict().items()}
    after = targets_of(mix)
    become(1)
    again = Mixup(3, p=1.0, generator=torch.Generator())
    again.load_state_dict(state)
    # All processes were to draw alike, and still do.
    assert torch.equal(targets_of(again), after)


def test_states_of_earlier_versions_are_read(become):
    mix = Mixup(3, p=1.0)
    before = {"_extra_state": mix.generator.get_state()}
    after = targets_of(mix)
    for rank, same in ((0, True), (1, False)):
        become(rank)
        again = Mixup(3, p=1.0, seed=9)
        again.load_state_dict(before)
        assert torch.equal(targets_of(again), after) == same
    with pytest.raises(DisMixError, match="not the random state of a mixup mixer"):
        again.load_state_dict({"_extra_state": before["_extra_state"][:-1]})


def test_the_pool_is_another_processes_too(toy_run, become):
    images, labels = torch.zeros(4, 1, 32, 32), torch.arange(4)
    with DisMix.load(toy_run, p=1.0, pool=8) as mix:
        mix(images, labels)
        state = mix.state_dict()["_extra_state"].clone()
        # Without the number, as before: state, seed and place of the pool.
        old = torch.cat([state[:-32], state[-24:]])
        after = mix(images, labels)[0]
    for given in (state, old):
        for rank, same in ((0, True), (1, False)):
            become(rank)
            with DisMix.load(toy_run, p=1.0, pool=8, seed=5) as again:
                again.load_state_dict({"_extra_state": given})
                assert torch.equal(again(images, labels)[0], after) == same
                assert (again.pool_seed == mix.pool_seed) == same


def test_sumix_parts_with_the_stream_of_its_base(become):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(1, 3))
    drawn = []
    for rank in (0, 1):
        become(0)
        mix = SUMix(3, base=Mixup(3, p=1.0), model=model)
        become(rank)
        drawn.append(targets_of(mix))
    assert not torch.equal(drawn[0], drawn[1])


@pytest.fixture
def worker(monkeypatch):
    info = SimpleNamespace(seed=2**40 + 7, id=0)
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: info)


@pytest.mark.usefixtures("worker")
def test_workers_of_processes_seeded_alike_draw_apart(become):
    samples = [(torch.zeros(1, 1, 1), i % 3) for i in range(6)]
    alone = Mixup(3, p=1.0)
    own = int(torch.randint(2**62, (), generator=alone.generator))
    alone.reseed(own, 4, 2**40 + 7)
    drawn = [as_collate(Mixup(3, p=1.0), seed=4)(samples)[1]]
    assert torch.equal(drawn[0], targets_of(alone))
    for rank in (0, 1, 2):
        become(rank)
        drawn.append(as_collate(Mixup(3, p=1.0), seed=4)(samples)[1])
    assert torch.equal(drawn[0], drawn[1])
    assert len({tuple(d.flatten().tolist()) for d in drawn}) == 3


@pytest.mark.usefixtures("worker")
def test_a_spawned_worker_is_told_its_process(monkeypatch):
    """It inherits nothing of torch.distributed."""
    samples, drawn = [(torch.zeros(1, 1, 1), i % 3) for i in range(6)], []
    for number in ("1", "2"):
        monkeypatch.setenv("RANK", number)
        sent = pickle.dumps(as_collate(Mixup(3, p=1.0)))
        monkeypatch.delenv("RANK")
        drawn.append(pickle.loads(sent)(samples)[1])
    assert not torch.equal(drawn[0], drawn[1])


@pytest.mark.parametrize("count", [2, 3, 9])
def test_processes_share_the_batches_of_a_sampler(count):
    target = OrdinalTarget.from_labels(torch.arange(26) % 3, 3)
    whole = list(OrdinalPairSampler(target, 8))
    assert len(whole) == 7
    parts = [OrdinalPairSampler(target, 8, rank=r, world_size=count) for r in range(count)]
    batches = [list(part) for part in parts]
    assert {len(part) for part in parts} == {len(part) for part in batches} == {-(-7 // count)}
    dealt = [batch for turn in zip(*batches, strict=True) for batch in turn]
    assert dealt == (whole + whole)[: len(dealt)]


def test_a_sampler_knows_its_process(monkeypatch, become):
    target = OrdinalTarget.from_labels(torch.arange(26) % 3, 3)
    sampler = OrdinalPairSampler(target, 8)
    whole = list(sampler)
    # A number alone tells of no others to share with.
    monkeypatch.setenv("SLURM_PROCID", "3")
    assert list(sampler) == whole
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert list(sampler)[:3] == whole[1::2]
    become(2, 4)
    assert list(sampler) == whole[2::4]
    assert list(OrdinalPairSampler(target, 8, world_size=1)) == whole
    for rank, count in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(DisMixError, match="counted from 0, together with world_size="):
            OrdinalPairSampler(target, 8, rank=rank, world_size=count)
