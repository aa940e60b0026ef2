"""Chaoyang: colon slides, normal to adenocarcinoma, graded by three pathologists.

Zhu et al., "Hard Sample Aware Noise Robust Learning for Histopathology Image Classification",
IEEE TMI 2021. As published: ``train.json`` and ``test.json``, each a list of
``{name, label, label_A, label_B, label_C}``, and images ``train/*.JPG`` and ``test/*.JPG``. Where
``train.json`` has no pathologists' labels, ``train_label.json`` (which has) is read instead.

The publisher's codes (0 normal, 1 serrated, 2 adenocarcinoma, 3 adenoma) are no order. The ranks
here follow ``order``, by default the clinical one: normal < serrated < adenoma < adenocarcinoma.

Patches of one slide are a group. The published split cuts through slides, so test patches of a
slide that also has training patches get no group; their slide stays in the column ``slide``.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from dismix.data.manifest import Manifest, ManifestMeta, make_manifest
from dismix.data.sources.base import SOURCES, Source, find_entry, require_entry, require_folder
from dismix.errors import DisMixError

#: Publisher's codes 0, 1, 2, 3.
CODES = ("normal", "serrated", "adenocarcinoma", "adenoma")
CLINICAL_ORDER = ("normal", "serrated", "adenoma", "adenocarcinoma")
PATHOLOGISTS = ("A", "B", "C")
_CURE = "give the folder that holds train.json, test.json, train and test, as published"


def read(
    root: str | Path, *, order: tuple[str, ...] = CLINICAL_ORDER, group_by_slide: bool = True
) -> Manifest:
    """Read the published folder: 4,021 training and 2,139 test patches.

    Args:
        root: Folder that contains train.json and test.json.
        order: The four classes from the lowest rank to the highest.
        group_by_slide: Let patches of one slide form a group.
    """
    root, order = require_folder(root), _checked_order(order)
    rows = []
    for split in ("train", "test"):
        file, entries = _with_votes(root, split)
        for number, entry in enumerate(entries, 1):
            rows.append(_row(entry, split, order, file, number))
    table = pd.DataFrame(rows)
    cut = _cut_slides(table)
    if group_by_slide:
        in_cut_slide = table["slide"].isin(cut) & (table["split"] == "test")
        table["group"] = table["slide"].mask(in_cut_slide)
    notes = f"ranks by severity: {' < '.join(order)}; publisher's codes: {', '.join(CODES)}"
    if cut:
        notes += f"; the published split has {len(cut)} slides in both train and test"
    table = table.dropna(axis="columns", how="all")
    return make_manifest(table, ManifestMeta(ranks=order, source="chaoyang", notes=notes), root)


def recognises(root: Path) -> bool:
    """Return whether train.json starts like the publisher's list."""
    file = find_entry(root, "train.json")
    if file is None or find_entry(root, "test.json") is None:
        return False
    try:
        with open(file, encoding="utf-8") as opened:
            start = opened.read(400)
    except (OSError, UnicodeDecodeError):
        return False
    return start.lstrip().startswith("[") and '"name"' in start and '"label"' in start


def _checked_order(order: tuple[str, ...]) -> tuple[str, ...]:
    lower = tuple(name.strip().lower() for name in order)
    if sorted(lower) != sorted(CODES):
        raise DisMixError(
            f"order '{', '.join(order)}' does not name each class once",
            column="order",
            cure=f"list {', '.join(CLINICAL_ORDER)} from the lowest rank to the highest",
        )
    return lower


def _with_votes(root: Path, split: str) -> tuple[Path, list[dict[str, Any]]]:
    """Return the list with pathologists' labels where one of the two files has them."""
    file = require_entry(root, f"{split}.json", cure=_CURE)
    entries = _entries(file)
    voted = find_entry(root, f"{split}_label.json")
    if voted is not None and not any("label_A" in entry for entry in entries):
        return voted, _entries(voted)
    return file, entries


def _entries(file: Path) -> list[dict[str, Any]]:
    try:
        content = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise DisMixError(
            f"cannot be read as JSON ({error})", file=file, cure="copy it again from the publisher"
        ) from error
    if not isinstance(content, list) or not content:
        raise DisMixError("is not a list of patches", file=file, cure=_CURE)
    for number, entry in enumerate(content, 1):
        keys = entry if isinstance(entry, dict) else {}
        missing = [key for key in ("name", "label") if key not in keys]
        if missing:
            raise DisMixError(
                f"entry {number} has no '{missing[0]}'",
                file=file,
                row=number,
                cure='each entry is {"name": ..., "label": ...}',
            )
    return content


def _row(
    entry: dict[str, Any], split: str, order: tuple[str, ...], file: Path, number: int
) -> dict[str, object]:
    name = str(entry["name"]).replace("\\", "/")
    row: dict[str, object] = {
        "image": name if "/" in name else f"{split}/{name}",
        "split": split,
        "slide": Path(name).name.split("-IMG")[0],
        "grade": _rank(entry["label"], order, file, number, "label"),
    }
    for who in PATHOLOGISTS:
        key = f"label_{who}"
        row[f"annotator_{who}"] = _rank(entry.get(key), order, file, number, key)
    return row


def _rank(code: object, order: tuple[str, ...], file: Path, number: int, key: str) -> int | None:
    """Return the rank of a publisher's code; None for an absent label."""
    if code is None:
        return None
    if type(code) is not int or code not in range(len(CODES)):
        codes = ", ".join(f"{i} ({name})" for i, name in enumerate(CODES))
        raise DisMixError(
            f"{code!r} is not a class code", file=file, row=number, column=key, cure=f"use {codes}"
        )
    return order.index(CODES[code])


def _cut_slides(table: pd.DataFrame) -> set[str]:
    train, test = (set(table.loc[table["split"] == name, "slide"]) for name in ("train", "test"))
    return train & test


SOURCE = SOURCES.register("chaoyang")(
    Source(
        name="chaoyang",
        about="colon slide patches, normal to adenocarcinoma, 3 pathologists (4,021 / 2,139)",
        obtain="github.com/bupt-ai-cz/HSA-NRL, by its request form; non-commercial use only",
        read=read,
        recognises=recognises,
    )
)
