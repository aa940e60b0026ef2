"""How the images were really dealt: whole patients seldom give the shares that were asked for."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dismix.bench.folder import BenchFolder
from dismix.bench.sources import FULL
from dismix.bench.specs import Study
from dismix.data.manifest import Manifest, read_manifest

#: Folds that a note names one by one; of more it gives the number.
_NAMED = 5


@dataclass(frozen=True)
class Dealt:
    """Images of each of C grades in the three parts of a fold.

    Attributes:
        train: (C,) learned from, by what training uses.
        val: (C,) that chose the checkpoint, likewise.
        test: (C,) held out, by what they were judged by.
    """

    train: tuple[int, ...]
    val: tuple[int, ...]
    test: tuple[int, ...]

    def to_dict(self) -> dict[str, list[int]]:
        """Return plain values."""
        return {"train": [*self.train], "val": [*self.val], "test": [*self.test]}


def dealt_folds(study: Study, folder: BenchFolder) -> list[Dealt]:
    """Return how each of k folds was dealt, the first one first.

    Args:
        study: Its runs.
        folder: Holds the manifest of every fold.
    """
    data = {str(run.factors["fold"]): run.data for run in study.runs}
    names = sorted(data, key=lambda name: int(name.split("/")[0]))
    return [dealt(read_manifest(folder.manifest_dir(data[name]) / FULL)) for name in names]


def dealt(manifest: Manifest) -> Dealt:
    """Count the images of each grade in the parts of one fold.

    Args:
        manifest: With training, validation and test rows.
    """
    hard = manifest.target().hard.numpy()
    known = manifest.grades
    judged = np.where(np.isnan(known), hard, known).astype(np.int64)
    split = manifest.table["split"].to_numpy()

    def counts(name: str, grade: NDArray[np.int64]) -> tuple[int, ...]:
        return tuple(np.bincount(grade[split == name], minlength=manifest.num_ranks).tolist())

    return Dealt(counts("train", hard), counts("val", hard), counts("test", judged))


def dealing_words(folds: Sequence[Dealt]) -> tuple[str, str]:
    """Return how the folds were dealt, and what was done with the rest of each.

    Args:
        folds: All k of them.

    Example:
        >>> dealing_words([Dealt((4, 4), (2, 2), (6, 6)), Dealt((5, 5), (1, 1), (6, 6))])[1]
        '2 to 4 images (17 to 33 %) chose the checkpoint and 8 to 10 were learned from'
        >>> dealing_words([Dealt((6, 0), (0, 2), (0, 8)), Dealt((0, 6), (2, 0), (8, 0))])[0]
        'in shares of the grades as equal as images that belong together allow (1 of 2 grades \
in a fold)'
    """
    held = np.array([fold.test for fold in folds])
    even = held.sum(axis=0) / len(folds)
    # Whole images cannot be parted either; one more or less is as equal as it gets.
    if (np.abs(held - even) <= 1).all():
        how = "in equal shares of the grades"
    else:
        present = int((even > 0).sum())
        found = between([int((row > 0).sum()) for row in held])
        how = (
            "in shares of the grades as equal as images that belong together allow "
            f"({found} of {present} grades in a fold)"
        )
    chose, learned = ([sum(getattr(f, part)) for f in folds] for part in ("val", "train"))
    shares = [round(100 * v / max(1, v + t)) for v, t in zip(chose, learned, strict=True)]
    return how, (
        f"{between(chose)} images ({between(shares)} %) chose the checkpoint and "
        f"{between(learned)} were learned from"
    )


def dealing_notes(folds: Sequence[Dealt], ranks: Sequence[str]) -> list[str]:
    """Say where parts of a fold lack grades that others have.

    Args:
        folds: All k of them.
        ranks: C names.

    Example:
        >>> folds = [Dealt((3, 3), (2, 0), (1, 2)), Dealt((3, 3), (1, 1), (2, 1))]
        >>> dealing_notes(folds, ("mild", "severe"))
        ["Validation lacks grades in 1 of 2 folds (fold 1 lacks 'severe'): there the checkpoint \
was chosen on part of the scale."]
    """
    every = np.array([[f.train, f.val, f.test] for f in folds]).sum(axis=(0, 1)) > 0
    notes = []
    for what, part, so in (
        ("Validation lacks", "val", "there the checkpoint was chosen on part of the scale"),
        ("Held-out images lack", "test", "these folds are tested on part of the scale"),
    ):
        lacking = {
            number: [
                name for c, name in enumerate(ranks) if every[c] and not getattr(fold, part)[c]
            ]
            for number, fold in enumerate(folds, start=1)
        }
        lacking = {number: names for number, names in lacking.items() if names}
        if lacking:
            notes.append(
                f"{what} grades in {len(lacking)} of {len(folds)} folds{_named(lacking)}: {so}."
            )
    apart = [
        str(number)
        for number, fold in enumerate(folds, start=1)
        if not any(v and t for v, t in zip(fold.val, fold.test, strict=True))
    ]
    if apart:
        notes.append(
            f"In {len(apart)} of {len(folds)} folds ({', '.join(apart)}) no grade is both in "
            "validation and in what was held out: the checkpoint was chosen on other grades than "
            "those it was tested on. More patients or fewer --folds would help."
        )
    return notes


def _named(lacking: dict[int, list[str]]) -> str:
    if len(lacking) > _NAMED:
        return ""
    each = (f"fold {n} lacks {_quoted(names)}" for n, names in lacking.items())
    return f" ({'; '.join(each)})"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def between(values: Sequence[int]) -> str:
    """Return one number, or the least and the largest.

    Example:
        >>> between([3, 3]), between([1200, 3])
        ('3', '3 to 1,200')
    """
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
