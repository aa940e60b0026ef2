"""One decoding pass over image files: can each be read, how large is it, a small grey copy."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

from dismix.data.decode import decode_image, with_channels
from dismix.data.depth import Depth
from dismix.data.dicom import MissingExtraError
from dismix.errors import DisMixError
from dismix.progress import Progress

SIDE = 64
#: Difference of channels that conversion to YUV and back may cause.
GREY_TOLERANCE = 4
Thumbnails = NDArray[np.uint8]


@dataclass(frozen=True)
class Look:
    """What one decoding pass learns about a file.

    Args:
        size: Width and height in pixels, or None when unreadable.
        channels: 1 for a grey picture, 3 for colour, 0 when unreadable. Grey stored in three
            equal channels, as WebP must, is grey.
        thumbnail: ``(64, 64)`` grey picture, or None when unreadable.
        span: Darkest and brightest grey level of 0 to 255, or None when unreadable.
        error: Why it cannot be read, or None.
        cure: What to do about that.
        transparent: Whether some pixels are transparent, at least in part: these become black.
        lacks_package: The file may be well, but what reads it is not installed.
        depth: How much of its 16 bits a grey file uses; None of other files and of even pictures.
    """

    size: tuple[int, int] | None = None
    channels: int = 0
    thumbnail: Thumbnails | None = None
    error: str | None = None
    cure: str = ""
    span: tuple[int, int] | None = None
    lacks_package: bool = False
    transparent: bool = False
    depth: Depth | None = None


def look_at(path: Path, *, bits: int = 16) -> Look:
    """Decode a file once, as training would, and as small as its format allows.

    Args:
        path: Image file.
        bits: Bits in use of 16-bit grey files, as the manifest says.

    Example:
        >>> look_at(Path("absent.png")).error
        'file not found'
    """
    depths: list[Depth] = []
    try:
        pixels = decode_image(path, bits=bits, near_size=SIDE, see_depth=depths.append)
    except DisMixError as error:
        lacks = isinstance(error, MissingExtraError)
        return Look(error=error.problem, cure=error.cure or "", lacks_package=lacks)
    levels = with_channels(pixels, 1)[:, :, 0]
    grey = Image.fromarray(_stretched(levels))
    # A copy: a view would keep Pillow's buffers alive, ten times the thumbnail.
    small = np.array(grey.resize((SIDE, SIDE), Image.Resampling.BOX))
    span = int(levels.min()), int(levels.max())
    size, transparent = _from_file(path, pixels)
    channels = 1 if _is_grey(pixels) else 3
    depth = depths[0] if depths else None
    return Look(size, channels, small, span=span, transparent=transparent, depth=depth)


def look_at_all(
    paths: Sequence[Path],
    *,
    bits: int = 16,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Look]:
    """Decode every file in threads (Pillow works without the interpreter lock), in order."""
    looks: list[Look] = []
    with ThreadPoolExecutor(workers or min(8, os.cpu_count() or 1)) as pool:
        for look in pool.map(partial(look_at, bits=bits), paths):
            looks.append(look)
            if progress is not None:
                progress("reading images", len(looks), len(paths))
    return looks


def _stretched(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return (H, W) over the full range where it used less than half of it.

    Averaging into a thumbnail rounds to whole grey levels; a 12-bit picture in a 16-bit file
    has only 16 of them left after decoding.
    """
    low, high = int(grey.min()), int(grey.max())
    if high == low or high - low >= 128:
        return grey
    stretched: NDArray[np.uint8] = ((grey.astype(np.float32) - low) * (255 / (high - low))).astype(
        np.uint8
    )
    return stretched


def _is_grey(pixels: NDArray[np.uint8]) -> bool:
    """Return whether the channels of (H, W, 1 or 3) agree, but for rounding in a lossy file."""
    if pixels.shape[2] == 1:
        return True
    sample = pixels[::2, ::2].astype(np.int16)
    return int(np.ptp(sample, axis=2).max()) <= GREY_TOLERANCE


def _from_file(path: Path, pixels: NDArray[np.uint8]) -> tuple[tuple[int, int], bool]:
    """Return width and height, turned upright, and whether any pixel is transparent.

    From the file itself: pixels of a JPEG decoded smaller, or laid on black, do not tell.
    """
    try:
        with Image.open(path) as image:
            turned = image.getexif().get(ExifTags.Base.Orientation, 1) >= 5
            return image.size[::-1] if turned else image.size, _is_transparent(image)
    except OSError:
        return (pixels.shape[1], pixels.shape[0]), False


def _is_transparent(image: Image.Image) -> bool:
    """Return whether decoding lays a part of an image on black.

    Example:
        >>> clear, solid = (Image.new("RGBA", (2, 2), (9, 9, 9, alpha)) for alpha in (0, 255))
        >>> _is_transparent(clear), _is_transparent(solid)
        (True, False)
    """
    layered = image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info
    # Of deep grey files decoding takes no notice of transparency.
    if not layered or image.mode.startswith(("I", "F")):
        return False
    # Only such files are decoded a second time: many have an alpha channel and use none of it.
    return bool((np.asarray(image.convert("RGBA").getchannel("A")) < 255).any())
