"""The main table once more, without some test images: twins of training images, say.

Which images, stands in ``leave_out.json`` of the benchmark's folder::

    {"title": "Without twin images",
     "why": "Test images that also are among the training images.",
     "images": {"idrid": ["IDRiD_001.jpg", ...]}}

Names are those of the records' predictions: as many parts of an image's path as tell the test
images apart or, where the data are dealt into folds, all images. Nothing is trained again.
"""

import json
from collections.abc import Iterator, Mapping
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
#: So many names are told in a line.
_FEW = 5


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


def warnings(study: Study, left: LeftOut) -> tuple[str, ...]:
    """Return what is wrong with the names, a line a data set: a slip would leave out nothing."""
    found = []
    for data, listed in sorted(left.images.items()):
        records = [r for r in _main_runs(study, left) if r.data == data]
        tested = {i for r in records if r.predictions is not None for i in r.predictions.image}
        if not tested:
            continue
        name = study.data_name(data)
        if absent := sorted(listed - tested):
            told = ", ".join(absent[:_FEW]) + (", ..." if len(absent) > _FEW else "")
            found.append(f"{name}: {len(absent)} of {len(listed)} listed names are those of no test"
                         f" image: {told}.")  # fmt: skip
        if len({image.count("/") for image in tested}) > 1:
            # Such records were made when each fold named its images by itself.
            found.append(f"{name}: some runs name images by more parts of their path than others,"
                         " so that listed images may still be there, or others left out; run"
                         " those with fewer parts again.")  # fmt: skip
    return tuple(found)


def _main_runs(study: Study, left: LeftOut) -> Iterator[Record]:
    for record in study.records:
        usual = record.kind == "grader" and record.condition == study.base
        if usual and record.status == "done" and record.data in left.images:
            yield record


def study_without(study: Study, left: LeftOut) -> Study:
    """Return the main runs of the named data sets, judged on the images that are kept."""
    judged = (_judged(record, left.images[record.data]) for record in _main_runs(study, left))
    return Study([record for record in judged if record is not None])


def _judged(record: Record, images: frozenset[str]) -> Record | None:
    given = record.predictions
    if given is None:
        return None
    keep = np.array([image not in images for image in given.image])
    if not keep.any():
        return None
    names = tuple(name for name, kept in zip(given.image, keep, strict=True) if kept)
    some = Predictions(names, given.grade[keep], given.label[keep])
    wrong = np.abs(some.label - some.grade)
    metrics = {"accuracy": float((wrong == 0).mean()), "mae": float(wrong.mean())}
    return replace(record, predictions=some, content={**record.content, "metrics": metrics})
