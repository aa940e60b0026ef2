"""A rotating pool of decoded mixes, so that training does not wait for the decoder.

The pool works in blocks of ``size`` mixes. While block b is served, block b + 1 is decoded in
the background (a thread, on a GPU a stream of its own). A block is served ``reuse`` times over,
each time in another order, and is then dropped. So

- a mix is used exactly ``reuse`` times when training goes on long enough, never more;
- a mix leaves at most ``2 * size * reuse`` uses after its decoding began.

What is served depends on the seed and the number of uses alone, never on the threads' timing:
a pool that is late makes the training wait.

A block may take minutes to decode; closing the pool, and leaving Python, must not. So the thread
(`dismix.background`) is one that the interpreter does not wait for, and it is asked to stop
before the interpreter goes.
"""

import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dismix.background import background
from dismix.errors import DisMixError
from dismix.seeds import rng_of
from dismix.transfer import onto


@dataclass(frozen=True)
class Pooled:
    """Decoded mixes.

    Attributes:
        images: (P, channels, H, W) uint8.
        probs: (P, C) float32, their labels.
        fell_back: (P,) whether no image of a neighbouring rank was there to mix with, in memory.
    """

    images: Tensor
    probs: Tensor
    fell_back: Tensor

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, rows: Tensor) -> "Pooled":
        where = onto(rows, self.images.device)
        return Pooled(self.images[where], self.probs[where], self.fell_back[rows])

    @classmethod
    def cat(cls, parts: "Sequence[Pooled]") -> "Pooled":
        """Return one after the other; a single part as it is."""
        if len(parts) == 1:
            return parts[0]
        images, probs, fell_back = zip(
            *((part.images, part.probs, part.fell_back) for part in parts), strict=True
        )
        return cls(torch.cat(images), torch.cat(probs), torch.cat(fell_back))


class MixPool:
    """Serves decoded mixes and makes new ones in the background.

    Args:
        make: Makes block b; called in the background, one block after the other.
        size: Mixes in a block.
        reuse: How often a mix is served at most.
        seed: Of the order.
        folder: Keep the pictures in files below this folder instead of in memory.
        position: (block, uses) to go on from, see `position`.
        stop: Set when the pool is closed; ``make`` may look at it and give up.

    Example:
        >>> def make(block):
        ...     number = torch.arange(2, dtype=torch.uint8) + 2 * block
        ...     return Pooled(number.view(2, 1, 1, 1), torch.ones(2, 2) / 2, number > 9)
        >>> with MixPool(make, 2, reuse=2, seed=0) as pool:
        ...     [sorted(pool.take(4).images.flatten().tolist()) for _ in range(2)]
        [[0, 0, 1, 1], [2, 2, 3, 3]]
    """

    def __init__(
        self,
        make: Callable[[int], Pooled],
        size: int,
        *,
        reuse: int = 4,
        seed: int = 0,
        folder: str | Path | None = None,
        position: tuple[int, int] = (0, 0),
        stop: threading.Event | None = None,
    ) -> None:
        if size < 1 or reuse < 1:
            raise DisMixError(
                f"a pool of {size} mixes used {reuse} times", cure="give whole numbers above 0"
            )
        self.size, self.reuse, self.seed = size, reuse, seed
        self.folder = None if folder is None else Path(folder)
        self._make = make
        self._block, self._uses = position
        # Its last block is served whole: the next one is due.
        self._block, self._uses = self._block + self._uses // self.period, self._uses % self.period
        self._under_way: list[Future[_Kept]] = []
        # Also when the pool is forgotten, and when the interpreter is about to go.
        self._halt = weakref.finalize(
            self, _halt, stop or threading.Event(), self._under_way, os.getpid()
        )
        self._current: _Kept | None = None
        self._next = self._begun(self._block)
        self._order = self._drawn_order()

    @property
    def period(self) -> int:
        """Uses of a block."""
        return self.size * self.reuse

    @property
    def staleness(self) -> int:
        """Most uses between the start of a mix's decoding and its own last use."""
        return 2 * self.period

    @property
    def position(self) -> tuple[int, int]:
        """The block being served and how many uses of it are spent."""
        return self._block, self._uses

    def take(self, count: int) -> Pooled:
        """Return the next ``count`` mixes; waits when they are not ready."""
        parts: list[Pooled] = []
        while count > 0:
            block = self._ready()
            stop = min(self._uses + count, self.period)
            parts.append(block.pick(self._order[self._uses : stop]))
            count -= stop - self._uses
            self._uses = stop
            if stop == self.period:
                self._turn()
        if not parts:
            return self._ready().pick(torch.zeros(0, dtype=torch.long))
        return Pooled.cat(parts)

    def close(self) -> None:
        """Stop the background work; a block in the making is dropped."""
        self._halt()
        self._current = None

    def __enter__(self) -> "MixPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ready(self) -> "_Kept":
        if self._current is None:
            self._current = self._next.result()
            self._next = self._begun(self._block + 1)
        return self._current

    def _turn(self) -> None:
        self._current = None
        self._block, self._uses = self._block + 1, 0
        self._order = self._drawn_order()

    def _drawn_order(self) -> Tensor:
        rng = rng_of(self.seed, self._block)
        return torch.cat([torch.randperm(self.size, generator=rng) for _ in range(self.reuse)])

    def _begun(self, block: int) -> "Future[_Kept]":
        """Begin a block; its making knows nothing of the pool, which may be forgotten."""
        future = background().submit(partial(_made, self._make, block, self.size, self.folder))
        self._under_way[:] = [future]
        return future


def _made(make: Callable[[int], Pooled], block: int, size: int, folder: Path | None) -> "_Kept":
    made = make(block)
    if len(made) != size:
        raise DisMixError(f"block {block} has {len(made)} mixes instead of {size}")
    return _Kept(made, folder)


def _halt(stop: threading.Event, under_way: "list[Future[_Kept]]", process: int) -> None:
    stop.set()
    if process != os.getpid() or background().is_here:
        # A forked copy has nobody at work; and garbage may be collected within the very job.
        return
    for future in under_way:
        if not future.cancel():
            # Not its result: what it raises when it is stopped is nobody's business.
            wait([future])


class _Kept:
    """A block in memory or in a file that vanishes with it."""

    def __init__(self, made: Pooled, folder: Path | None) -> None:
        self.made, self.device = made, made.images.device
        self.file: np.memmap[Any, np.dtype[np.uint8]] | None = None
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Without a name: nothing is left behind, whatever ends the process.
            with tempfile.TemporaryFile(dir=folder) as handle:
                # Not through the map: a full disk would then end the process.
                handle.write(made.images.cpu().numpy().tobytes())
                handle.flush()
                self.file = np.memmap(handle, np.uint8, "r", shape=tuple(made.images.shape))
        except OSError as error:
            raise DisMixError(
                f"the pool cannot be written ({error.strerror})",
                file=folder,
                cure="choose another pool_dir with enough space",
            ) from error
        # A copy: a view would keep the pictures on the device.
        self.made = Pooled(made.images[:0].clone(), made.probs, made.fell_back)

    def pick(self, rows: Tensor) -> Pooled:
        if self.made.probs.device.type == "cuda":
            # Made on another stream: its memory must outlive what this one still reads.
            for tensor in (self.made.images, self.made.probs):
                tensor.record_stream(torch.cuda.current_stream(self.device))
        if self.file is not None:
            images = torch.from_numpy(self.file[rows.numpy()])
            where = onto(rows, self.made.probs.device)
            probs, fell_back = self.made.probs[where], self.made.fell_back[rows]
            return Pooled(images.to(self.device), probs, fell_back)
        return self.made[rows]
