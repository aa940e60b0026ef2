"""Engines: who runs the jobs of a study. All call `dismix.bench.worker.run_job`."""

from dismix.bench.engines.base import Engine, Hooks, make_engine

__all__ = ["Engine", "Hooks", "make_engine"]
