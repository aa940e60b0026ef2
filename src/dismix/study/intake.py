"""The user's images taken in: what cannot be studied is said in one line, the rest is noted."""

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dismix.bench.derive import FOLDS_SEED, all_folds
from dismix.data.decode import advised
from dismix.data.laws import law_columns
from dismix.data.manifest import Manifest
from dismix.data.patient_columns import patient_column
from dismix.data.sources import open_manifest
from dismix.data.splits import split_validation
from dismix.data.store import build_store
from dismix.data.store_settings import settings_for
from dismix.data.strata import group_names, is_grouped
from dismix.errors import DisMixError
from dismix.progress import Progress
from dismix.study.choices import Choices

#: Fewer images in a fold than this tell nothing.
LEAST_IN_A_FOLD = 4


@dataclass(frozen=True)
class Intake:
    """Images that can be studied.

    Attributes:
        manifest: All rows that take part.
        counts: (C) images of each rank, by what training uses.
        votes: Whether training uses votes (else single grades).
        groups: Number of groups (patients); images without one count singly, equal files as one.
        notes: What a reader has to know about these data.
        skipped: A line for each image that could not be read.
    """

    manifest: Manifest
    counts: tuple[int, ...]
    votes: bool
    groups: int
    notes: tuple[str, ...]
    skipped: tuple[str, ...] = ()


def take_in(
    path: str | Path, choices: Choices, size: int, progress: Progress | None = None
) -> Intake:
    """Read, decode and check the images before anything is trained.

    Args:
        path: Manifest or folder.
        choices: What is asked for.
        size: Pixels a side.
        progress: Called while images are decoded.

    Raises:
        DisMixError: Unreadable images, or too few for what is asked.
    """
    manifest = open_manifest(path)
    notes: list[str] = []
    tested = int((manifest.table["split"] == "test").sum())
    if choices.without_test and tested:
        manifest = manifest.split("train", "val")
        notes.append(f"{tested} images marked 'test' were left out, as asked.")
    elif tested:
        notes.append(
            f"{tested} images marked 'test' take part: every image is held out once. Who keeps them"
            " for a final test should run this with --without-test."
        )
    if patients := patient_column(manifest.table):
        notes.append(
            f"Column '{patients}' looks like a patient, but the manifest has no groups: images of"
            " one patient may be both learned and tested, which makes all numbers too good."
        )
    manifest, skipped = _readable(manifest, choices, size, progress)
    if skipped:
        notes.append(f"{len(skipped)} images could not be read and were left out.")
    hard, groups = manifest.target().hard.numpy(), np.array(group_names(manifest))
    counts = np.bincount(hard, minlength=manifest.num_ranks)
    _refuse_too_few(manifest, counts, len({*groups}), choices.folds)
    _refuse_folds(manifest, choices.folds)
    notes += _rare_grades(manifest, hard, groups, choices.folds)
    votes = bool(manifest.annotators) or bool(law_columns(manifest.table))
    return Intake(
        manifest, tuple(int(c) for c in counts), votes, len({*groups}),
        tuple(notes), tuple(skipped),
    )  # fmt: skip


def _readable(
    manifest: Manifest, choices: Choices, size: int, progress: Progress | None
) -> tuple[Manifest, list[str]]:
    settings = settings_for(manifest.meta, size)
    try:
        store = build_store(
            manifest.image_paths, settings, on_error=choices.on_error, progress=progress
        )
    except DisMixError as error:
        raise advised(error, "or leave such files out with --on-error skip") from error
    if not store.skipped:
        return manifest, []
    keep = np.ones(len(manifest), dtype=bool)
    keep[[item.row for item in store.skipped]] = False
    return manifest.rows(keep), [f"{item.path.name}: {item.reason}" for item in store.skipped]


def _refuse_too_few(manifest: Manifest, counts: NDArray[np.int64], groups: int, folds: int) -> None:
    place = manifest.path or manifest.root
    names, present = manifest.meta.ranks, np.flatnonzero(counts)
    if len(present) < 2:
        raise DisMixError(
            f"all images have grade '{names[present[0]]}': there is nothing to tell apart",
            file=place,
            cure="add images of other grades",
        )
    # Of both rules the one that allows less: advice has to work.
    most = min(groups, len(manifest) // LEAST_IN_A_FOLD)
    fewer = f"give --folds {most}, or " if most >= 2 else ""
    if groups < folds and is_grouped(manifest):
        raise DisMixError(
            f"{groups} groups (patients) cannot be dealt into {folds} folds",
            file=place,
            cure=f"{fewer}add images of other groups",
        )
    if len(manifest) < LEAST_IN_A_FOLD * folds:
        raise DisMixError(
            f"{len(manifest)} images are too few for {folds} folds of {LEAST_IN_A_FOLD} or more",
            file=place,
            cure=f"{fewer}add images",
        )


def _refuse_folds(manifest: Manifest, folds: int) -> None:
    """Deal the folds and their validation parts once, to fail now rather than after a trial."""
    place = manifest.path or manifest.root
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            dealt = all_folds(manifest, folds, FOLDS_SEED)
        except DisMixError as error:
            raise DisMixError(
                error.problem, file=place, column=error.column,
                cure=(error.cure or "").replace("give 2 to", "give --folds 2 to"),
            ) from error  # fmt: skip
        for number, fold in enumerate(dealt, start=1):
            try:
                split_validation(fold, seed=0)
            except DisMixError as error:
                raise DisMixError(
                    f"fold {number} of {folds} {error.problem}", file=place,
                    cure="add images of other groups (patients): each grade needs one to learn "
                    "from, one to choose the checkpoint by and one to be tested on",
                ) from error  # fmt: skip


def _rare_grades(
    manifest: Manifest, hard: NDArray[np.int64], groups: NDArray[np.str_], folds: int
) -> list[str]:
    """Say which grades too few groups (N,) hold for every fold to have one."""
    noun = "patients or groups" if is_grouped(manifest) else "images"
    notes = []
    for rank, name in enumerate(manifest.meta.ranks):
        holders = len({*groups[hard == rank]})
        if holders == 0:
            notes.append(f"No image has grade '{name}': no grader here could ever learn it.")
        elif holders == 1:
            notes.append(
                f"Grade '{name}' comes from one of the {noun} only: it is never both learned and"
                " tested, so this study says nothing about it."
            )
        elif holders < folds:
            notes.append(
                f"Grade '{name}' comes from {holders} {noun}, fewer than the {folds} folds: some"
                " folds are tested without it, and what is said of it is weak."
            )
    return notes
