"""The pool of this process: begun on first use, gone on with on another device or after a fork."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import get_worker_info

from dismix.errors import DisMixError
from dismix.mixing.pool import MixPool, Pooled

#: Makes a block: seed, number, and what to ask now and then whether to give up.
MakeBlock = Callable[[int, int, Callable[[], bool]], Pooled]
Place = tuple[int, int]


class PoolService:
    """Holds the settings of a rotating pool, its place, and the pool itself once it is needed.

    Args:
        size: Mixes of a block; 0 serves nothing.
        reuse: How often a mix is used at most.
        folder: Keep the pictures in files below this folder instead of on the device.
        seed: Decides all that is served.

    Attributes:
        seed: Of the pool; processes of a data loader add their number to it.
    """

    def __init__(self, size: int, reuse: int, folder: str | Path | None, seed: int) -> None:
        whole = all(isinstance(n, int | float) and int(n) == n for n in (size, reuse))
        if not whole or size < 0 or reuse < 1:
            raise DisMixError(
                f"a pool of {size} mixes used {reuse} times", cure="give whole numbers above 0"
            )
        self.size, self.reuse, self.folder = int(size), int(reuse), folder
        self.seed, self._place = seed, (0, 0)
        self._running: tuple[int, torch.device, MixPool] | None = None

    @property
    def place(self) -> Place:
        """The block being served and how many uses of it are spent."""
        return self._place if self._running is None else self._running[2].position

    def runs_on(self, device: torch.device) -> bool:
        """Tell whether a pool of this process serves a device already."""
        return self._running is not None and self._running[:2] == (os.getpid(), device)

    def on(self, device: torch.device, make: MakeBlock) -> MixPool:
        """Return the pool of this process on a device.

        Args:
            device: Where mixes are served.
            make: Makes a block there.
        """
        if self._running is not None and self.runs_on(device):
            return self._running[2]
        self.close()
        # Workers of a loader are copies of one process and must not serve the same mixes.
        worker = get_worker_info()
        seed = self.seed + (0 if worker is None else worker.id + 1)
        stop = threading.Event()
        pool = MixPool(
            _on_own_stream(make, seed, device, stop), self.size, reuse=self.reuse, seed=seed,
            folder=self.folder, position=self._place, stop=stop,
        )  # fmt: skip
        self._running = (os.getpid(), device, pool)
        return pool

    def close(self) -> None:
        """Stop the background work; the next use goes on from here."""
        self._place = self.place
        if self._running is not None and self._running[0] == os.getpid():
            self._running[2].close()
        self._running = None

    def restart(self, seed: int, place: Place = (0, 0)) -> None:
        """Serve another sequence, or the same one from another place."""
        self.close()
        self.seed, self._place = seed, place

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_running": None, "_place": self.place}


def _on_own_stream(
    make: MakeBlock, seed: int, device: torch.device, stop: threading.Event
) -> Callable[[int], Pooled]:
    """Return what makes a block by its number, on a GPU beside the training's own stream."""
    if device.type != "cuda":
        return lambda block: make(seed, block, stop.is_set)
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def made(block: int) -> Pooled:
        with torch.cuda.stream(stream):
            pooled = make(seed, block, stop.is_set)
            stream.synchronize()
            return pooled

    return made
