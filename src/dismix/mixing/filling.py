"""Fill a file with records of equal size, resumably.

Records are appended to ``NAME.part`` and, once they are safely on disk, counted in a small file
beside it; after a kill the count says where to go on. The finished file gets its name last.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dismix import atomic
from dismix.progress import Progress

_COMMIT_SECONDS = 1.0


@dataclass(frozen=True)
class RecordFile:
    """A file of records in the making.

    Attributes:
        path: Where it will be.
        counted: JSON file that says how far it is.
        count: Records it will have.
        record_bytes: Bytes of each.
    """

    path: Path
    counted: Path
    count: int
    record_bytes: int

    @property
    def part(self) -> Path:
        """Where records lie until all are there."""
        return self.path.with_suffix(".part")

    @property
    def done(self) -> int:
        """How many records are safely on disk."""
        size = self.record_bytes
        try:
            said = json.loads(self.counted.read_text(encoding="utf-8"))
            # A kill may also come between the last record and whatever is written after it.
            file = self.part if self.part.is_file() else self.path
            done = min(int(said["done"]), file.stat().st_size // size, self.count)
            whole = done == self.count or file == self.part
            return done if said["record_bytes"] == size and whole else 0
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def fill(
        self,
        make: Callable[[int, int], bytes],
        batch_size: int,
        progress: Progress | None = None,
        text: str = "encoding",
    ) -> None:
        """Write what is missing.

        Args:
            make: Makes the records from one place up to another.
            batch_size: Records made at once.
            progress: Called as ``progress(text, records done, N)``.
            text: What is being done, in words.
        """
        done, committed = self.done, time.monotonic()
        if done == self.count and not self.part.is_file():
            return
        with open(self.part, "r+b" if done else "wb") as file:
            file.truncate(done * self.record_bytes)
            file.seek(done * self.record_bytes)
            while done < self.count:
                stop = min(done + batch_size, self.count)
                file.write(make(done, stop))
                done = stop
                if time.monotonic() - committed > _COMMIT_SECONDS or done == self.count:
                    file.flush()
                    os.fsync(file.fileno())
                    said = {"done": done, "record_bytes": self.record_bytes}
                    atomic.write_json(self.counted, said)
                    committed = time.monotonic()
                if progress is not None:
                    progress(text, done, self.count)
        os.replace(self.part, self.path)
