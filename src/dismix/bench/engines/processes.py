"""Several runs at once on one machine, each worker a process that lives for many runs.

Short trainings leave a GPU idle while one Python process launches kernels; two to four side by
side fill it. A worker that dies, or that a run broke off in, takes its run with it and nothing
else: it is replaced, the run is tried again, and kept as failed after some tries.
"""

import contextlib
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from dismix.bench.engines.base import Hooks
from dismix.bench.worker import TRIES, Job, Outcome, lost_record, tried
from dismix.locks import end_with_parent
from dismix.progress import Progress

_TELL_SECONDS = 0.5


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    job: Job | None = None


class Processes:
    """Workers of this machine.

    Args:
        at_once: How many.
    """

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self._context = multiprocessing.get_context("spawn")

    def run(self, jobs: Sequence[Job], hooks: Hooks) -> None:
        """Run jobs, started in their order."""
        waiting, deaths = deque(jobs), dict[int, int]()
        workers: list[_Worker] = []
        try:
            while True:
                self._feed(waiting, workers, hooks)
                busy = [worker for worker in workers if worker.job is not None]
                if not busy:
                    return
                ready = wait([w.pipe for w in busy] + [w.process.sentinel for w in busy])
                for worker in busy:
                    if worker.pipe in ready or worker.process.sentinel in ready:
                        self._collect(worker, workers, waiting, deaths, hooks)
        finally:
            _dismiss(workers)

    def _feed(self, waiting: deque[Job], workers: list[_Worker], hooks: Hooks) -> None:
        """Give idle workers, new ones if there may be more, the next jobs that may start."""
        while waiting and sum(worker.job is not None for worker in workers) < self.at_once:
            job = waiting.popleft()
            if not hooks.may_start(job):
                continue
            idle = next((worker for worker in workers if worker.job is None), None)
            if idle is None:
                idle = self._hired()
                workers.append(idle)
            hooks.started(job)
            idle.job = job
            # One that died while idle is found out below, by its sentinel.
            with contextlib.suppress(OSError):
                idle.pipe.send(job)

    def _hired(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        # What the user set holds; sums depend on the number of threads, in the last digits.
        given = os.environ.get("OMP_NUM_THREADS", "")
        threads = max(1, (os.cpu_count() or 1) // self.at_once)
        threads = int(given) if given.isdecimal() else threads
        process = self._context.Process(target=_work, args=(theirs, threads), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def _collect(
        self,
        worker: _Worker,
        workers: list[_Worker],
        waiting: deque[Job],
        deaths: dict[int, int],
        hooks: Hooks,
    ) -> None:
        job = worker.job
        assert job is not None
        try:
            outcome: Outcome | tuple[str, int, int] | None = worker.pipe.recv()
        except (EOFError, OSError):
            outcome = None
        if isinstance(outcome, tuple):
            if hooks.progress is not None:
                hooks.progress(*outcome)
            return
        if outcome is None or outcome["status"] == "broken":
            worker.process.join()
            workers.remove(worker)
            deaths[id(job)] = deaths.get(id(job), 0) + 1
            if deaths[id(job)] < TRIES:
                waiting.appendleft(job)
                return
            died = f"its worker died {TRIES} times (exit code {worker.process.exitcode})"
            outcome = lost_record(job, died if outcome is None else outcome["error"])
        worker.job = None
        hooks.ended(job, outcome)


def _work(pipe: Connection, threads: int) -> None:
    """Do jobs until the other end closes; a worker whose parent was killed ends too, at once.

    Else the next start would find its run locked, and pass over it.
    """
    end_with_parent()
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        import torch

        torch.set_num_threads(threads)
        while (job := pipe.recv()) is not None:
            # Runs side by side are counted; a generator takes minutes, and tells how far it is.
            outcome = tried(job, _telling(pipe) if job["type"] == "generator" else None)
            pipe.send(outcome)
            if outcome["status"] == "broken":
                # The next try is made by a new process: this one may be at fault.
                return


def _telling(pipe: Connection) -> Progress:
    last = time.monotonic()

    def tell(stage: str, done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > _TELL_SECONDS or done == total:
            last = time.monotonic()
            pipe.send((stage, done, total))

    return tell


def _dismiss(workers: list[_Worker]) -> None:
    for worker in workers:
        if worker.job is None:
            with contextlib.suppress(OSError):
                worker.pipe.send(None)
        else:
            worker.process.terminate()
    for worker in workers:
        worker.process.join(timeout=10)
        worker.pipe.close()
