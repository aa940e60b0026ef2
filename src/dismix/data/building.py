"""Fill a file with rows, in parallel, resumably, with one builder at a time.

The folder of a store holds ``images.u8`` (N rows of equal size), ``done-<DECODING>.u8`` (one
byte for each row, 1 = in place) and ``lock``. Rows are written first, forced to disk, and only then
marked, about once a second: whatever the moment of a kill or a power cut, a marked row is
whole, and the next build goes on from there.
"""

import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dismix.data.decode import advised
from dismix.data.dicom import MissingExtraError
from dismix.data.store_settings import DECODING
from dismix.errors import DisMixError
from dismix.progress import Progress

OnError = Literal["stop", "skip"]
# A build that an older version left unfinished begins anew: its rows may be read otherwise now.
IMAGES, DONE, LOCK = "images.u8", f"done-{DECODING}.u8", "lock"
_COMMIT_SECONDS = 1.0


def fill_rows(
    folder: Path,
    count: int,
    row_bytes: int,
    load: Callable[[int], NDArray[np.uint8]],
    *,
    on_error: OnError,
    workers: int,
    progress: Progress | None = None,
) -> dict[int, str]:
    """Load every row that is not in place yet; the caller holds the lock.

    Args:
        folder: Folder of the store.
        count: Number of rows N.
        row_bytes: Bytes of a row.
        load: Makes row i; called from several threads. A DisMixError marks a bad file.
        on_error: "stop" raises the error of the first bad row after keeping the rows
            before it; "skip" goes on and leaves bad rows zero and unmarked.
        workers: Threads.
        progress: Called as ``progress("decoding images", rows finished, N)``.

    Returns:
        What is wrong with each row that was skipped, without its path.
    """
    done = _prepared(folder, count, row_bytes)
    missing = np.flatnonzero(done == 0).tolist()
    finished = count - len(missing)
    skipped: dict[int, str] = {}
    with _RowWriter(folder, row_bytes) as writer:
        for row, result in _loaded(load, missing, workers):
            if isinstance(result, DisMixError):
                if on_error == "stop":
                    raise result
                # Text only: an exception would keep its frames, and so the pixels, alive.
                own = advised(result)
                skipped[row] = own.problem + (f"; {own.cure}" if own.cure else "")
            else:
                writer.write(row, result)
            finished += 1
            if progress is not None:
                progress("decoding images", finished, count)
    return skipped


def _prepared(folder: Path, count: int, row_bytes: int) -> NDArray[np.uint8]:
    """Return the marks of the rows in place, after making room for all of them."""
    images, done, size = folder / IMAGES, folder / DONE, count * row_bytes
    kept = images.stat().st_size if images.exists() else -1
    if kept == size and done.exists() and done.stat().st_size == count:
        return np.fromfile(done, np.uint8)
    done.unlink(missing_ok=True)
    images.unlink(missing_ok=True)
    free = shutil.disk_usage(folder).free
    if free < size:
        raise DisMixError(
            f"the image store needs {_amount(size)} but {_amount(free)} are free",
            file=folder.parent,
            cure="free some space or set DISMIX_CACHE to a folder on another disk",
        )
    with open(images, "wb") as handle:
        handle.truncate(size)
    with open(done, "wb") as handle:
        handle.truncate(count)
    return np.zeros(count, np.uint8)


def _amount(size: float) -> str:
    """Return bytes as people say them.

    Example:
        >>> _amount(700), _amount(41_000), _amount(2_460_000_000)
        ('0.7 kB', '41.0 kB', '2.5 GB')
    """
    unit = "kB"
    for larger in ("MB", "GB"):
        if size >= 1e6:
            size, unit = size / 1e3, larger
    return f"{size / 1e3:.1f} {unit}"


def _loaded(
    load: Callable[[int], NDArray[np.uint8]], rows: Sequence[int], workers: int
) -> Iterator[tuple[int, NDArray[np.uint8] | DisMixError]]:
    """Yield rows in order while a few are loaded ahead, so that memory stays constant."""

    def attempt(row: int) -> NDArray[np.uint8] | DisMixError:
        try:
            return load(row)
        except MissingExtraError:
            raise
        except DisMixError as error:
            return error

    ahead: deque[tuple[int, Future[NDArray[np.uint8] | DisMixError]]] = deque()
    with ThreadPoolExecutor(max(1, workers)) as pool:
        try:
            for row in rows:
                ahead.append((row, pool.submit(attempt, row)))
                if len(ahead) >= 2 * max(1, workers):
                    first, future = ahead.popleft()
                    yield first, future.result()
            while ahead:
                first, future = ahead.popleft()
                yield first, future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class _RowWriter:
    """Writes rows and marks them once they are safely on disk."""

    def __init__(self, folder: Path, row_bytes: int) -> None:
        self.folder, self.row_bytes = folder, row_bytes
        self.unmarked: list[int] = []
        self.committed = time.monotonic()

    def __enter__(self) -> "_RowWriter":
        self.images = open(self.folder / IMAGES, "r+b")
        self.done = open(self.folder / DONE, "r+b")
        return self

    def __exit__(self, *_: object) -> None:
        # Also on errors and on Ctrl-C: finished rows are never lost.
        try:
            self.commit()
        finally:
            self.images.close()
            self.done.close()

    def write(self, row: int, pixels: NDArray[np.uint8]) -> None:
        if pixels.nbytes != self.row_bytes:
            raise ValueError(f"row {row} has {pixels.nbytes} bytes, not {self.row_bytes}")
        try:
            self.images.seek(row * self.row_bytes)
            self.images.write(np.ascontiguousarray(pixels).data)
        except OSError as error:
            raise _write_failed(self.folder, error) from error
        self.unmarked.append(row)
        if time.monotonic() - self.committed > _COMMIT_SECONDS:
            self.commit()

    def commit(self) -> None:
        if not self.unmarked:
            return
        try:
            self.images.flush()
            os.fsync(self.images.fileno())
            for row in self.unmarked:
                self.done.seek(row)
                self.done.write(b"\x01")
            self.done.flush()
            os.fsync(self.done.fileno())
        except OSError as error:
            raise _write_failed(self.folder, error) from error
        self.unmarked.clear()
        self.committed = time.monotonic()


def _write_failed(folder: Path, error: OSError) -> DisMixError:
    return DisMixError(
        f"cannot write the image store ({error.strerror})",
        file=folder.parent,
        cure="free some space or set DISMIX_CACHE to another folder",
    )
