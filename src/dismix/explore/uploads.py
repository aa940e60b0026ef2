"""Uploads: bounded, decoded by the checked path that all images take, kept in memory only."""

import hashlib

import numpy as np
import torch

from dismix.data.decode import advised, decode_image, resize
from dismix.errors import DisMixError
from dismix.explore.library import Library
from dismix.explore.subject import UPLOAD, Subject

MAX_BYTES = 32 * 2**20
MAX_PIXELS = 32_000_000


def read_upload(data: bytes, library: Library) -> Subject:
    """Decode an upload as the run's own images were.

    The format is told from the content; the file's name is not looked at.

    Args:
        data: The file.
        library: Says how images are read.

    Raises:
        DisMixError: Too large, or not an image; one line for the person who uploaded it.
    """
    if len(data) > MAX_BYTES:
        raise DisMixError(
            f"the file has {len(data) / 2**20:.0f} MiB",
            cure=f"give a picture of at most {MAX_BYTES // 2**20} MiB",
        )
    settings = library.settings
    try:
        pixels = decode_image(
            data, channels=settings.channels, max_pixels=MAX_PIXELS, bits=settings.bits,
            near_size=settings.size,
        )  # fmt: skip
    except DisMixError as error:
        raise _plain(error) from None
    if min(pixels.shape[:2]) < 8:
        raise DisMixError("the picture is only a few pixels large", cure="give a larger one")
    small = resize(pixels, settings.size, settings.fit)
    unit = torch.from_numpy(np.array(small.transpose(2, 0, 1), order="C"))
    key = f"{UPLOAD}/{hashlib.sha256(data).hexdigest()[:32]}"
    return Subject(key, "your picture", library.prepared(unit[None])[0], None)


def _plain(error: DisMixError) -> DisMixError:
    """Say the same to somebody in a browser, who has no command line to repair it with."""
    problem = error.problem
    if "limit" in problem:
        return DisMixError(f"the picture is too large: {problem}", cure="shrink it and try again")
    if "pydicom" in problem or "burned" in problem or "decoder" in problem:
        return DisMixError(problem, cure=advised(error).cure)
    cures = {
        "file is empty": "choose a file with a picture in it",
        "image is cut short": "copy or export it again",
        "image is damaged": "copy or export it again",
    }
    noun = "the" if problem.startswith(("file ", "image ")) else "the file"
    cure = cures.get(problem, "use JPEG, PNG, WebP, TIFF, BMP or DICOM")
    return DisMixError(f"{noun} {problem}", cure=cure)
