"""A memory-mapped uint8 store: every image is decoded and resized once, then only sliced.

A store is a folder named by a digest of the files' contents, their order and the settings,
so the same images always find the same store, wherever they lie and whatever they are
called, and changed images never find a stale one::

    <cache>/digests.sqlite         digests of unchanged files, see dismix.data.digest
    <cache>/<key>/images.u8        N x channels x size x size bytes
    <cache>/<key>/done-*.u8, lock  see dismix.data.building
    <cache>/<key>/index.json       settings, shape, digests, skipped rows, by which rules it was
                                   decoded (dismix.data.store_outdated); written last

``index.json`` makes a store complete. No path, name or file header is written anywhere.
Stores can be deleted at any time when no process uses them.

Training reads one store a split (`dismix.data.preparing`): images of another split need not be
there yet.
"""

import json
import mmap
import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dismix.atomic import write_json
from dismix.data.building import DONE, IMAGES, LOCK, OnError, fill_rows
from dismix.data.depth import Depth, depth_note
from dismix.data.digest import content_digests, forget
from dismix.data.store_outdated import up_to_date
from dismix.data.store_settings import (
    DECODING,
    FORMAT,
    ChangedFileError,
    StoreSettings,
    load_image,
    store_key,
)
from dismix.errors import DisMixError
from dismix.locks import locked
from dismix.progress import Progress

__all__ = ["ImageStore", "Skipped", "StoreSettings", "build_store", "default_cache_dir"]

INDEX = "index.json"
# Mapped pages count as the process's memory until they are given back.
_RELEASE_BYTES = 64 * 2**20
#: Larger stores stay on disk, mapped, and batches are copied as they are needed: 10 900 colour
#: images of 256 px.
RESIDENT_MOST = 2 * 2**30

Rows = int | slice | Sequence[int] | NDArray[np.integer[Any]] | Tensor


@dataclass(frozen=True)
class Skipped:
    """A file that could not be used: its row in the store, its path, and the reason."""

    row: int
    path: Path
    reason: str


def default_cache_dir() -> Path:
    """Return the folder for image stores: below $DISMIX_CACHE, else below ~/.cache/dismix."""
    root = os.environ.get("DISMIX_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "dismix") / "images"


def build_store(
    paths: Sequence[str | Path],
    settings: StoreSettings | None = None,
    cache_dir: str | Path | None = None,
    *,
    on_error: OnError = "stop",
    workers: int | None = None,
    progress: Progress | None = None,
) -> "ImageStore":
    """Open the store of these files, after decoding what it lacks.

    Several processes may call this at once: one builds, the others wait and then use the
    result. A killed build goes on where it was. Memory does not depend on the number of
    images. Rows that were skipped earlier are tried again, also when their file was replaced by
    another one of the same size and time.

    Args:
        paths: N image files; row i of the store is file i.
        settings: Size, channels and the like.
        cache_dir: Folder for stores, :func:`default_cache_dir` when absent.
        on_error: "stop" raises on the first bad file; "skip" lists it in ``skipped``.
        workers: Decoding threads, by default one for each core this process may use.
        progress: Called as ``progress("decoding images", files finished, N)``.

    Returns:
        The open store.

    Raises:
        DisMixError: A file is bad (``on_error="stop"``), all are, or the cache cannot be
            written.
    """
    settings = settings or StoreSettings()
    files = [Path(path) for path in paths]
    if not files:
        raise DisMixError("no images to store", cure="check the manifest")
    cache = Path(cache_dir) if cache_dir is not None else default_cache_dir()
    if not cache.is_dir():  # A finished store may be used from a folder that is read-only.
        _make_folder(cache)
    make = partial(_open_or_build, files, settings, cache, on_error, workers or _cores(), progress)
    try:
        return make()
    except ChangedFileError:
        if on_error == "stop":
            raise
        # Its old digest is forgotten by now, and who skips bad files asked to go on.
        return make()


def _open_or_build(
    files: list[Path],
    settings: StoreSettings,
    cache: Path,
    on_error: OnError,
    workers: int,
    progress: Progress | None,
) -> "ImageStore":
    skip = on_error == "skip"
    digests = content_digests(files, cache, workers=workers, skip_unreadable=skip)
    folder = cache / store_key(digests, settings)
    try:
        store = ImageStore(folder, files)
        if not store.skipped and up_to_date(folder / INDEX, files, store.decoding):
            return store
    except DisMixError:
        pass  # Absent, unfinished or damaged: built below.
    _make_folder(folder)
    with locked(folder / LOCK):
        _build(folder, files, digests, settings, on_error, workers, progress)
        return ImageStore(folder, files)


def _build(
    folder: Path,
    files: list[Path],
    digests: list[str],
    settings: StoreSettings,
    on_error: OnError,
    workers: int,
    progress: Progress | None,
) -> None:
    shape = [len(files), settings.channels, settings.size, settings.size]
    if not (folder / DONE).exists():
        # Rows that an older version read go now, and with them what makes a store complete.
        (folder / INDEX).unlink(missing_ok=True)
    changed: list[ChangedFileError] = []
    depths: list[Depth] = []

    def load(row: int) -> NDArray[np.uint8]:
        try:
            return load_image(files[row], settings, digests[row], depths.append)
        except ChangedFileError as error:
            changed.append(error)
            raise

    try:
        skipped = fill_rows(
            folder, len(files), int(np.prod(shape[1:])), load,
            on_error=on_error, workers=workers, progress=progress,
        )  # fmt: skip
    finally:
        forget([Path(str(error.file)) for error in changed], folder.parent)
    if changed:
        # Not bad, but another one than the digest says: never to be listed as skipped.
        raise changed[0]
    if len(skipped) == len(files):
        raise DisMixError(f"no image could be read; {skipped[0]}", file=files[0])
    reasons = [{"row": row, "reason": reason} for row, reason in skipped.items()]
    index = {"format": FORMAT, "decoding": DECODING, "settings": asdict(settings), "shape": shape}
    write_json(folder / INDEX, {**index, "skipped": reasons, "digests": digests})
    if note := depth_note(depths, settings.bits):
        warnings.warn(note, stacklevel=2)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise DisMixError(
            f"the image cache cannot be written ({error.strerror})",
            file=folder,
            cure="set DISMIX_CACHE to a folder that can",
        ) from None


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class ImageStore:
    """N images of one shape, read from disk as they are asked for.

    Args:
        folder: Folder of a complete store.
        paths: The N files it was built from, for messages only.

    Attributes:
        shape: (N, channels, size, size).
        settings: How it was built.
        digests: Content digest of each file; equal images have equal digests.
        decoding: By which rules, see `dismix.data.store_outdated`.
        skipped: Files that could not be used.
        valid: Rows that hold an image (long, increasing).
    """

    def __init__(self, folder: str | Path, paths: Sequence[str | Path]) -> None:
        self.folder, self.paths = Path(folder), [Path(path) for path in paths]
        try:
            index = json.loads((self.folder / INDEX).read_text(encoding="utf-8"))
            self.settings = StoreSettings(**index["settings"])
            self.shape: tuple[int, int, int, int] = tuple(index["shape"])
            self.digests: list[str] = index["digests"]
            self.decoding = int(index.get("decoding", 1))
            skipped = [(int(item["row"]), str(item["reason"])) for item in index["skipped"]]
            whole = (self.folder / IMAGES).stat().st_size == self.nbytes
            whole &= index["format"] == FORMAT and len(self.paths) == self.shape[0]
        except (OSError, ValueError, KeyError, TypeError):
            whole = False
        if not whole:
            raise DisMixError(
                "is not a complete image store of these files",
                file=self.folder,
                cure="build it again with build_store",
            )
        self.skipped = tuple(Skipped(row, self.paths[row], reason) for row, reason in skipped)
        self._usable = np.ones(len(self), bool)
        self._usable[[item.row for item in self.skipped]] = False
        self.valid = torch.from_numpy(np.flatnonzero(self._usable))
        self._map()

    def _map(self) -> None:
        with open(self.folder / IMAGES, "rb") as handle:
            self._mapping = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
        self._array = np.frombuffer(self._mapping, np.uint8).reshape(self.shape)
        self._touched = 0
        self._resident: dict[torch.device, Tensor] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all images."""
        return int(np.prod(self.shape, dtype=np.int64))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Rows) -> Tensor:
        """Return images as a fresh uint8 tensor.

        Args:
            rows: An index gives (channels, H, W); a slice, a sequence or a tensor of
                indices gives (B, channels, H, W).
        """
        if isinstance(rows, int | np.integer):
            return self[[int(rows)]][0]
        wanted = self._checked(rows)
        if not self._usable[wanted].all():
            item = next(s for s in self.skipped if s.row in set(wanted.tolist()))
            raise DisMixError(
                f"was skipped and has no image ({item.reason})",
                file=item.path,
                cure="use the rows in `valid` only",
            )
        return self._gather(wanted)

    def _checked(self, rows: Any) -> NDArray[np.int64]:
        if isinstance(rows, slice):
            return np.arange(*rows.indices(len(self)))
        wanted = np.asarray(rows.cpu() if isinstance(rows, Tensor) else rows)
        if wanted.ndim != 1 or (wanted.size and wanted.dtype.kind not in "iu"):
            raise TypeError(f"rows must be whole numbers (B,), got {wanted.dtype} {wanted.shape}")
        wanted = wanted.astype(np.int64)
        wanted = np.where(wanted < 0, wanted + len(self), wanted)
        if wanted.size and (wanted.min() < 0 or wanted.max() >= len(self)):
            raise IndexError(f"the store has {len(self)} images")
        return wanted

    def _gather(self, rows: NDArray[np.int64]) -> Tensor:
        images = np.empty((len(rows), *self.shape[1:]), np.uint8)
        # The indices are checked; mode="raise" would copy everything twice.
        np.take(self._array, rows, axis=0, out=images, mode="clip")
        self._touched += images.nbytes
        if self._touched > _RELEASE_BYTES and hasattr(mmap, "MADV_DONTNEED"):
            # The pages stay in the system's cache: reading them again costs next to nothing.
            self._mapping.madvise(mmap.MADV_DONTNEED)
            self._touched = 0
        return torch.from_numpy(images)

    def fits_on(
        self, device: torch.device | str, share: float = 0.25, most: int = RESIDENT_MOST
    ) -> bool:
        """Tell whether all images take little of an accelerator's memory.

        Always False for the CPU, where the system's file cache serves the same purpose.

        Args:
            device: The accelerator.
            share: Largest share of its free memory.
            most: Most bytes in any case, so that memory does not grow with the data for ever.
        """
        device = torch.empty(0, device=device).device
        if device.type == "cpu":
            return False
        if device in self._resident:
            return True
        if self.nbytes > most:
            return False
        if device.type == "cuda":
            return self.nbytes <= share * torch.cuda.mem_get_info(device)[0]
        return self.nbytes <= 2**30

    def to_device(self, device: torch.device | str, *, chunk: int = 256) -> Tensor:
        """Return all images on a device, (N, channels, H, W) uint8; skipped rows are black.

        The store keeps the result, so asking again costs nothing; do not write into it.
        """
        # A tensor's own device tells "cuda" and "cuda:0" to be the same.
        device = torch.empty(0, device=device).device
        if device not in self._resident:
            images = torch.empty(self.shape, dtype=torch.uint8, device=device)
            for start in range(0, len(self), chunk):
                stop = min(start + chunk, len(self))
                images[start:stop] = self._gather(np.arange(start, stop)).to(device)
            self._resident[device] = images
        return self._resident[device]

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process maps the file itself instead of receiving the pixels.
        return ImageStore, (self.folder, self.paths)
