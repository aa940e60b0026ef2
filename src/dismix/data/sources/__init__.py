"""Sources: published folders, class-per-folder trees and tables, each turned into a manifest."""

import warnings
from pathlib import Path
from typing import Any

from dismix.data.manifest import Manifest, read_manifest
from dismix.data.patient_columns import group_option, patient_column
from dismix.data.sources import chaoyang, crowdgleason, folders, idrid, koa, table
from dismix.data.sources.base import SOURCES, Source
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
    """
    path = Path(path)
    if path.is_dir() and not (path / "manifest.csv").is_file():
        return read_source(path, allow_missing=allow_missing)
    return read_manifest(path)


def read_source(
    path: str | Path, source: str | None = None, *, allow_missing: bool = False, **options: Any
) -> Manifest:
    """Turn a published folder, a tree of folders or a table into a manifest.

    Args:
        path: Folder or file.
        source: Name of the source; None guesses it from the files.
        allow_missing: Keep rows whose image file does not exist.
        **options: Options of the source; see ``SOURCES[name].options``.

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
    manifest = chosen.read(path, **options)
    if not allow_missing:
        _refuse_missing(manifest, str(options.get("image", "image")))
    if manifest.meta.source == "table" and (patients := patient_column(manifest.table)):
        warnings.warn(
            f"column '{patients}' looks like a patient: add {group_option(patients)}, or splits"
            " part the images of one",
            stacklevel=2,
        )
    return manifest


_ALL_MISSING = (
    "name their folder, as seen from the table's, with --set images=FOLDER, and the ending that "
    "names may lack with --set suffix=png"
)


def _refuse_missing(manifest: Manifest, column: str) -> None:
    missing = [row for row, path in enumerate(manifest.image_paths) if not path.is_file()]
    if missing:
        others = f" ({len(missing)} of {len(manifest)} are missing)" if len(missing) > 1 else ""
        raise DisMixError(
            f"no such image {manifest.image_paths[missing[0]]}{others}",
            file=manifest.path or manifest.root,
            row=int(manifest.lines[missing[0]]) if manifest.path is not None else None,
            column=column if manifest.path is not None else None,
            cure=_ALL_MISSING
            if len(missing) == len(manifest) > 1 and manifest.meta.source == "table"
            else "complete the folder, or list all that are missing with `dismix data check`",
        )
