"""Locks for one process at a time, and workers that do not outlive the one they work for.

The operating system drops a lock with the process that holds it, so a lock file left behind means
nothing, whatever it says.
"""

import errno
import multiprocessing
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from dismix.atomic import cannot_write
from dismix.errors import DisMixError

LOCK = "lock"
#: Windows lets nobody read a locked byte; this one is behind all that a lock file says.
_BYTE = 1 << 20
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock; waits for another holder, never for a dead one.

    Some network disks know no locks; there it holds nothing, as `take` does.
    """
    with open(path, "a+b") as handle:
        if sys.platform == "win32":
            import msvcrt

            while True:
                try:
                    handle.seek(_BYTE)
                    msvcrt.locking(handle.fileno(), msvcrt.LK_LOCK, 1)
                    break
                except OSError:
                    time.sleep(0.1)
            try:
                yield
            finally:
                handle.seek(_BYTE)
                msvcrt.locking(handle.fileno(), msvcrt.LK_UNLCK, 1)
        else:
            import fcntl

            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
            yield


def take(handle: IO[bytes]) -> bool:
    """Lock an open file unless somebody else does, until it is closed; tell whether."""
    try:
        if sys.platform == "win32":
            import msvcrt

            handle.seek(_BYTE)
            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Some network disks know no locks; then nobody can hold one.
        return error.errno in _NO_LOCKS
    return True


@contextmanager
def in_use(folder: str | Path) -> Iterator[None]:
    """Keep a run folder for this process; one that a living process keeps is an error.

    Args:
        folder: Made if it is not there. Its file ``lock`` names the process.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as place, in_use(place):
        ...     int((Path(place) / LOCK).read_text().split()[0]) == os.getpid()
        True
    """
    path = Path(folder) / LOCK
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = open(path, "a+b")  # noqa: SIM115
    except OSError as error:
        raise cannot_write(path, error) from error
    with handle:
        if not take(handle):
            raise DisMixError(
                f"is in use by {_holder(path)}", file=folder,
                cure="wait for it or end it, or choose another folder",
            )  # fmt: skip
        _say(handle, f"{os.getpid()} {socket.gethostname()}\n")
        try:
            yield
        finally:
            _say(handle, "")
            _release(handle)


def _release(handle: IO[bytes]) -> None:
    # A process that was forked meanwhile has the file open, too, and would keep the lock.
    if sys.platform != "win32":
        import fcntl

        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)


def _say(handle: IO[bytes], text: str) -> None:
    # The lock holds without a word; what else is written tells of a full disk.
    with suppress(OSError):
        handle.truncate(0)
        handle.write(text.encode())
        handle.flush()


def _holder(path: Path) -> str:
    words = path.read_text(encoding="utf-8", errors="replace").split()
    if len(words) != 2:
        return "another process"
    return f"process {words[0]}" + ("" if words[1] == socket.gethostname() else f" on {words[1]}")


def end_with_parent() -> None:
    """Have this process end, at once, when the one that started it is gone, however it went.

    For workers: a killed parent cannot tell them, and what they wrote on would meet the files of
    its next start.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="dismix-parent", daemon=True).start()
