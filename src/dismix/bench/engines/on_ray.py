"""Runs on a Ray cluster (extra ``[ray]``): tasks with their own resources, lost ones restarted.

The benchmark's folder and the images must be reachable under the same paths from all machines.
Ray keeps a worker's process between tasks, so images and weights stay loaded there too.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

from dismix.bench.engines.base import Hooks
from dismix.bench.worker import TRIES, Job, Outcome, lost_record, tried
from dismix.errors import DisMixError

RETRIES = 5
"""How often Ray starts a task again whose worker or machine was lost."""


class OnRay:
    """Workers of a Ray cluster, or of this machine when no address is given.

    Args:
        at_once: Tasks in flight at most; Ray itself runs as many as there are resources.
        address: Of a running cluster: "auto", "ray://host:10001"; None starts a local one.
        cpus: Cores of a run.
        gpus: GPUs of a run; 0.25 lets four share one.
    """

    def __init__(
        self, at_once: int = 1, *, address: str | None = None, cpus: float = 1, gpus: float = 0
    ) -> None:
        self.at_once, self.address, self.cpus, self.gpus = at_once, address, cpus, gpus
        self._ray = _require_ray()

    def run(self, jobs: Sequence[Job], hooks: Hooks) -> None:
        """Run jobs, submitted in their order."""
        ray, started = self._ray, False
        if not ray.is_initialized():
            ray.init(address=self.address, log_to_driver=False, logging_level="error",
                     **self._local())  # fmt: skip
            started = True
        task = ray.remote(tried).options(
            num_cpus=self.cpus, num_gpus=self.gpus, max_retries=RETRIES, retry_exceptions=False
        )
        waiting, flying, broken = deque(jobs), dict[Any, Job](), dict[int, int]()
        try:
            while waiting or flying:
                while waiting and len(flying) < self.at_once:
                    job = waiting.popleft()
                    if hooks.may_start(job):
                        hooks.started(job)
                        flying[task.remote(job)] = job
                if not flying:
                    return
                ready, _ = ray.wait([*flying], num_returns=1)
                for reference in ready:
                    job = flying.pop(reference)
                    outcome = self._outcome(reference, job)
                    if outcome["status"] == "broken":
                        broken[id(job)] = broken.get(id(job), 0) + 1
                        if broken[id(job)] < TRIES:
                            waiting.appendleft(job)
                            continue
                        outcome = lost_record(job, outcome["error"])
                    hooks.ended(job, outcome)
        finally:
            for reference in flying:
                ray.cancel(reference, force=True)
            if started:
                ray.shutdown()

    def _local(self) -> dict[str, Any]:
        """Return the settings of a cluster that is started here."""
        if self.address is not None:
            return {}
        cores = max(1, round(self.at_once * self.cpus))
        # Ray's workers are nice to all other processes (15); here they do the main work.
        return {
            "num_cpus": cores, "include_dashboard": False, "_system_config": {"worker_niceness": 0},
        }  # fmt: skip

    def _outcome(self, reference: Any, job: Job) -> Outcome:
        try:
            outcome: Outcome = self._ray.get(reference)
            return outcome
        except self._ray.exceptions.RayTaskError as error:
            # Before it was tried: what is not installed over there, say.
            return lost_record(job, str(error))
        except self._ray.exceptions.RayError as error:
            words = " ".join(str(error).split())
            return lost_record(job, f"lost {RETRIES + 1} times: {words}")


def _require_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise DisMixError(
            "Ray is not installed", cure="pip install 'dismix[ray]', or use --jobs N"
        ) from error
    return ray
