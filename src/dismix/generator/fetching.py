"""Weights that packages can download: only when somebody asks, by `dismix doctor --fetch`.

A training that downloaded half a gigabyte by itself would surprise people behind a firewall, on a
metered line or on a cluster node, so trainings say what is missing and stop.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from dismix.errors import DisMixError
from dismix.generator.weights import FETCHED_BY, find_weights


def missing() -> list[str]:
    """Return the names of weights that could be fetched and are not here."""
    return [name for name in FETCHED_BY if find_weights(name) is None]


def fetch(name: str) -> Path:
    """Download weights into the first folder where weights are looked for.

    Args:
        name: One of `FETCHED_BY`.

    Returns:
        The file that was written.

    Raises:
        DisMixError: No package can fetch it, or there is no connection; nothing is written then.
    """
    if name not in FETCHED_BY:
        raise DisMixError(
            f"no package can fetch '{name}'", cure="choose one of " + ", ".join(FETCHED_BY)
        )
    module, function = FETCHED_BY[name].split(":")
    download: Callable[[], Path] = getattr(import_module(module), function)
    return download()
