"""The rotating pool: its bounds, its order, its files."""

import errno
import gc
import io
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from dismix.errors import DisMixError
from dismix.mixing.pool import MixPool, Pooled

SIZE = 6


def numbered(block: int, size: int = SIZE) -> Pooled:
    """Mixes that carry their own number."""
    number = torch.arange(size) + size * block
    images = number.to(torch.uint8).view(-1, 1, 1, 1)
    return Pooled(images, number.float().view(-1, 1), number % 3 == 0)


@pytest.mark.parametrize("count", [1, 4, 5, 17, 100])
@pytest.mark.parametrize("reuse", [1, 4])
def test_no_mix_is_used_more_often_than_said(count: int, reuse: int) -> None:
    uses: Counter[int] = Counter()
    with MixPool(numbered, SIZE, reuse=reuse, seed=1) as pool:
        for _ in range(max(1, 240 // count)):
            taken = pool.take(count)
            assert len(taken) == count
            assert torch.equal(taken.images.flatten().float(), taken.probs.flatten())
            assert torch.equal(taken.fell_back, taken.images.flatten() % 3 == 0)
            uses.update(taken.probs.flatten().int().tolist())
    assert max(uses.values()) <= reuse
    finished = [uses[n] for n in range(SIZE * pool.position[0])]
    assert set(finished) <= {reuse}, "blocks that are done were used up"


def test_staleness_stays_within_its_bound() -> None:
    started: dict[int, int] = {}
    used = 0

    def make(block: int) -> Pooled:
        started[block] = used
        return numbered(block)

    with MixPool(make, SIZE, reuse=3, seed=0) as pool:
        assert pool.staleness == 2 * SIZE * 3
        for _ in range(60):
            for number in pool.take(5).probs.flatten().int().tolist():
                assert used + 5 - started[number // SIZE] <= pool.staleness + 5
            used += 5


def test_at_most_one_block_is_made_ahead() -> None:
    made: list[int] = []

    def make(block: int) -> Pooled:
        made.append(block)
        return numbered(block)

    with MixPool(make, SIZE, reuse=2, seed=0) as pool:
        for _ in range(30):
            pool.take(1)
            time.sleep(0.002)
            assert max(made) <= pool.position[0] + 1


def test_blocks_are_made_in_the_background() -> None:
    threads: set[str] = set()
    gate = threading.Event()

    def make(block: int) -> Pooled:
        threads.add(threading.current_thread().name)
        if block == 1:
            gate.wait(5)
        return numbered(block)

    with MixPool(make, SIZE, reuse=2, seed=0) as pool:
        for _ in range(2 * SIZE - 1):
            pool.take(1)  # Served although the next block is stuck.
        gate.set()
        assert pool.take(3).probs.max() >= SIZE
    assert all(name == "dismix-background" for name in threads)


def test_what_is_served_depends_on_seed_and_place_only() -> None:
    def slow(block: int) -> Pooled:
        time.sleep(0.01)
        return numbered(block)

    def served(make, seed: int, counts: list[int], **options) -> list[int]:
        with MixPool(make, SIZE, reuse=2, seed=seed, **options) as pool:
            return [n for c in counts for n in pool.take(c).probs.flatten().int().tolist()]

    whole = served(numbered, 3, [40])
    assert served(slow, 3, [7, 1, 30, 2]) == whole
    assert served(numbered, 4, [40]) != whole
    with MixPool(numbered, SIZE, reuse=2, seed=3) as pool:
        pool.take(19)
        place = pool.position
    assert place == (1, 7)
    assert served(numbered, 3, [21], position=place) == whole[19:]
    assert served(numbered, 3, [28], position=(0, 12)) == whole[12:]
    # The place of a pool of larger blocks.
    assert served(numbered, 3, [21], position=(0, 19)) == whole[19:]
    assert [n - SIZE for n in whole[12:24]] != whole[:12], "blocks have orders of their own"


def test_a_pool_on_disk_serves_the_same_and_leaves_nothing(tmp_path: Path) -> None:
    with MixPool(numbered, SIZE, seed=2) as memory:
        wanted = memory.take(50).images
    with MixPool(numbered, SIZE, seed=2, folder=tmp_path / "pool") as disk:
        assert torch.equal(disk.take(50).images, wanted)
        assert not list((tmp_path / "pool").iterdir())


def test_closing_and_forgetting_stop_the_work() -> None:
    begins, stop, ended = (threading.Event() for _ in range(3))

    def endless(block: int) -> Pooled:
        begins.set()
        assert stop.wait(20), "nobody asked it to stop"
        ended.set()
        raise RuntimeError

    begun = time.monotonic()
    pool = MixPool(endless, SIZE, stop=stop)
    assert begins.wait(5)
    pool.close()
    assert ended.is_set()
    begins.clear(), stop.clear(), ended.clear()
    forgotten = MixPool(endless, SIZE, stop=stop)
    assert begins.wait(5)
    del forgotten
    gc.collect()
    assert ended.wait(5)
    assert time.monotonic() - begun < 10


def test_all_pools_of_a_process_share_one_thread() -> None:
    threads: set[int] = set()

    def make(block: int) -> Pooled:
        threads.add(threading.get_ident())
        return numbered(block)

    for _ in range(3):
        with MixPool(make, SIZE, reuse=1, seed=0) as pool:
            pool.take(4 * SIZE)
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_a_pool_that_is_closed_before_its_turn_makes_nothing() -> None:
    gate, made = threading.Event(), []

    def first(block: int) -> Pooled:
        gate.wait(5)
        return numbered(block)

    with MixPool(first, SIZE) as busy:
        MixPool(lambda block: made.append(block) or numbered(block), SIZE).close()
        gate.set()
        busy.take(1)
    assert made == []


LEAVE = """
import sys, torch
torch.set_num_threads(1)
from dismix.mixing.dismix import DisMix
mix = DisMix.load(sys.argv[1], pool=10**6)
mix.pool("cpu")
raise SystemExit(3)
"""


def test_python_leaves_while_a_block_is_in_the_making(toy_run: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run(
        [sys.executable, "-c", LEAVE, toy_run], env=environment, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert not done.stderr


def test_failures_reach_the_caller(tmp_path: Path) -> None:
    def broken(block: int) -> Pooled:
        raise DisMixError("cannot decode")

    with MixPool(broken, SIZE) as pool, pytest.raises(DisMixError, match="cannot decode"):
        pool.take(1)
    with MixPool(lambda b: numbered(b, 2), 3) as pool, pytest.raises(DisMixError, match="2 mixes"):
        pool.take(1)
    with pytest.raises(DisMixError, match="0 mixes used 4 times"):
        MixPool(numbered, 0)
    (tmp_path / "file").write_text("")
    with (
        MixPool(numbered, SIZE, folder=tmp_path / "file") as pool,
        pytest.raises(DisMixError, match="pool cannot be written"),
    ):
        pool.take(1)


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, content: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Full())
    with (
        MixPool(numbered, SIZE, folder=tmp_path) as pool,
        pytest.raises(DisMixError, match=r"written \(No space left on device\); choose another"),
    ):
        pool.take(1)
