"""Seconds of work that may be killed and go on: kept in a file, so that none are lost."""

import json
import time
from pathlib import Path
from typing import Any

from dismix import atomic
from dismix.progress import Progress

_SAVE_SECONDS = 5.0


class Clock:
    """Counts the seconds of some work, those of earlier tries included.

    Args:
        path: Where the seconds so far are kept.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.start = path, time.perf_counter()
        self.before = self._read()
        self._saved = self.start

    def _read(self) -> float:
        try:
            content: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
            return float(content["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0.0

    @property
    def seconds(self) -> float:
        """Seconds so far."""
        return self.before + time.perf_counter() - self.start

    def ticking(self, progress: Progress | None) -> Progress:
        """Return a callback that saves the seconds now and then, and calls another."""

        def tick(stage: str, done: int, total: int) -> None:
            if time.perf_counter() - self._saved > _SAVE_SECONDS:
                atomic.write_json(self.path, {"seconds": self.seconds})
                self._saved = time.perf_counter()
            if progress is not None:
                progress(stage, done, total)

        return tick
