"""IDRiD disease grading: eye fundus photographs, diabetic retinopathy 0-4.

Porwal et al., "Indian Diabetic Retinopathy Image Dataset (IDRiD)", Data 3(3), 2018. As
published: ``B. Disease Grading/1. Original Images/{a. Training Set,b. Testing Set}`` and two
CSV files in ``2. Groundtruths``, the training one with empty trailing columns. The grade of
macular oedema is kept as ``macular_edema``. There is no patient id, so there are no groups.

Training images one number apart are more alike, in colour and in grade, than images further apart
(`benchmarks/idrid_neighbours.py`): some are the two eyes of one person. A validation part drawn at
random then holds eyes whose fellows are trained on; ``block`` keeps neighbours together.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from dismix.data.delimited import read_delimited
from dismix.data.manifest import Manifest, ManifestMeta, make_manifest
from dismix.data.sources.base import (
    SOURCES,
    Source,
    find_entry,
    parse_rank,
    require_entry,
    require_folder,
)
from dismix.data.sources.walking import images_below
from dismix.errors import DisMixError

RANKS = ("no retinopathy", "mild", "moderate", "severe", "proliferative")
PART = "B. Disease Grading"
IMAGES, LABELS = "1. Original Images", "2. Groundtruths"
#: Split: folder of images, file of grades, and what other spellings of either contain.
FILES = {
    "train": ("a. Training Set", "a. IDRiD_Disease Grading_Training Labels.csv", "train"),
    "test": ("b. Testing Set", "b. IDRiD_Disease Grading_Testing Labels.csv", "test"),
}
_CURE = f"give the folder that contains '{PART}', or that folder, as published"


def read(root: str | Path, *, block: int = 0) -> Manifest:
    """Read the published folder: 413 training and 103 test images.

    Args:
        root: Folder that contains "B. Disease Grading", or that folder itself.
        block: Images whose numbers lie in one block of so many are a group, as if of one person;
            0 for no groups.
    """
    root = require_folder(root)
    part = find_entry(root, PART) or root
    images = require_entry(part, IMAGES, loose=r"original.?images", cure=_CURE)
    labels = require_entry(part, LABELS, loose=r"ground.?truths?", cure=_CURE)
    rows = []
    for split, (folder_name, file_name, word) in FILES.items():
        folder = require_entry(images, folder_name, loose=word, cure=_CURE)
        file = require_entry(labels, file_name, loose=rf"{word}.*\.csv$", cure=_CURE)
        known = {p.stem.casefold(): p for p in images_below(folder, deep=False)}
        for name, grade, edema in _labels(file):
            # A missing image keeps the publisher's name, for the data check to report.
            image = known.get(name.casefold(), folder / f"{name}.jpg")
            rows.append((image.relative_to(root).as_posix(), split, grade, edema))
    table = pd.DataFrame(rows, columns=["image", "split", "grade", "macular_edema"])
    if block > 0:
        names = zip(table["image"], table["split"], strict=True)
        table["group"] = [f"{split}-{_number(image) // block}" for image, split in names]
    return make_manifest(table, ManifestMeta(ranks=RANKS, source="idrid"), root)


def _number(image: str) -> int:
    """Return an image's place in the publisher's order, from 0.

    Example:
        >>> _number("a/IDRiD_010.jpg")
        9
    """
    found = re.findall(r"\d+", Path(image).stem)
    if not found:
        raise DisMixError("has no number", file=image, cure="leave out block")
    return int(found[-1]) - 1


def recognises(root: Path) -> bool:
    """Return whether the two folders of the publisher's layout are there."""
    part = find_entry(root, PART) or root
    images = find_entry(part, IMAGES)
    return (
        images is not None
        and find_entry(part, LABELS) is not None
        and find_entry(images, FILES["train"][0]) is not None
    )


def _labels(file: Path) -> Iterator[tuple[str, int, str]]:
    """Yield image name, grade and oedema grade of each row."""
    table, lines = read_delimited(file)
    table = table.rename(columns=str.casefold)
    columns = ("Image name", "Retinopathy grade", "Risk of macular edema")
    for column in columns:
        if column.casefold() not in table:
            raise DisMixError("is missing", file=file, row=1, column=column, cure=_CURE)
    cells = table[[column.casefold() for column in columns]].itertuples(index=False, name=None)
    for (name, grade_text, edema), line in zip(cells, lines.tolist(), strict=True):
        grade = parse_rank(grade_text, RANKS, file=file, row=line, column=columns[1])
        if not name or grade is None:
            empty = columns[1] if name else columns[0]
            raise DisMixError("is empty", file=file, row=line, column=empty, cure="fill it in")
        yield name, grade, edema


SOURCE = SOURCES.register("idrid")(
    Source(
        name="idrid",
        about="eye fundus photographs, diabetic retinopathy 0-4 (413 train, 103 test)",
        obtain="IEEE DataPort 'Indian Diabetic Retinopathy Image Dataset', part B; CC BY 4.0",
        read=read,
        recognises=recognises,
    )
)
