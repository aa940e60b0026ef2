"""The main table once more, without some test images: twins of training images, say.

Which images, stands in ``leave_out.json`` of the benchmark's folder::

    {"title": "Without twin images",
     "why": "Test images that also are among the training images.",
     "images": {"idrid": ["IDRiD_001.jpg", ...]}}

Names are those of the records' predictions. Nothing is trained again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dismix.bench.paper import data_key
from dismix.bench.report_data import Predictions, Record
from dismix.bench.report_study import Study
from dismix.bench.tables import METRICS, Table, draw_grid
from dismix.bench.tables_statistics import comparison_table, judge
from dismix.bench.tables_studies import main_grid
from dismix.errors import DisMixError

LEAVE_OUT = "leave_out.json"


@dataclass(frozen=True)
class LeftOut:
    """What ``leave_out.json`` says: a title, a reason, and images by data set."""

    title: str
    why: str
    images: Mapping[str, frozenset[str]]


def read_left_out(folder: Path) -> LeftOut | None:
    """Read ``leave_out.json``; None when there is none."""
    path = folder / LEAVE_OUT
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        images = {
            data_key(name): frozenset(str(image) for image in listed)
            for name, listed in content["images"].items()
        }
        title = str(content.get("title") or "Without some test images")
        return LeftOut(title, str(content.get("why") or ""), images)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DisMixError(
            f"does not name images ({type(error).__name__}: {error})", file=path,
            cure='write {"images": {"data set": ["image", ...]}}',
        ) from error  # fmt: skip


def tables_without(study: Study, left: LeftOut) -> list[Table]:
    """Return the main table and the comparisons over the images that are kept."""
    changed = study_without(study, left)
    if not changed.groups:
        return []
    grid = replace(main_grid(changed), key="without", title=left.title, paper="")
    grid = replace(grid, rows=[row for row in grid.rows if row.data in left.images])
    kept: dict[str, dict[int, int]] = {}
    for record in (r for group in changed.groups.values() for r in group):
        if record.predictions is not None:
            # Every fold has test images of its own.
            kept.setdefault(record.data, {})[record.fold] = len(record.predictions.grade)
    words = "; ".join(
        f"{changed.data_name(data)}: {sum(by_fold.values())} test images kept"
        for data, by_fold in sorted(kept.items())
    )
    tables = [t for m in METRICS for t in draw_grid(changed, grid, m) if not t.folded]
    tables = [replace(table, notes=(*table.notes, words + ".")) for table in tables]
    for metric in METRICS:
        outcome = judge(changed, metric)
        if outcome.comparisons:
            table = comparison_table(outcome)
            caption = f"{table.caption}, {left.title[:1].lower()}{left.title[1:]}"
            tables.append(replace(table, key=f"without-{table.key}", caption=caption))
    return tables


def study_without(study: Study, left: LeftOut) -> Study:
    """Return the main runs of the named data sets, judged on the images that are kept."""
    found = []
    for record in study.records:
        usual = record.kind == "grader" and record.condition == study.base
        if usual and record.data in left.images:
            judged = _judged(record, left.images[record.data])
            found += [] if judged is None else [judged]
    return Study(found)


def _judged(record: Record, images: frozenset[str]) -> Record | None:
    given = record.predictions
    if given is None or record.status != "done":
        return None
    keep = np.array([image not in images for image in given.image])
    if not keep.any():
        return None
    names = tuple(name for name, kept in zip(given.image, keep, strict=True) if kept)
    some = Predictions(names, given.grade[keep], given.label[keep])
    wrong = np.abs(some.label - some.grade)
    metrics = {"accuracy": float((wrong == 0).mean()), "mae": float(wrong.mean())}
    return replace(record, predictions=some, content={**record.content, "metrics": metrics})
