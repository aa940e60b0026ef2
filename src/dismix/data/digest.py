"""Content digests of image files, remembered so that an unchanged file is read once.

A digest is remembered under a hash of the file's path, its size and its time of change
(in nanoseconds), in one SQLite file beside the image stores. No path is written: folder
names may hold patients' names. The memory is a convenience only: it can be deleted at any
time, and when it cannot be used every file is simply read again.
"""

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from dismix.data.decode import opened
from dismix.errors import DisMixError

MEMORY_NAME = "digests.sqlite"
# A file changed this recently may change again within one tick of its clock.
_SETTLED_SECONDS = 2.0


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as empty:
        ...     file_digest(empty.name)[:8]
        'e3b0c442'
    """
    with opened(path) as (stream, _):
        return hashlib.file_digest(stream, "sha256").hexdigest()


def content_digests(
    paths: Sequence[Path], folder: Path, *, workers: int = 1, skip_unreadable: bool = False
) -> list[str]:
    """Return one digest for each file, from memory where the file is unchanged.

    Args:
        paths: N files.
        folder: Where the memory lies.
        workers: Threads that read files.
        skip_unreadable: Give "" for a file that cannot be read instead of raising.

    Returns:
        N digests, in hexadecimal.
    """
    stamps = [_stamp(path) for path in paths]
    with _memory(folder) as memory:
        digests = [_recall(memory, path, stamp) for path, stamp in zip(paths, stamps, strict=True)]
        unknown = [row for row, digest in enumerate(digests) if digest is None]

        def read(row: int) -> str | DisMixError:
            try:
                return file_digest(paths[row])
            except DisMixError as error:
                return error

        with ThreadPoolExecutor(max(1, workers)) as pool:
            for row, digest in zip(unknown, pool.map(read, unknown), strict=True):
                if isinstance(digest, DisMixError):
                    if not skip_unreadable:
                        pool.shutdown(cancel_futures=True)
                        raise digest
                    digest = ""
                else:
                    _remember(memory, paths[row], stamps[row], digest)
                digests[row] = digest
    return [digest or "" for digest in digests]


def forget(paths: Sequence[Path], folder: Path) -> None:
    """Drop what is remembered of files."""
    if not paths:
        return
    with _memory(folder) as memory:
        if memory is not None:
            with suppress(sqlite3.Error):
                keys = [(_path_key(path),) for path in paths]
                memory.executemany("DELETE FROM digests WHERE path = ?", keys)


def _path_key(path: Path) -> bytes:
    return hashlib.blake2b(os.fsencode(os.path.abspath(path)), digest_size=16).digest()


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return the size and the time of change; None when unknown or too fresh to trust."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    if time.time() - status.st_mtime < _SETTLED_SECONDS:
        return None
    return status.st_size, status.st_mtime_ns


@contextmanager
def _memory(folder: Path) -> Iterator[sqlite3.Connection | None]:
    """Yield the open memory, or None where it cannot be used."""
    try:
        memory = sqlite3.connect(folder / MEMORY_NAME, timeout=10)
        memory.execute(
            "CREATE TABLE IF NOT EXISTS digests"
            " (path BLOB PRIMARY KEY, size INTEGER, changed INTEGER, digest TEXT)"
        )
    except sqlite3.Error:
        yield None
        return
    try:
        yield memory
    finally:
        # Digests found before an error are kept: they are right whatever happened later.
        with suppress(sqlite3.Error):
            memory.commit()
        memory.close()


def _recall(
    memory: sqlite3.Connection | None, path: Path, stamp: tuple[int, int] | None
) -> str | None:
    if memory is None or stamp is None:
        return None
    try:
        found = memory.execute(
            "SELECT digest FROM digests WHERE path = ? AND size = ? AND changed = ?",
            (_path_key(path), *stamp),
        ).fetchone()
    except sqlite3.Error:
        return None
    return str(found[0]) if found else None


def _remember(
    memory: sqlite3.Connection | None, path: Path, stamp: tuple[int, int] | None, digest: str
) -> None:
    if memory is None or stamp is None:
        return
    try:
        memory.execute(
            "INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?)", (_path_key(path), *stamp, digest)
        )
    except sqlite3.Error:
        return
