"""Several runs at once on one machine, each worker a process that lives for many runs.

Short trainings leave a GPU idle while one Python process launches kernels; two to four side by
side fill it. A worker that dies takes its run with it and nothing else: it is replaced, the run
is tried again, and kept as failed after some deaths.
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
from dismix.bench.worker import Job, lost_record, run_job
from dismix.locks import end_with_parent
from dismix.progress import Progress

DEATHS = 3
"""A run whose worker died this often is kept as failed."""
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
            outcome = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            workers.remove(worker)
            deaths[id(job)] = deaths.get(id(job), 0) + 1
            if deaths[id(job)] < DEATHS:
                waiting.appendleft(job)
                return
            code = worker.process.exitcode
            outcome = lost_record(job, f"its worker died {DEATHS} times (exit code {code})")
        if isinstance(outcome, tuple):
            if hooks.progress is not None:
                hooks.progress(*outcome)
            return
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
            pipe.send(run_job(job, _telling(pipe) if job["type"] == "generator" else None))


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
