"""`dismix data check`: find everything wrong with a data set, not only the first thing.

Reading a manifest stops at the first problem; the check reads it leniently, lists all problems
of the table (:mod:`dismix.data.table_checks`), then opens every image once
(:mod:`dismix.data.image_checks`).
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dismix.data.delimited import read_table
from dismix.data.findings import Finding, Report, by_severity
from dismix.data.grey import with_grey_found
from dismix.data.image_checks import image_findings
from dismix.data.long_form import is_long, pivot_long
from dismix.data.manifest import SPLITS, Manifest, ManifestMeta, read_meta
from dismix.data.sources import SOURCES, guess_source
from dismix.data.table_checks import Sheet, problem_findings, table_findings
from dismix.data.validate import grade_problems, normalise
from dismix.errors import DisMixError
from dismix.progress import Progress


def check_path(
    path: str | Path,
    *,
    images: bool = True,
    near: bool = True,
    mirrored: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Check a manifest file, a folder that holds ``manifest.csv``, or a published folder.

    Args:
        path: What to check. A published folder is read by the source that recognises it.
        images: Open the image files.
        near: Search for near-identical pictures, not only for identical files.
        mirrored: Search for pictures mirrored left to right too.
        progress: Called with (stage, done, total).

    Raises:
        DisMixError: There is nothing here to check.
    """
    path = Path(path)
    if path.is_dir() and not (path / "manifest.csv").is_file():
        source = guess_source(path)
        if source is None:
            raise DisMixError(
                f"holds no manifest.csv and no known layout ({', '.join(SOURCES)})",
                file=path,
                cure="name a manifest, or make one with `dismix data import`",
            )
        manifest = source.read(path)
        if images and "grey" in source.options:
            # As `import` would; what nobody opens says nothing of its colour.
            manifest = with_grey_found(manifest)
        return check_manifest(
            manifest, images=images, near=near, mirrored=mirrored, progress=progress
        )
    file = path / "manifest.csv" if path.is_dir() else path
    if not file.exists():
        raise DisMixError("no such file or folder", file=file, cure="correct the path")
    sheet, findings = read_leniently(file)
    if sheet is None:
        return Report(str(file), findings=by_severity(findings))
    report = check_sheet(sheet, images=images, near=near, mirrored=mirrored, progress=progress)
    return replace(report, findings=by_severity([*findings, *report.findings]))


def check_manifest(
    manifest: Manifest,
    *,
    images: bool = True,
    near: bool = True,
    mirrored: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Check a manifest that was read already; arguments as for :func:`check_path`."""
    lines = manifest.lines if len(manifest.lines) else np.arange(len(manifest)) + 2
    title = str(manifest.path or manifest.root)
    sheet = Sheet(normalise(manifest.table), manifest.meta, manifest.root, title, lines)
    return check_sheet(sheet, images=images, near=near, mirrored=mirrored, progress=progress)


def check_sheet(
    sheet: Sheet,
    *,
    images: bool,
    near: bool,
    mirrored: bool,
    progress: Progress | None,
) -> Report:
    """Run all checks on a table that may have problems."""
    findings = list(table_findings(sheet))
    if images and "image" in sheet.table:
        findings += image_findings(sheet, near=near, mirrored=mirrored, progress=progress)
    return Report(
        sheet.title, sheet.ranks, sheet.counts(), by_severity(findings), images_checked=images,
        soft=_counted_soft(sheet),
    )  # fmt: skip


def _counted_soft(sheet: Sheet) -> int:
    known = np.isin(sheet.column("split"), SPLITS)
    return int((sheet.soft & known).sum())


def read_leniently(file: Path) -> tuple[Sheet | None, list[Finding]]:
    """Read a manifest without raising.

    Returns:
        The table, or None where it cannot be read at all, and what was wrong with the files.
    """
    findings: list[Finding] = []
    meta: ManifestMeta | None = None
    try:
        table, lines = read_table(file)
    except DisMixError as error:
        place = f"row {error.row}: " if error.row is not None else ""
        place += f"column '{error.column}': " if error.column is not None else ""
        message = place + error.problem
        return None, [Finding("error", "unreadable-table", message, cure=error.cure or "")]
    try:
        meta = read_meta(file)
    except DisMixError as error:
        findings.append(Finding("error", "bad-meta", str(error)))
    if is_long(table):
        table, found = _valid_votes(normalise(table), meta, lines)
        findings += found
        try:
            table, lines = pivot_long(table, file=file, lines=lines)
        except DisMixError as error:
            return None, [*findings, Finding("error", "long-form", str(error))]
    return Sheet(normalise(table), meta, file.parent.absolute(), str(file), lines), findings


def _valid_votes(
    table: pd.DataFrame, meta: ManifestMeta | None, lines: NDArray[np.int64]
) -> tuple[pd.DataFrame, list[Finding]]:
    """Return the long form without bad grades and second votes, and what was wrong with them."""
    problems = list(grade_problems(table["grade"], None if meta is None else len(meta.ranks)))
    found = list(problem_findings(problems, lines, table["image"].fillna("").astype(str).tolist()))
    bad = table.index.isin([p.row for p in problems])
    table = table.assign(grade=pd.to_numeric(table["grade"].mask(bad)))
    found += _long_conflicts(table, lines)
    first = table.groupby(["image", "annotator"], sort=False)["grade"].transform("first")
    return table.assign(grade=first), found


def _long_conflicts(table: pd.DataFrame, lines: NDArray[np.int64]) -> Iterator[Finding]:
    """Yield every annotator who graded an image twice, with different grades."""
    votes = table.dropna(subset=["image", "annotator", "grade"])
    for (image, annotator), group in votes.groupby(["image", "annotator"], sort=False):
        if group["grade"].nunique() > 1:
            rows = tuple(int(lines[i]) for i in group.index)
            given = " and ".join(f"{g:.0f}" for g in dict.fromkeys(group["grade"]))
            where = " and ".join(map(str, rows))
            yield Finding(
                "error",
                "voted-twice",
                f"rows {where}: annotator '{annotator}' gave image '{image}' grades {given}",
                rows,
                (str(image),),
                "keep one of them",
            )
