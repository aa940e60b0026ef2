"""The same file in training and in a held-out split of one manifest."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dismix.data.digest import content_digests

if TYPE_CHECKING:
    from dismix.data.manifest import Manifest


def twins_note(data: "Manifest", learned: Sequence[str], cache: Path) -> str:
    """Name a held-out image that is a training image too, and count the others; else nothing.

    No error: published data sets hold such twins, and results are compared on them as they are.

    Args:
        data: All splits; images that are not here yet are passed over.
        learned: Digests of the training images, in their order.
        cache: Folder where digests are remembered.
    """
    train = data.split("train").table["image"].tolist()
    first = dict(zip(reversed(learned), reversed(train), strict=True))
    found = []
    for split, word in (("val", "validation"), ("test", "test")):
        rows = data.split(split)
        here = [number for number, path in enumerate(rows.image_paths) if path.is_file()]
        paths, names = [rows.image_paths[n] for n in here], rows.table["image"].tolist()
        digests = content_digests(paths, cache, skip_unreadable=True)
        found += [
            f"the {word} image {names[number]} and the training image {first[digest]} have the"
            " same bytes"
            for number, digest in zip(here, digests, strict=True)
            if digest and digest in first
        ]
    if not found:
        return ""
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return (
        f"{data.path}: {found[0]}{more}, so the grader is judged on images that it learns;"
        " `dismix data check` lists them all"
    )
