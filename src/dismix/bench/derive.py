"""From the data a user gives to the data a run sees: folds, votes, validation part, scarcity.

Nothing here depends on the seed of a run: all seeds share the votes, the validation split and
the scarce subset, so a generator trained on the training part never sees an image that any of
the seeds validates or tests on.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dismix.data.annotators.simulate import simulate_annotators
from dismix.data.digest import content_digests
from dismix.data.draws import image_keys
from dismix.data.laws import law_columns
from dismix.data.manifest import Manifest, make_manifest, vote_columns
from dismix.data.splits import k_fold, merge_splits, scarcity_subset, split_validation
from dismix.data.store import default_cache_dir
from dismix.errors import DisMixError

#: The paper's: five annotators (after CLOC), 15 % for validation, ten images of a rank at least.
VOTES = {"annotators": 5, "mode": "per_vote", "seed": 0}
VALIDATION = {"share": 0.15, "seed": 0, "own": "keep"}
SCARCITY = {"at_least": 10, "seed": 0}
#: Seed of the folds: all folds of a study are parts of one dealing.
FOLDS_SEED = 0


def derivation(
    manifest: Manifest, cell: Mapping[str, Any], sections: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return all settings that `derive` needs, plain and settled.

    Args:
        manifest: The source.
        cell: Factors: labels, variability, scarcity, fold.
        sections: The plan's settings in this cell.
    """
    has_val = bool((manifest.table["split"] == "val").any())
    validation = {**VALIDATION, **sections["validation"]}
    folded = cell["fold"] != "none"
    if has_val and validation["own"] == "keep" and not folded:
        validation = {"own": "keep"}
    how: dict[str, Any] = {"labels": cell["labels"], "validation": validation}
    if folded:
        number, of = (int(part) for part in cell["fold"].split("/"))
        how["fold"] = {"number": number, "of": of, "seed": FOLDS_SEED}
    if cell["labels"] == "votes":
        how["variability"] = settled_variability(manifest, cell["variability"])
        if how["variability"] != "own":
            how["votes"] = {**VOTES, **sections["votes"]}
    if cell["scarcity"] < 1:
        how["scarcity"] = {"share": cell["scarcity"], **SCARCITY, **sections["scarcity"]}
    return how


def settled_variability(manifest: Manifest, wanted: Any) -> Any:
    """Return "own" or per cent: data with votes or laws keep them unless a level is asked for."""
    if wanted != "auto":
        return wanted
    return "own" if manifest.annotators or law_columns(manifest.table) else 30


def derive(manifest: Manifest, how: Mapping[str, Any]) -> Manifest:
    """Return the data as runs see them.

    Args:
        manifest: The source.
        how: From `derivation`.

    Raises:
        DisMixError: No test split, or no grades to simulate votes from.
    """
    made = folded(manifest, **how["fold"]) if "fold" in how else manifest
    if not (made.table["split"] == "test").any():
        raise DisMixError(
            "has no test images",
            file=manifest.path or manifest.root,
            column="split",
            cure="`dismix data split MANIFEST --test 0.2 -o NEW` makes a test part",
        )
    validation = dict(how["validation"])
    if validation.pop("own") == "merge" and (made.table["split"] == "val").any():
        made = merge_splits(made, {"val": "train"})
    if how["labels"] == "clean":
        made = without_votes(made)
    elif how["variability"] != "own":
        # A law of a row's own would go before the votes.
        spoken = made.annotators or law_columns(made.table)
        bare = _bare(made) if spoken else made
        _refuse_few_ranks(bare, how["votes"])
        made, _ = simulate_annotators(bare, str(how["variability"]), **how["votes"])
    if not (made.table["split"] == "val").any():
        made = split_validation(made, validation["share"], seed=validation["seed"])
    if "scarcity" in how:
        scarce = how["scarcity"]
        made = scarcity_subset(
            made, scarce["share"], at_least=scarce["at_least"], seed=scarce["seed"]
        )
    return made


def _refuse_few_ranks(manifest: Manifest, votes: Mapping[str, Any]) -> None:
    """Raise where simulated annotators have no two ranks to confuse, in words of a plan."""
    lower, upper = votes.get("lower", 1), votes.get("upper", 2)
    if upper >= manifest.num_ranks:
        raise DisMixError(
            f"has single grades, so votes are simulated that go astray between the ranks {lower} "
            f"and {upper}, counted from 0; but there are {manifest.num_ranks} ranks",
            file=manifest.path or manifest.root,
            cure="add --set labels=clean, or to the plan a section `votes` with lower and upper",
        )


def folded(manifest: Manifest, number: int, of: int, seed: int) -> Manifest:
    """Return all rows pooled, whatever their split was, and one fold of them held out as test.

    Args:
        manifest: The source; its groups are never parted.
        number: Which fold, from 1.
        of: Number of folds.
        seed: Of the dealing.
    """
    return all_folds(manifest, of, seed)[number - 1]


def all_folds(manifest: Manifest, of: int, seed: int) -> list[Manifest]:
    """Return what `folded` does for each number."""
    others = {name: "train" for name in ("val", "test") if (manifest.table["split"] == name).any()}
    pooled = merge_splits(manifest, others) if others else manifest
    return k_fold(pooled, of, seed=seed, held_out="test")


def without_votes(manifest: Manifest) -> Manifest:
    """Return one label an image: its grade, or the majority of its votes where it has none."""
    table = manifest.table.copy()
    grades = manifest.grades
    hard = manifest.target().hard.numpy().astype(np.float64)
    table["grade"] = np.where(np.isnan(grades), hard, grades).astype(np.int64)
    return _bare(manifest.with_table(table))


def _bare(manifest: Manifest) -> Manifest:
    drop = [*vote_columns(manifest.table), *law_columns(manifest.table)]
    table = manifest.table.drop(columns=drop)
    missing = np.isnan(manifest.grades)
    if missing.any():
        what = "votes" if manifest.annotators else "soft labels"
        some = "" if missing.all() else f" in {int(missing.sum())} of {len(missing)} rows"
        raise DisMixError(
            f"has {what} but no grades to simulate votes from{some}",
            file=manifest.path,
            column="grade",
            cure="run it with --set variability=own",
        )
    return make_manifest(
        table, manifest.meta, manifest.root, path=manifest.path, lines=manifest.lines
    )


def source_digest(manifest: Manifest) -> str:
    """Return the digest of everything that a derivation depends on, names of images included."""
    table = manifest.table
    group = table["group"].astype(str).tolist() if "group" in table else []
    parts = [
        _image_digests(manifest), image_keys(manifest.image_paths), table["split"].tolist(),
        group, _numbers(manifest.grades), _numbers(manifest.votes), manifest.annotators,
        _numbers(manifest.target().probs.numpy()), _meta(manifest),
    ]  # fmt: skip
    return sha(parts)


def content_digest(manifest: Manifest) -> str:
    """Return the digest of what a training sees: pixels, order, splits, targets, meta.

    It does not depend on paths or names.
    """
    target = manifest.target()
    parts = [
        _image_digests(manifest), manifest.table["split"].tolist(),
        _numbers(target.probs.numpy()), _meta(manifest),
    ]  # fmt: skip
    if not bool(target.clean.all()):
        # A law of one rank is no grade: some graders compare with graded images only.
        parts.append(target.clean.tolist())
    return sha(parts)


def votes_digest(manifest: Manifest) -> str:
    """Return the digest of who voted what, which a consensus of annotators depends on."""
    return sha(_numbers(manifest.votes))


def sha(value: Any) -> str:
    """Return the SHA-256 of plain values, whatever the order of their keys.

    Example:
        >>> sha({"a": 1, "b": [2]}) == sha({"b": [2], "a": 1})
        True
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _image_digests(manifest: Manifest) -> list[str]:
    folder = default_cache_dir()
    Path(folder).mkdir(parents=True, exist_ok=True)
    return content_digests(manifest.image_paths, folder, workers=4)


def _numbers(values: Any) -> str:
    # Bytes of one fixed type: text of floats could differ between versions of NumPy.
    return hashlib.sha256(np.ascontiguousarray(values, "<f8").tobytes()).hexdigest()


def _meta(manifest: Manifest) -> list[Any]:
    meta = manifest.meta
    return [[*meta.ranks], meta.equalize, meta.grey, meta.bits, meta.fit]
