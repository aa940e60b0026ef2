"""Batches of images and targets, the same again for the same (seed, epoch).

The order of an epoch and the augmentation of every image in it depend on the seed and the
epoch only, not on the batch size, the device or what ran before, so a resumed run sees
what the uninterrupted one would have seen.

Several processes (DDP)::

    batches = Batches(store, target, 64, rank=accelerator.process_index,
                      world_size=accelerator.num_processes, device=accelerator.device)
    for epoch in range(epochs):
        batches.set_epoch(epoch)
        for batch in batches: ...

Every process draws the same order and takes every ``world_size``-th image of it;
``batch_size`` is that of one process. When shuffling, the last ``N mod world_size`` images
of the order (others each epoch) sit out, so that all processes take equally many steps;
without shuffling every image is seen exactly once by exactly one process.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dismix.data.store import ImageStore
from dismix.data.transforms import augment, draw_augment, equalize, to_unit
from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.seeds import rng_of
from dismix.transfer import onto


@dataclass(frozen=True)
class Batch:
    """One step's worth of data.

    Attributes:
        images: (B, channels, H, W), float32 within [-1, 1].
        target: Targets of the B images, or None when the batches have none.
        index: (B,) long, rows in the source.
    """

    images: Tensor
    target: OrdinalTarget | None
    index: Tensor

    def __len__(self) -> int:
        return len(self.index)


def batch_bounds(count: int, batch_size: int, *, drop_last: bool = False) -> list[tuple[int, int]]:
    """Cut ``count`` images into batches.

    A batch larger than the data is capped to it, so there is always a batch. An odd image
    at the end joins the batch before it, because batch normalisation cannot train on one.

    Args:
        count: Number of images.
        batch_size: Images in a batch.
        drop_last: Leave out an incomplete last batch.

    Returns:
        (start, stop) of each batch.

    Example:
        >>> batch_bounds(9, 4), batch_bounds(9, 4, drop_last=True), batch_bounds(3, 64)
        ([(0, 4), (4, 9)], [(0, 4), (4, 8)], [(0, 3)])
    """
    size = min(batch_size, count)
    if count == 0:
        return []
    starts = list(range(0, count, size))
    if drop_last:
        return [(start, start + size) for start in starts if start + size <= count]
    bounds = [(start, min(start + size, count)) for start in starts]
    if size > 1 and len(bounds) > 1 and bounds[-1][1] - bounds[-1][0] == 1:
        bounds[-2:] = [(bounds[-2][0], count)]
    return bounds


class Batches:
    """An iterable over batches; one pass is one epoch.

    Args:
        source: N images: a store, or a uint8 tensor (N, channels, H, W) on any device.
        target: Targets of the N images of the source, or None.
        batch_size: Images in a batch, for each process.
        shuffle: A new order each epoch; else the order of ``rows``.
        seed: With the epoch, decides the order and the augmentation.
        rows: The images to use, as positions or as a mask (N,), by default all. Of a store,
            a mask means those that were not skipped.
        augment: Random flips and rotations, see :func:`dismix.data.transforms.augment`.
        flips: Chances of horizontal and vertical flips.
        max_degrees: Rotations stay strictly below.
        equalize: Equalise histograms before anything else.
        drop_last: Leave out an incomplete last batch. "auto" does so when shuffling at
            least two batches' worth of images.
        device: Where batches go; by default where the source is.
        resident: Keep all images of a store on the device, one copy for all batches of the
            store. "auto" does so on an accelerator when they take little of its memory.
        rank: Number of this process, for DDP.
        world_size: Number of processes.

    Example:
        >>> images = torch.zeros(5, 1, 8, 8, dtype=torch.uint8)
        >>> target = OrdinalTarget.from_labels([0, 1, 2, 1, 0], num_ranks=3)
        >>> for batch in Batches(images, target, 2, shuffle=False, augment=False):
        ...     print(batch.index.tolist(), tuple(batch.images.shape), batch.target.hard.tolist())
        [0, 1] (2, 1, 8, 8) [0, 1]
        [2, 3, 4] (3, 1, 8, 8) [2, 1, 0]
    """

    def __init__(
        self,
        source: ImageStore | Tensor,
        target: OrdinalTarget | None,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        rows: Tensor | None = None,
        augment: bool = True,
        flips: tuple[float, float] = (0.5, 0.5),
        max_degrees: float = 20.0,
        equalize: bool = False,
        drop_last: bool | Literal["auto"] = "auto",
        device: torch.device | str | None = None,
        resident: bool | Literal["auto"] = "auto",
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        home = source.device if isinstance(source, Tensor) else torch.device("cpu")
        self.device = torch.device(device) if device is not None else home
        self.target = target
        self.batch_size, self.shuffle, self.seed = batch_size, shuffle, seed
        self.augment, self.flips, self.max_degrees = augment, flips, max_degrees
        self.equalize, self.rank, self.world_size = equalize, rank, world_size
        self.rows = _usable_rows(source, rows)
        self.epoch = 0
        if target is not None and len(target) != len(source):
            raise DisMixError(f"{len(target)} targets were given for {len(source)} images")
        if batch_size < 1:
            raise DisMixError(f"batch_size is {batch_size}", cure="give a positive whole number")
        if not 0 <= rank < world_size or (shuffle and len(self.rows) < world_size):
            raise DisMixError(
                f"process {rank} of {world_size} cannot share {len(self.rows)} images",
                cure="use fewer processes",
            )
        count = self._share_size()
        self.drop_last = shuffle and count >= 2 * batch_size if drop_last == "auto" else drop_last
        self._bounds = batch_bounds(count, batch_size, drop_last=self.drop_last)
        self.source = source
        if isinstance(source, ImageStore) and (
            resident is True or (resident == "auto" and source.fits_on(self.device))
        ):
            self.source = source.to_device(self.device)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next pass shows; a pass does not advance it."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self._bounds)

    def __iter__(self) -> Iterator[Batch]:
        generator = rng_of(self.seed, self.epoch)
        order = torch.arange(len(self.rows))
        if self.shuffle:
            order = torch.randperm(len(self.rows), generator=generator)
            order = order[: len(order) // self.world_size * self.world_size]
        params = draw_augment(
            len(self.rows), generator, flips=self.flips, max_degrees=self.max_degrees
        )
        order = order[self.rank :: self.world_size]
        for start, stop in self._bounds:
            chosen = order[start:stop]
            index = self.rows[chosen]
            images = self._fetch(index)
            unit = augment(images, params[chosen]) if self.augment else to_unit(images)
            # Targets may lie on another device than the index: each is moved once.
            target = None
            if self.target is not None:
                target = self.target[onto(index, self.target.probs.device)].to(self.device)
            yield Batch(unit, target, onto(index, self.device))

    def _fetch(self, index: Tensor) -> Tensor:
        if isinstance(self.source, Tensor):
            images = self.source[onto(index, self.source.device)]
        else:
            images = self.source[index]
        images = images.to(self.device, non_blocking=True)
        return equalize(images) if self.equalize else images

    def _share_size(self) -> int:
        if self.shuffle:
            return len(self.rows) // self.world_size
        return len(range(self.rank, len(self.rows), self.world_size))


def _usable_rows(source: ImageStore | Tensor, rows: Tensor | None) -> Tensor:
    """Return the rows as a CPU tensor, checked before training rather than in the middle."""
    if isinstance(source, Tensor) and (source.dtype != torch.uint8 or source.ndim != 4):
        raise DisMixError(
            f"images must be uint8 (N, channels, H, W), got {source.dtype} {tuple(source.shape)}"
        )
    valid = torch.arange(len(source)) if isinstance(source, Tensor) else source.valid
    if rows is None:
        rows = valid
    rows = torch.as_tensor(rows).cpu()
    if rows.dtype == torch.bool:
        # A mask taken for positions would silently show images 0 and 1 only.
        if rows.shape != (len(source),):
            raise DisMixError(f"a mask of rows must be ({len(source)},), got {tuple(rows.shape)}")
        rows = valid[rows[valid]]
    rows = rows.long()
    if len(rows) == 0:
        raise DisMixError("there are no images to make batches of", cure="check the split")
    wrong = rows[~torch.isin(rows, valid)]
    if len(wrong):
        raise DisMixError(
            f"row {int(wrong[0])} has no image", cure="use the rows in the store's `valid`"
        )
    return rows
