"""Strata: which rows a split deals, in which groups that stay whole, and of which rank each is.

Rows are stratified by what a user has: the majority of their votes, or the grade where nobody
voted. Files with the same bytes stay together, as groups do.
"""

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from dismix.data.draws import image_keys
from dismix.data.manifest import Manifest
from dismix.data.mixed_rows import refuse_mixes
from dismix.data.twins import find_identical
from dismix.errors import DisMixError


def is_grouped(manifest: Manifest) -> bool:
    """Tell whether some image names its group."""
    return "group" in manifest.table and bool(manifest.table["group"].notna().any())


def dealt_rows(manifest: Manifest, *splits: str) -> NDArray[np.int64]:
    """Return the rows (N,) of some splits; mixes are never dealt."""
    refuse_mixes(manifest)
    rows = np.flatnonzero(manifest.table["split"].isin(splits).to_numpy(dtype=bool))
    if not len(rows):
        raise DisMixError(
            f"has no rows in {' or '.join(splits)}",
            file=manifest.path,
            column="split",
            cure="mark the rows to learn from as 'train'",
        )
    return rows


def majority(manifest: Manifest, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the majority of the votes of each row, or its grade where nobody voted."""
    hard: NDArray[np.int64] = manifest.rows(rows).target().hard.numpy()
    return hard


def strata(
    manifest: Manifest, rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[str]]:
    """Return rank and group (N,) of each row, and the groups' names; a row may be its own."""
    names = group_names(manifest, rows)
    keys, number = np.unique(np.asarray(names, dtype=str), return_inverse=True)
    return majority(manifest, rows), number.astype(np.int64), keys.tolist()


def group_names(manifest: Manifest, rows: NDArray[np.int64] | None = None) -> list[str]:
    """Return what each row is not to be parted from: its group, its twins, or only itself.

    Args:
        manifest: The images.
        rows: (N,) which of them; all if absent.
    """
    rows = np.arange(len(manifest)) if rows is None else rows
    images = image_keys(manifest.image_paths)
    names = [f"image {images[i]}" for i in rows]
    if "group" in manifest.table:
        group = manifest.table["group"].iloc[rows]
        known = group.notna().to_numpy(dtype=bool)
        names = [f"group {g}" if k else n for g, k, n in zip(group, known, names, strict=True)]
    return _joined_twins(names, [manifest.image_paths[i] for i in rows])


def _joined_twins(names: list[str], paths: list[Path]) -> list[str]:
    """Give groups that share a byte-identical file one name, so that no split parts them."""
    keys, number = np.unique(np.asarray(names, dtype=str), return_inverse=True)
    pairs = [
        (number[twins.members[0]], number[member])
        for twins in find_identical(paths)
        for member in twins.members[1:]
    ]
    if not pairs:
        return names
    edges = coo_array((np.ones(len(pairs)), np.array(pairs).T), shape=(len(keys), len(keys)))
    _, part = connected_components(edges, directed=False)
    _, lowest = np.unique(part, return_index=True)
    return [str(keys[lowest[part[n]]]) for n in number]


def composition(
    rank: NDArray[np.int64], group: NDArray[np.int64], num_groups: int, num_ranks: int
) -> NDArray[np.int64]:
    """Count the images of each rank in each group, (G, C)."""
    counts = np.zeros((num_groups, num_ranks), dtype=np.int64)
    np.add.at(counts, (group, rank), 1)
    return counts


def warn_lonely(
    groups: NDArray[np.int64], manifest: Manifest, effect: str, *, stacklevel: int = 3
) -> None:
    """Warn of ranks that a single group holds; ``groups`` (G, C) is a composition."""
    for c in np.flatnonzero((groups > 0).sum(axis=0) == 1):
        warnings.warn(
            f"a single group of images holds rank '{manifest.meta.ranks[c]}': {effect}",
            stacklevel=stacklevel,
        )


def warn_few(groups: NDArray[np.int64], manifest: Manifest, k: int) -> None:
    """Warn of ranks that fewer groups hold than there are folds."""
    holders = (groups > 0).sum(axis=0)
    few = [manifest.meta.ranks[c] for c in np.flatnonzero((holders > 1) & (holders < k))]
    if few:
        names = ", ".join(f"'{name}'" for name in few)
        warnings.warn(f"fewer than {k} groups hold rank {names}: some folds lack it", stacklevel=3)
