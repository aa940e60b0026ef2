"""Which images a generator or a grader was trained on, by content, kept beside the run.

A set may be split anew later; images that are test images then must not reach a grader through a
generator that has learned them by heart, and whoever is judged on images that it has learned is
judged too well.
"""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dismix import atomic

if TYPE_CHECKING:
    from dismix.data.manifest import Manifest

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


def seen_note(
    learned: Collection[str],
    held_out: "Manifest",
    cache: Path | None = None,
    who: str = "generator",
) -> str:
    """Say how many of the images to judge on were learned; nothing where none was.

    Args:
        learned: Digests of training images.
        held_out: What is judged on.
        cache: Folder of the image stores.
        who: Who learned.
    """
    from dismix.data.digest import content_digests
    from dismix.data.store import default_cache_dir

    if not learned:
        return ""
    digests = content_digests(held_out.image_paths, cache or default_cache_dir())
    seen = sum(digest in learned for digest in digests)
    return (
        f"{held_out.path}: the {who} was trained on {seen} of the {len(digests)} images that it is"
        " judged on here; give data split as those it was trained on"
        if seen
        else ""
    )
