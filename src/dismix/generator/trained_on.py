"""Which images a generator was trained on, by content, kept beside the run.

A set may be split anew later; images that are test images then must not reach a grader through a
generator that has learned them by heart.
"""

from collections.abc import Iterable
from pathlib import Path

from dismix import atomic

FILE = "trained_on.txt"


def write_trained_on(run: Path, digests: Iterable[str]) -> None:
    """Write the digests of training images, one a line."""
    atomic.write_text(run / FILE, "".join(f"{digest}\n" for digest in sorted({*digests})))


def read_trained_on(run: str | Path) -> frozenset[str]:
    """Return the digests of the training images; none where an older run does not tell.

    Example:
        >>> read_trained_on("no such run")
        frozenset()
    """
    path = Path(run) / FILE
    return frozenset(path.read_text(encoding="utf-8").split() if path.is_file() else ())
