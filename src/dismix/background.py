"""The thread of this process that decodes beside others, one for all and as long as it lives.

cuDNN's plans for convolutions are kept by thread: a new thread makes them anew, and planning can
take longer than what is planned.

The interpreter does not wait for it: whoever gave it work asks for its end (`MixPool.close`).
"""

import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """A thread that does one job after the other."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="dismix-background", daemon=True)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether the caller itself runs in this thread."""
        return threading.current_thread() is self._thread

    def submit(self, job: Callable[[], T]) -> "Future[T]":
        """Have a job done after those given before; a waiting one can be cancelled."""
        future: Future[T] = Future()
        self._jobs.put((future, job))
        return future

    def _work(self) -> None:
        while True:
            future, job = self._jobs.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(job())
                except BaseException as error:
                    # Whoever waits for the result gets it.
                    future.set_exception(error)
            # Else the last block would be kept until the next one is asked for.
            del future, job


_THREADS: dict[int, Background] = {}
_STARTING = threading.Lock()


def background() -> Background:
    """Return the thread of this process; a forked process has its own.

    Example:
        >>> background().submit(lambda: 6 * 7).result()
        42
    """
    with _STARTING:
        if os.getpid() not in _THREADS:
            _THREADS[os.getpid()] = Background()
        return _THREADS[os.getpid()]
