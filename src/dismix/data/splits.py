"""Validation, test, scarcity subsets and folds: stratified, groups kept whole, from one seed.

Rows are stratified by what a user has: the majority of their votes, or the grade where nobody
voted. A true grade beside votes (simulated annotators) is never looked at, and validation rows
are scored against their votes likewise. Files with the same bytes stay together, as groups do.
All draws hang on image and group names, so the order of the rows does not matter, nor does the
folder the data lie in. Mixes are never dealt: they show parts of their sources.
"""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dismix.data.draws import drawn_order, image_keys
from dismix.data.manifest import SPLITS, Manifest, make_manifest
from dismix.data.strata import (
    composition,
    dealt_rows,
    is_grouped,
    majority,
    strata,
    warn_few,
    warn_lonely,
)
from dismix.data.stratify import choose_groups
from dismix.errors import DisMixError
from dismix.registry import near_names

#: Said where a single group is left, which may be many patients that share a file.
_TOGETHER = "images with the same bytes count as one (`dismix data check` lists them)"


def split_validation(manifest: Manifest, share: float = 0.15, *, seed: int) -> Manifest:
    """Move a part of the training rows to validation.

    Each rank gives ``share`` of its images, at least one and never all, as long as two groups
    hold it; the whole is ``share`` of the training rows, rounded. A rank that one group holds
    alone stays in training, with a warning; where each group is such a one, that is an error.

    Args:
        manifest: Without validation rows; test rows are left alone.
        share: The paper's 15 %.
        seed: Same seed, same split.

    Returns:
        The same rows in the same order, some of them now ``val``.

    Raises:
        DisMixError: If there are validation rows already, no training rows, none that could be
            moved, or ``share`` is not within (0, 1).

    Example:
        >>> import pandas as pd
        >>> from dismix.data.manifest import make_manifest
        >>> table = pd.DataFrame({"image": [f"{i}.png" for i in range(40)], "grade": [0, 1] * 20})
        >>> split = split_validation(make_manifest(table, None, "."), seed=0)
        >>> split.table.groupby(["split", "grade"]).size().to_dict()
        {('train', 0): 17, ('train', 1): 17, ('val', 0): 3, ('val', 1): 3}
    """
    if not 0 < share < 1:
        raise DisMixError(f"validation share {share:g} is not between 0 and 1", cure="use 0.15")
    if (manifest.table["split"] == "val").any():
        raise DisMixError(
            "already has validation rows",
            file=manifest.path,
            cure="use them, or merge them into train first with --merge-val",
        )
    return _moved(manifest, share, "val", "validation", seed=seed)


def split_test(manifest: Manifest, share: float = 0.2, *, seed: int) -> Manifest:
    """Move a part of the training rows to test, for data that come without a test split.

    Drawn as `split_validation` draws, so each rank and no patient is parted. Take it first, and
    once: validation rows, scarce subsets and generators come from what is left.

    Args:
        manifest: Without test rows; validation rows are left alone.
        share: Of the training rows.
        seed: Same seed, same split.

    Returns:
        The same rows in the same order, some of them now ``test``.

    Raises:
        DisMixError: If there are test rows already, no training rows, none that could be moved,
            or ``share`` is not within (0, 1).

    Example:
        >>> import pandas as pd
        >>> from dismix.data.manifest import make_manifest
        >>> table = pd.DataFrame({"image": [f"{i}.png" for i in range(40)], "grade": [0, 1] * 20})
        >>> split = split_test(make_manifest(table, None, "."), seed=0)
        >>> split.table.groupby(["split", "grade"]).size().to_dict()
        {('test', 0): 4, ('test', 1): 4, ('train', 0): 16, ('train', 1): 16}
    """
    if not 0 < share < 1:
        raise DisMixError(f"test share {share:g} is not between 0 and 1", cure="use 0.2")
    if (manifest.table["split"] == "test").any():
        raise DisMixError(
            "already has test rows", file=manifest.path, cure="use them, and leave --test out"
        )
    return _moved(manifest, share, "test", "test", seed=seed)


def scarcity_subset(
    manifest: Manifest, share: float = 0.1, *, at_least: int = 10, seed: int
) -> Manifest:
    """Keep a part of the training rows of each rank; validation and test stay as they are.

    The paper's scarce setting: 10 % of each rank but 10 images or more (all of them where a
    rank has fewer). Generator and grader must see the same subset: make it once, write it, and
    train both from that file. Rows are drawn one by one, also within a group: all that is kept
    stays in training, so nothing leaks. A larger share contains a smaller one of the same seed.

    Args:
        manifest: Rows other than ``train`` are kept.
        share: Within (0, 1].
        at_least: Fewest images of a rank.
        seed: Same seed, same subset.

    Returns:
        The kept rows in their old order.
    """
    if not 0 < share <= 1 or at_least < 0:
        raise DisMixError(
            f"cannot keep a share of {share:g}, at least {at_least}",
            cure="give a share above 0 and up to 1, and 0 or more images",
        )
    rows = dealt_rows(manifest, "train")
    keys = image_keys(manifest.image_paths)
    rows = rows[drawn_order([keys[i] for i in rows], seed=seed, purpose="scarcity")]
    rank = majority(manifest, rows)
    keep = (manifest.table["split"] != "train").to_numpy(dtype=bool, copy=True)
    for c in range(manifest.num_ranks):
        of_rank = rows[rank == c]
        count = max(at_least, int(np.floor(share * len(of_rank) + 0.5)))
        keep[of_rank[:count]] = True
    note = f"scarcity subset {_percent(share)} of each rank, at least {at_least}, seed {seed}"
    return _noted(manifest.rows(keep), note)


def k_fold(
    manifest: Manifest, k: int, *, seed: int, held_out: Literal["val", "test"] = "val"
) -> list[Manifest]:
    """Make k folds, for sets too small for one split.

    Args:
        manifest: Its ``train`` and ``val`` rows are pooled and dealt into k folds.
        k: Number of folds, 2 or more.
        seed: Same seed, same folds.
        held_out: What the fold held out is called. ``val`` (default) leaves test rows alone.
            ``test`` is for sets without a test split: each row is tested once, by its grade
            where it has one; take validation rows from the rest with ``split_validation``.

    Returns:
        k manifests with all rows in the same order; fold i is held out in the i-th.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    if held_out == "test" and (manifest.table["split"] == "test").any():
        raise DisMixError(
            "already has test rows",
            file=manifest.path,
            cure="hold out 'val', or merge them into train first (merge_splits, {'test': 'train'})",
        )
    rows = dealt_rows(manifest, "train", "val")
    rank, group, keys = strata(manifest, rows)
    groups = composition(rank, group, len(keys), manifest.num_ranks)
    if not 2 <= k <= len(keys):
        noun, more = ("group", "patients") if is_grouped(manifest) else ("image", "images")
        raise DisMixError(
            f"cannot make {k} folds of {len(keys)} {noun}{'' if len(keys) == 1 else 's'}",
            file=manifest.path,
            cure=f"give 2 to {len(keys)} folds" if len(keys) >= 2 else f"add {more}; {_TOGETHER}",
        )
    most = int(np.bincount(rank).max())
    if k > most:
        raise DisMixError(
            f"cannot make {k} folds: no rank has more than {most} images",
            file=manifest.path,
            cure=f"give 2 to {most} folds" if most >= 2 else "collect more images",
        )
    warn_lonely(groups, manifest, "one fold trains without it")
    warn_few(groups, manifest, k)
    # Rows by name, so that the order of the file cannot reach the shuffle below.
    images = image_keys(manifest.image_paths)
    order = np.lexsort((np.array([images[i] for i in rows]), group))
    folder = StratifiedGroupKFold(n_splits=k, shuffle=True, random_state=seed % 2**32)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")
        folds = list(folder.split(order, rank[order], group[order]))
    result = []
    for i, (_, held) in enumerate(folds):
        split = manifest.table["split"].to_numpy(dtype=object, copy=True)
        split[rows] = "train"
        split[rows[order[held]]] = held_out
        result.append(_with_split(manifest, split, f"fold {i + 1} of {k}, seed {seed}"))
    return result


def merge_splits(manifest: Manifest, names: Mapping[str, str]) -> Manifest:
    """Rename splits, such as ``{"val": "train"}`` to take KOA's validation rows for training.

    Example:
        >>> import pandas as pd
        >>> from dismix.data.manifest import make_manifest
        >>> table = pd.DataFrame({"image": ["a", "b"], "grade": [0, 1], "split": ["train", "val"]})
        >>> merged = merge_splits(make_manifest(table, None, "."), {"val": "train"})
        >>> merged.table["split"].tolist()
        ['train', 'train']
    """
    for name in (*names, *names.values()):
        if name not in SPLITS:
            raise DisMixError(f"unknown split '{name}'", cure=near_names(name, list(SPLITS)))
    split = np.array([names.get(name, name) for name in manifest.table["split"]], dtype=object)
    held = {*manifest.table["split"]}
    moves = ", ".join(f"{old} into {new}" for old, new in names.items() if old in held)
    return _with_split(manifest, split, f"merged {moves}" if moves else "")


def _moved(manifest: Manifest, share: float, to: str, purpose: str, *, seed: int) -> Manifest:
    """Give a stratified share of the training rows to another split, groups kept whole."""
    rows = dealt_rows(manifest, "train")
    rank, group, keys = strata(manifest, rows)
    order = drawn_order(keys, seed=seed, purpose=purpose)
    groups = composition(rank, group, len(keys), manifest.num_ranks)
    chosen = np.zeros(len(keys), dtype=bool)
    chosen[order] = choose_groups(groups[order], share)
    if not chosen.any():
        raise _impossible(manifest, purpose, len(keys))
    effect = f"it stays in training and {purpose} has none of it"
    warn_lonely(groups, manifest, effect, stacklevel=4)
    split = manifest.table["split"].to_numpy(dtype=object, copy=True)
    moved = rows[chosen[group]]
    split[moved] = to
    # Whole groups, and ranks that stay, may give another share than was asked for.
    met = abs(len(moved) - share * len(rows)) < 1
    done = f"{_percent(share)} of train" if met else f"{len(moved)} of {len(rows)} train images"
    asked = "" if met else f" ({_percent(share)} asked)"
    return _with_split(manifest, split, f"{purpose} {done}{asked}, seed {seed}")


def _percent(share: float) -> str:
    """Return a share as it was asked for.

    Example:
        >>> _percent(0.15), _percent(0.125)
        ('15%', '12.5%')
    """
    return f"{100 * share:g}%"


def _impossible(manifest: Manifest, purpose: str, count: int) -> DisMixError:
    """Return the error for a part that no group can go to: each is all that there is of a rank."""
    noun, more = "training images", "images"
    if is_grouped(manifest):
        noun, more = "groups (patients)", "patients"
    each = f"each of the {count} {noun}" if count > 1 else f"the only one of the {noun}"
    parts = {*manifest.table["split"], "val" if purpose == "validation" else "test"}
    cure = f"add {more}: train and {purpose} need 2 of a rank"
    cure += f"; {_TOGETHER}" if count == 1 else ""
    if len(parts) == len(SPLITS):
        cure = (
            f"add {more}: train, val and test need 3 of a rank; or do without one of these"
            " parts, such as --val alone on a manifest without test rows"
        )
    return DisMixError(
        f"cannot make a {purpose} part: {each} left in train holds a rank that no other has",
        file=manifest.path,
        cure=cure,
    )


def _with_split(manifest: Manifest, split: NDArray[np.object_], note: str) -> Manifest:
    """Replace the split column; the check that no group is split runs again."""
    table = manifest.table.assign(split=split)
    made = make_manifest(
        table, manifest.meta, manifest.root, path=manifest.path, lines=manifest.lines
    )
    return _noted(made, note)


def _noted(manifest: Manifest, note: str) -> Manifest:
    notes = "; ".join(part for part in (manifest.meta.notes, note) if part)
    return replace(manifest, meta=replace(manifest.meta, notes=notes))
