"""One run after the other in this process: nothing is loaded twice."""

from collections.abc import Sequence

from dismix.bench.engines.base import Hooks
from dismix.bench.worker import Job, run_job


class InProcess:
    """The default engine."""

    at_once = 1

    def run(self, jobs: Sequence[Job], hooks: Hooks) -> None:
        """Run jobs in their order."""
        for job in jobs:
            if hooks.may_start(job):
                hooks.started(job)
                hooks.ended(job, run_job(job, hooks.progress))
