"""A manifest without the rows whose image cannot be read, by what a check found."""

from pathlib import Path

from dismix.data.findings import Report
from dismix.data.manifest import Manifest, write_manifest
from dismix.data.overwriting import refuse_own_source
from dismix.data.sources import open_manifest
from dismix.errors import DisMixError

#: Findings that cost a row its place.
UNREADABLE = ("unreadable-image", "missing-image")
#: Rows left out that are named before the rest is only counted.
NAMED = 5


def write_readable(path: str | Path, report: Report, output: str | Path) -> Manifest:
    """Write the rows of a checked manifest whose images can be read.

    Args:
        path: What was checked: a manifest, or a folder.
        report: Of a check that opened the images.
        output: Another file.

    Returns:
        The rows that were written.

    Raises:
        DisMixError: The table itself has problems, the output is the manifest, no image can be
            read, or a package is needed to tell.
    """
    output = Path(output)
    manifest = open_manifest(path, allow_missing=True)
    refuse_own_source(output, manifest.path, "the manifest that was checked")
    lacking = report.of("missing-package")
    if lacking:
        raise DisMixError(
            f"not written: {len(lacking)} images need a package that is not installed",
            file=output,
            cure=lacking[0].cure,
        )
    bad = {name for finding in report.of(*UNREADABLE) for name in finding.files}
    kept = manifest.rows(~manifest.table["image"].isin(bad).to_numpy())
    if len(kept) == 0:
        raise DisMixError("no image can be read", file=path, cure="check the folder of the images")
    write_manifest(kept, output)
    return kept


def left_out_lines(report: Report) -> list[str]:
    """Return a line for each row left out and why, the first few of them, then how many more.

    Example:
        >>> from dismix.data.findings import Finding
        >>> cut = Finding("error", "unreadable-image", "row 4: b.png: image is cut short")
        >>> left_out_lines(Report("m.csv", findings=(cut,) * 7))[-2:]
        ['left out: row 4: b.png: image is cut short', 'left out: 2 more rows']
    """
    found = report.of(*UNREADABLE)
    lines = [f"left out: {finding.message}" for finding in found[:NAMED]]
    more = len(found) - NAMED
    if more > 0:
        lines.append(f"left out: {more} more row{'' if more == 1 else 's'}")
    return lines
