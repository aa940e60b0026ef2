"""Sources: published folders, class-per-folder trees and tables, each turned into a manifest."""

import os
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dismix.data.grey import with_grey_found
from dismix.data.manifest import NO_FILE, Manifest, read_manifest
from dismix.data.near_files import near_files
from dismix.data.patient_columns import group_option, patient_column
from dismix.data.sources import chaoyang, crowdgleason, folders, idrid, koa, table
from dismix.data.sources.base import SOURCES, Source
from dismix.data.sources.walking import is_image
from dismix.data.ungraded import left_out_note
from dismix.errors import DisMixError

__all__ = [
    "SOURCES",
    "Source",
    "chaoyang",
    "crowdgleason",
    "folders",
    "guess_source",
    "idrid",
    "koa",
    "read_source",
    "table",
]


def guess_source(path: str | Path) -> Source | None:
    """Return the only source that recognises a path, or None.

    Example:
        >>> guess_source("no such folder") is None
        True
    """
    path = Path(path)
    fitting = [SOURCES[name] for name in SOURCES if SOURCES[name].recognises(path)]
    return fitting[0] if len(fitting) == 1 else None


def open_manifest(path: str | Path, *, allow_missing: bool = False) -> Manifest:
    """Read a manifest, a folder that holds one, or a published folder.

    Args:
        path: The file or folder.
        allow_missing: Keep rows of a published folder whose image file does not exist.

    Raises:
        DisMixError: Bad content, or a folder that is neither.
    """
    path = Path(path)
    if path.is_dir() and not (path / "manifest.csv").is_file():
        if guess_source(path) is None:
            raise DisMixError(
                f"holds no manifest.csv and no known layout ({', '.join(SOURCES)})",
                file=path,
                cure="name a manifest, or make one with `dismix data import`",
            )
        return read_source(path, allow_missing=allow_missing)
    return read_manifest(path)


def read_source(
    path: str | Path,
    source: str | None = None,
    *,
    allow_missing: bool = False,
    on_missing: Callable[[str], None] | None = None,
    **options: Any,
) -> Manifest:
    """Turn a published folder, a tree of folders or a table into a manifest.

    Args:
        path: Folder or file.
        source: Name of the source; None guesses it from the files.
        allow_missing: Keep rows whose image file does not exist.
        on_missing: Called with a line for each such row, which is left out; the notes say how
            many. None makes them an error, which a source without any image is in any case.
        **options: Options of the source; see ``SOURCES[name].options``. Where it takes ``grey``
            and none is given, some images are looked at.

    Raises:
        DisMixError: Unknown layout or option, bad content, or missing images.
    """
    path = Path(path)
    if not path.exists():
        raise DisMixError("no such file or folder", file=path, cure="correct the path")
    chosen = guess_source(path) if source is None else SOURCES[source]
    if chosen is None and path.suffix.lower() in (".xlsx", ".xls", ".ods"):
        raise DisMixError("is a spreadsheet", file=path, cure="save it as CSV and import that")
    if chosen is None:
        raise DisMixError(
            f"looks like none of the known layouts ({', '.join(SOURCES)})",
            file=path,
            cure="name one with --source; `dismix data sources` says what each expects",
        )
    chosen.check_options(options)
    try:
        manifest = chosen.read(path, **options)
    except DisMixError as error:
        if error.file != NO_FILE:
            raise
        # Files of a folder have no rows; the problem names them.
        raise DisMixError(error.problem, file=path, column=error.column, cure=error.cure) from error
    if not allow_missing:
        manifest = _present(manifest, str(options.get("image", "image")), on_missing)
    if "grey" in chosen.options and "grey" not in options:
        manifest = with_grey_found(manifest)
    if manifest.meta.source == "table" and (patients := patient_column(manifest.table)):
        warnings.warn(
            f"column '{patients}' looks like a patient: add {group_option(patients)}, or splits"
            " part the images of one",
            stacklevel=2,
        )
    return manifest


def _all_missing_cure(first: str) -> str:
    """Return the cure for a table of which no image is there, by the first image it names.

    Example:
        >>> _all_missing_cure("/home/ann/a.png")
        "write paths from the table's folder: the table has whole paths, perhaps of another machine"
    """
    # A folder given beside them would not help: it goes before names, not before whole paths.
    if Path(first).is_absolute() or re.search(r"(^|/)[A-Za-z]:/", first):
        return (
            "write paths from the table's folder: the table has whole paths, perhaps of another"
            " machine"
        )
    return (
        "name their folder, as seen from the table's, with --set images=FOLDER, and the ending"
        " that names may lack with --set suffix=png"
    )


def _present(manifest: Manifest, column: str, on_missing: Callable[[str], None] | None) -> Manifest:
    """Return the manifest without rows whose image is missing, or raise; see `read_source`."""
    # Unlike a path's own method, this takes a name that is too long for one that is absent.
    there = np.array([os.path.isfile(path) for path in manifest.image_paths], dtype=bool)
    missing = np.flatnonzero(~there)
    if not len(missing):
        return manifest
    listed = manifest.path is not None
    near = near_files([manifest.image_paths[row] for row in missing])
    if on_missing is not None and there.any():
        names = manifest.table["image"].iloc[missing].tolist()
        lines = manifest.lines[missing].tolist() if listed else None
        for number, name in enumerate(names):
            hint = f", but '{near[number]}' is there" if near[number] else ""
            on_missing((f"row {lines[number]}: " if lines else "") + f"{name}: no such image{hint}")
        note = left_out_note(names, lines, "whose file is missing")
        notes = "; ".join(part for part in (manifest.meta.notes, note) if part)
        return replace(manifest.rows(there), meta=replace(manifest.meta, notes=notes))
    first = manifest.image_paths[missing[0]]
    raise DisMixError(
        f"no such image {first}"
        if len(missing) == 1
        else f"{len(missing)} of {len(manifest)} images are missing, the first {first}",
        file=manifest.path or manifest.root,
        row=int(manifest.lines[missing[0]]) if listed else None,
        column=column if listed else None,
        cure=_missing_cure(manifest, near),
    )


def _missing_cure(manifest: Manifest, near: Sequence[str | None]) -> str:
    """Return the cure for missing images by the files that are called nearly so."""
    # Names without any ending lack it all: an option adds it.
    if near[0] is not None and is_image(str(manifest.table["image"].iloc[0])):
        alike = sum(name is not None for name in near)
        more = f" ({alike} of them differ in letter case or ending only)" if len(near) > 1 else ""
        return f"did you mean '{near[0]}'?{more} Write names as they are on disk"
    if len(near) == len(manifest) > 1 and manifest.meta.source == "table":
        return _all_missing_cure(str(manifest.table["image"].iloc[0]))
    return "complete the folder, or leave such rows out: `dismix data import ... --skip-missing`"
