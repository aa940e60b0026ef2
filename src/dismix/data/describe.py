"""A manifest in a few lines: counts by split and grade, votes, notes."""

import numpy as np

from dismix.data.manifest import SPLITS, Manifest


def grade_counts(manifest: Manifest) -> dict[str, list[int]]:
    """Return the number of images of each majority grade, for each split that has any."""
    hard = manifest.target().hard.numpy()
    splits = manifest.table["split"].to_numpy()
    counts = {s: np.bincount(hard[splits == s], minlength=manifest.num_ranks) for s in SPLITS}
    return {split: count.tolist() for split, count in counts.items() if count.sum()}


def describe(manifest: Manifest) -> str:
    """Return the lines that `dismix data import` prints.

    Example:
        >>> import pandas as pd
        >>> from dismix.data.manifest import make_manifest
        >>> table = pd.DataFrame({"image": ["a", "b", "c"], "grade": [0, 1, 1]})
        >>> print(describe(make_manifest(table, None, ".")))
        3 images, 2 ranks: 0, 1
         train      3   1 / 2
    """
    ranks = ", ".join(manifest.meta.ranks)
    lines = [f"{len(manifest)} images, {manifest.num_ranks} ranks: {ranks}"]
    for split, counts in grade_counts(manifest).items():
        lines.append(f"{split:>6} {sum(counts):>6}   " + " / ".join(map(str, counts)))
    if manifest.annotators:
        votes = int(np.isfinite(manifest.votes).sum())
        several = "" if len(manifest.annotators) == 1 else "s"
        lines.append(f"{len(manifest.annotators)} annotator{several}, {votes} votes")
    used = sorted({*manifest.target().hard.tolist()})
    if len(used) == 1:
        # A table with one grade gets a second rank, since no scale has a single one.
        names = [f"'{name}'" for name in manifest.meta.ranks]
        only = names.pop(used[0])
        lines.append(
            f"note: all images have grade {only}, none {', '.join(names)} (a scale has two ranks at"
            " least)"
        )
    if manifest.meta.notes:
        lines.append(f"note: {manifest.meta.notes}")
    return "\n".join(lines)
