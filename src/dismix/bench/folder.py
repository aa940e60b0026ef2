"""The folder of a benchmark: records, plans, shared parts and locks.

::

    records/<id>.json       one a run, written whole
    plans/<name>.json       which runs a plan wants
    manifests/<key>/        derived data: manifest.csv, training.csv (no test rows), derived.json
    generators/<id>/        shared generators with their latent stores; done.json comes last
    judges/                 graders that judge generators
    data/                   drawn phantom sets
    work/<id>/              checkpoints of runs in flight
    log.jsonl               a line whenever a run starts or ends

Several processes, also on several machines that share the folder, may work in it at once.
"""

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dismix import atomic
from dismix.locks import locked, take

STATUSES = ("done", "failed")
"""What a record says of its run."""


class BenchFolder:
    """Paths and records.

    Args:
        root: The folder.
        work: Where checkpoints of runs in flight lie; below the folder when None. A memory
            disk saves writing.
    """

    def __init__(self, root: str | Path, work: str | Path | None = None) -> None:
        self.root = Path(root).absolute()
        self.work = self.root / "work" if work is None else Path(work).absolute()

    def record_path(self, run: str) -> Path:
        """Return where a run's record lies."""
        return self.root / "records" / f"{run}.json"

    def manifest_dir(self, key: str) -> Path:
        """Return the folder of derived data."""
        return self.root / "manifests" / key

    def generator_dir(self, name: str) -> Path:
        """Return the run folder of a shared generator."""
        return self.root / "generators" / name

    def work_dir(self, run: str) -> Path:
        """Return the folder of a run in flight."""
        return self.work / run

    def record(self, run: str) -> dict[str, Any] | None:
        """Read a record; None when there is none or it is damaged, and so to be made again."""
        try:
            found = json.loads(self.record_path(run).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        whole = isinstance(found, dict) and found.get("id") == run
        return found if whole and found.get("status") in STATUSES else None

    def status(self, run: str) -> str:
        """Return "done", "failed" or "missing"."""
        record = self.record(run)
        return "missing" if record is None else str(record.get("status"))

    def records(self) -> list[dict[str, Any]]:
        """Read all records, by id."""
        names = sorted(path.stem for path in (self.root / "records").glob("*.json"))
        return [record for name in names if (record := self.record(name)) is not None]

    def write_record(self, record: dict[str, Any]) -> None:
        """Write a record whole; the caller holds the run's lock."""
        for left in (self.root / "records").glob(f".{record['id']}.*.part.json"):
            # Of a try that was killed while it wrote.
            left.unlink(missing_ok=True)
        # On few lines: predictions of thousands of images would take as many.
        text = json.dumps(record, ensure_ascii=False, allow_nan=False)
        atomic.write_text(self.record_path(str(record["id"])), text + "\n")

    def note(self, event: str, run: str, **more: Any) -> None:
        """Append a line to the log; one small write, so lines of several processes stay whole."""
        line = {"event": event, "id": run, "time": round(time.time(), 3), "pid": os.getpid()}
        line |= {"host": socket.gethostname(), **more}
        self.root.mkdir(parents=True, exist_ok=True)
        with open(self.root / "log.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def log(self) -> list[dict[str, Any]]:
        """Read the log; a line cut short by a kill is passed over."""
        path = self.root / "log.jsonl"
        found = []
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        for line in text.splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold a lock that a dead process never keeps; waits for another holder."""
        path = self._lock_path(name)
        with locked(path):
            yield

    @contextlib.contextmanager
    def try_lock(self, name: str) -> Iterator[bool]:
        """Hold a lock when nobody else does; yields whether."""
        with open(self._lock_path(name), "a+b") as handle:
            yield take(handle)

    def _lock_path(self, name: str) -> Path:
        """Return the file of a lock; a folder that cannot be written is told of here."""
        path = self.root / "locks" / f"{name}.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        except OSError as error:
            raise atomic.cannot_write(self.root, error) from error
        return path
