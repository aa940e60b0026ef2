"""CrowdGleason: prostate slides, non-cancerous to Gleason 5, graded by seven residents.

Lopez-Perez et al., "The CrowdGleason dataset: Learning the Gleason grade from crowds and
experts", Computer Methods and Programs in Biomedicine 257, 2024. As published: ``train.csv``,
``val.csv`` and ``test.csv`` with ``Patch filename`` (with or without its ending), the residents'
majority ``label``, in the test file the expert's ``ground truth``, and a column for each resident
(empty or -1: not graded). Grades are NC, G3, G4, G5 or 0..3.

The test set is the rows on which expert and majority agree, as in the dataset's own code.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from dismix.data.delimited import read_delimited
from dismix.data.manifest import SPLITS, Manifest, ManifestMeta, make_manifest
from dismix.data.sources.base import (
    SOURCES,
    Source,
    compiled_group_pattern,
    find_entry,
    group_of,
    parse_rank,
    require_entry,
    require_folder,
)
from dismix.data.sources.walking import images_below
from dismix.errors import DisMixError

RANKS = ("NC", "G3", "G4", "G5")
FILENAME, LABEL, TRUTH = "patch filename", "label", "ground truth"
#: Columns that hold neither an image nor a resident: other aggregates and spreadsheet indices.
_MAJORITY = (LABEL, "mv")
_NO_RESIDENT = frozenset({FILENAME, *_MAJORITY, TRUTH, "ds", "em", "gt", "index", ""})
_CURE = "give the folder that holds train.csv, val.csv, test.csv and the patches, as published"


def read(root: str | Path, *, consensus_only: bool = True, group_pattern: str = "") -> Manifest:
    r"""Read the published folder.

    Args:
        root: Folder that contains the three tables; patches may lie in any folder below it.
        consensus_only: Test on the rows where ground truth and majority agree.
        group_pattern: Regular expression with one capture group that finds the slide in a
            patch's file name, such as ``^(\w+?)_``.
    """
    root = require_folder(root)
    pattern = compiled_group_pattern(group_pattern)
    patches = _Patches(root)
    rows: list[dict[str, object]] = []
    for split in SPLITS:
        file = require_entry(root, f"{split}.csv", cure=_CURE)
        found = _rows(file, split, patches, consensus_only)
        if not found:
            raise DisMixError("gives no rows", file=file, cure="copy it again from the publisher")
        rows.extend(found)
    table = pd.DataFrame(rows)
    if pattern is not None:
        table.insert(2, "group", [group_of(Path(p).name, pattern) for p in table["image"]])
    notes = "test: rows where ground truth equals the majority" if consensus_only else ""
    meta = ManifestMeta(ranks=RANKS, source="crowdgleason", notes=notes)
    return make_manifest(table, meta, root)


def recognises(root: Path) -> bool:
    """Return whether train.csv has the column "Patch filename"."""
    file = find_entry(root, "train.csv")
    if file is None or find_entry(root, "test.csv") is None:
        return False
    try:
        with open(file, encoding="utf-8-sig") as opened:
            return FILENAME in opened.readline().lower()
    except (OSError, UnicodeDecodeError):
        return False


class _Patches:
    """Finds patches by name, with or without ending, in any folder below the root."""

    def __init__(self, root: Path) -> None:
        self.known: dict[str, list[str]] = {}
        for path in images_below(root):
            for key in {path.name.casefold(), path.stem.casefold()}:
                self.known.setdefault(key, []).append(path.relative_to(root).as_posix())

    def find(self, name: str, split: str) -> str:
        """Return the patch's path; one in the split's own folder wins."""
        hits = self.known.get(Path(name).name.casefold(), [])
        own = [hit for hit in hits if split in hit.lower().split("/")[:-1]]
        missing = f"{split}/{name}"
        return next(iter(own or hits), missing)


def _rows(
    file: Path, split: str, patches: _Patches, consensus_only: bool
) -> list[dict[str, object]]:
    table, lines = read_delimited(file)
    names = {str(column).strip().casefold(): str(column) for column in table.columns}
    majority = next((names[name] for name in _MAJORITY if name in names), None)
    needed = [FILENAME, TRUTH] if split == "test" else [FILENAME]
    missing = [name for name in needed if name not in names]
    if missing or (majority is None and (split != "test" or consensus_only)):
        column = missing[0] if missing else LABEL
        raise DisMixError("is missing", file=file, row=1, column=column, cure=_CURE)
    residents = [
        c for name, c in names.items() if name not in _NO_RESIDENT and "unnamed" not in name
    ]
    rows = []
    for cells, line in zip(table.to_dict("records"), lines.tolist(), strict=True):
        ranks = {c: _rank(cells[c], file, line, c) for c in _used(names, majority, residents)}
        truth = ranks.get(names.get(TRUTH, ""))
        agreed = truth is not None and truth == ranks.get(majority or "")
        if split == "test" and consensus_only and not agreed:
            continue
        row: dict[str, object] = {
            "image": patches.find(str(cells[names[FILENAME]]).strip(), split),
            "split": split,
            "grade": truth if split == "test" else ranks[majority or ""],
        }
        rows.append(row | {f"annotator_{c.strip()}": ranks[c] for c in residents})
    return rows


def _used(names: dict[str, str], majority: str | None, residents: Sequence[str]) -> list[str]:
    truth = [names[TRUTH]] if TRUTH in names else []
    return [*truth, *([majority] if majority is not None else []), *residents]


def _rank(cell: object, file: Path, line: int, column: str) -> int | None:
    text = str(cell).strip()
    if re.fullmatch(r"-1(\.0*)?", text):
        return None
    return parse_rank(text, RANKS, file=file, row=line, column=column)


SOURCE = SOURCES.register("crowdgleason")(
    Source(
        name="crowdgleason",
        about="prostate slide patches, NC and Gleason 3-5, 7 residents (16,151 / 2,926)",
        obtain="zenodo.org/records/14178894; the record states its licence",
        read=read,
        recognises=recognises,
    )
)
