"""KOA: knee X-rays, Kellgren-Lawrence grade 0-4.

Chen, "Knee Osteoarthritis Severity Grading Dataset", Mendeley Data 2018 (kneeKL224), from the
Osteoarthritis Initiative. As published: ``{train,val,test}/{0..4}/<patient><L or R>.png``. Both
knees of a patient share a group. The paper trains on train and val together
(``val_as_train=True``) and equalises histograms, so the manifest asks for it. The publisher's
``auto_test`` (machine-cropped copies of the test knees) is left out.
"""

import re
from pathlib import Path

import pandas as pd

from dismix.data.manifest import SPLITS, Manifest, ManifestMeta, make_manifest
from dismix.data.sources.base import (
    SOURCES,
    Source,
    find_entry,
    require_entry,
    require_folder,
)
from dismix.data.sources.walking import images_below, is_image, subfolders
from dismix.errors import DisMixError

RANKS = ("none", "doubtful", "minimal", "moderate", "severe")
_GRADES = tuple(str(grade) for grade in range(len(RANKS)))
_NAME = re.compile(r"(\d+)_?([LR])", re.IGNORECASE)
_CURE = "give the folder that holds train/0..4, val/0..4 and test/0..4, as published"


def read(root: str | Path, *, val_as_train: bool = False) -> Manifest:
    """Read the published folder: 5,778 train, 826 val and 1,656 test knees.

    Args:
        root: Folder that contains train, val and test.
        val_as_train: Put the publisher's validation images into the training split.
    """
    root = require_folder(root)
    rows: list[tuple[object, ...]] = []
    for split in SPLITS:
        if split == "val":
            folder = find_entry(root, split)
            if folder is None:
                continue
        else:
            folder = require_entry(root, split, cure=_CURE)
        shown = "train" if val_as_train and split == "val" else split
        rows.extend((*row[:1], shown, *row[1:]) for row in _knees(folder, root))
    table = pd.DataFrame(rows, columns=["image", "split", "group", "grade", "side"])
    notes = "publisher's val is part of train" if val_as_train else ""
    meta = ManifestMeta(ranks=RANKS, equalize=True, grey=True, source="koa", notes=notes)
    return make_manifest(table, meta, root)


def recognises(root: Path) -> bool:
    """Return whether train holds grades 0-4 with files named by patient and side."""
    train = find_entry(root, "train")
    if train is None or find_entry(root, "test") is None:
        return False
    if tuple(folder.name for folder in subfolders(train)) != _GRADES:
        return False
    images = (entry for entry in (train / "0").iterdir() if is_image(entry.name))
    first = next(images, None)
    return first is not None and _NAME.fullmatch(first.stem) is not None


def _knees(folder: Path, root: Path) -> list[tuple[str, str, int, str]]:
    """List image, patient, grade and side of the knees in one split's folder."""
    rows = []
    for grade_folder in subfolders(folder):
        if grade_folder.name not in _GRADES:
            raise DisMixError("is not a grade from 0 to 4", file=grade_folder, cure=_CURE)
        for image in images_below(grade_folder, deep=False):
            name = _NAME.fullmatch(image.stem)
            if name is None:
                raise DisMixError(
                    "is not named <patient><L or R>",
                    file=image,
                    cure="remove it, or import the tree with source 'folders'",
                )
            rows.append(
                (image.relative_to(root).as_posix(), name[1], int(grade_folder.name), name[2])
            )
    if not rows:
        raise DisMixError("holds no images in folders 0 to 4", file=folder, cure=_CURE)
    return rows


SOURCE = SOURCES.register("koa")(
    Source(
        name="koa",
        about="knee X-rays, Kellgren-Lawrence 0-4 (5,778 train, 826 val, 1,656 test)",
        obtain="Mendeley Data 56rmx5bjcr (kneeKL224), from the OAI; its terms of use apply",
        read=read,
        recognises=recognises,
    )
)
