"""The pool of a process: where it goes on, and what travels to other processes."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from tests.mixing.test_pool import SIZE, numbered

from dismix.errors import DisMixError
from dismix.mixing.pool import MixPool, Pooled
from dismix.mixing.serving import PoolService

# Blocks are made on the CPU in any case; only that the device is another one matters here.
HERE, ELSEWHERE = torch.device("cpu"), torch.device("meta")


def block(seed: int, number: int, stopped: Callable[[], bool]) -> Pooled:
    return numbered(number)


def taken(pool: MixPool, count: int) -> list[int]:
    return pool.take(count).probs.flatten().int().tolist()


def service(seed: int = 3) -> PoolService:
    return PoolService(SIZE, 2, None, seed)


@pytest.fixture
def whole() -> list[int]:
    with MixPool(numbered, SIZE, reuse=2, seed=3) as pool:
        return taken(pool, 40)


def test_another_device_goes_on_where_the_first_was(whole: list[int]) -> None:
    served = service()
    first = taken(served.on(HERE, block), 7) + taken(served.on(HERE, block), 8)
    assert served.runs_on(HERE)
    then = taken(served.on(ELSEWHERE, block), 25)
    assert served.runs_on(ELSEWHERE)
    assert not served.runs_on(HERE)
    served.close()
    assert first + then == whole


def test_closing_and_copies_keep_the_place(whole: list[int]) -> None:
    served = service()
    taken(served.on(HERE, block), 19)
    assert served.place == (1, 7)
    copies = [copy.copy(served), copy.deepcopy(served), pickle.loads(pickle.dumps(served))]
    served.close()
    for one in (served, *copies):
        assert one.place == (1, 7)
        assert taken(one.on(HERE, block), 21) == whole[19:]
        one.close()


def test_a_restart_serves_from_the_given_place(whole: list[int]) -> None:
    served = service(seed=5)
    assert taken(served.on(HERE, block), 40) != whole
    served.restart(3, (0, 12))
    assert taken(served.on(HERE, block), 28) == whole[12:]
    served.restart(3)
    assert taken(served.on(HERE, block), 12) == whole[:12]
    served.close()


@pytest.mark.parametrize(("size", "reuse"), [(-1, 4), (8, 0), (2.5, 4), (8, 1.5)])
def test_sizes_that_make_no_pool_are_refused(size: float, reuse: float) -> None:
    with pytest.raises(DisMixError, match="whole numbers above 0"):
        PoolService(size, reuse, None, 0)  # type: ignore[arg-type]
