"""Stores of an older version of DisMix: which of them hold images that are read otherwise now.

`DECODING` 2 gave floating-point pixels one scale for all images, and refuses other scales and
files of several pages or frames (`dismix.data.decode`). Few files are of that kind, and codes of
images are named by their store: so names stayed, and a store says in its index by which rules it
was decoded. An older one is looked at once, by the headers of its files. If one of them is of that
kind, all is decoded anew; else the store is noted to be right and kept.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from PIL import Image

from dismix.atomic import write_json
from dismix.data.decode import FORMATS, Stream, count_pages, is_dicom, opened
from dismix.data.store_settings import DECODING
from dismix.errors import DisMixError


def up_to_date(index: Path, files: Sequence[Path], decoding: int) -> bool:
    """Tell whether a complete store holds what decoding would give now, and note that it does.

    Args:
        index: Its ``index.json``.
        files: What it was built from.
        decoding: The rules by which it was.
    """
    if decoding >= DECODING:
        return True
    if any(read_otherwise(file) for file in files):
        return False
    # Where it cannot be noted, in a folder that is read-only, it is looked at again next time.
    with suppress(DisMixError, OSError):
        known = json.loads(index.read_text(encoding="utf-8"))
        write_json(index, {**known, "decoding": DECODING})
    return True


def read_otherwise(path: str | Path) -> bool:
    """Tell by a file's header whether older versions may have read other pixels from it.

    In doubt it is so: decoding will tell what is wrong with the file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for mode in ("L", "F"):
        ...         Image.new(mode, (4, 4)).save(f"{folder}/{mode}.tif")
        ...     [read_otherwise(f"{folder}/{mode}.tif") for mode in ("L", "F")]
        [False, True]
    """
    try:
        with opened(path) as (stream, name):
            start = stream.read(132)
            stream.seek(0)
            return _dicom(stream) if is_dicom(start, name) else _picture(stream)
    # Damaged headers make readers raise almost anything.
    except Exception:
        return True


def _picture(stream: Stream) -> bool:
    with Image.open(stream, formats=FORMATS) as image:
        if image.mode == "F" or (image.mode == "I" and image.format != "PNG"):
            # PNG has whole numbers of 16 bits at most, whatever Pillow calls them.
            return True
        return image.format != "MPO" and count_pages(image, stream) > 1


def _dicom(stream: Stream) -> bool:
    # Where it is not installed, nothing can be told, and decoding will ask for it.
    import pydicom

    header = pydicom.dcmread(
        stream, force=True, stop_before_pixels=True, specific_tags=["NumberOfFrames"]
    )
    return int(header.get("NumberOfFrames") or 1) > 1
