"""What an engine is, and how one is made by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dismix.bench.worker import Job, Outcome
from dismix.errors import DisMixError
from dismix.progress import Progress
from dismix.registry import near_names

NAMES = ("in_process", "processes", "ray")


@dataclass(frozen=True)
class Hooks:
    """What an engine tells, and asks, the runner.

    Attributes:
        may_start: Asked before a job is started; False leaves it for another time.
        started: Called with a job that starts.
        ended: Called with its outcome.
        progress: Inner progress of a job, for engines that compute in this process.
    """

    may_start: Callable[[Job], bool]
    started: Callable[[Job], None]
    ended: Callable[[Job, Outcome], None]
    progress: Progress | None = None


class Engine(Protocol):
    """Runs jobs.

    Attributes:
        at_once: How many run at the same time.
    """

    at_once: int

    def run(self, jobs: Sequence[Job], hooks: Hooks) -> None:
        """Run all jobs that may start, and return when they have ended."""
        ...


def make_engine(name: str | None = None, *, jobs: int = 1, **options: Any) -> Engine:
    """Make an engine by name.

    Args:
        name: One of `NAMES`; by default "in_process" for one job at once, else "processes".
        jobs: Runs at once.
        **options: Of Ray: ``address``, ``cpus``, ``gpus``.

    Example:
        >>> make_engine().at_once, type(make_engine(jobs=2)).__name__
        (1, 'Processes')
    """
    name = name or ("in_process" if jobs == 1 else "processes")
    if name not in NAMES:
        raise DisMixError(f"unknown engine '{name}'", cure=near_names(name, [*NAMES]))
    if jobs < 1:
        raise DisMixError(f"{jobs} runs at once", column="--jobs", cure="give 1 or more")
    if name == "ray":
        from dismix.bench.engines.on_ray import OnRay

        return OnRay(jobs, **options)
    if name == "processes":
        from dismix.bench.engines.processes import Processes

        return Processes(jobs)
    from dismix.bench.engines.in_process import InProcess

    if jobs != 1:
        raise DisMixError(
            "the engine 'in_process' runs one at a time", column="--jobs", cure="use 'processes'"
        )
    return InProcess()
