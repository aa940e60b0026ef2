"""Image files to 8-bit arrays, by one documented rule for every kind of file.

JPEG, PNG, WebP, TIFF and BMP are read by Pillow, DICOM by :mod:`dismix.data.dicom`.

* The number of pixels is read from the header and checked before anything is decoded.
* The EXIF orientation is applied; colour profiles are not.
* 16-bit grey maps 0..65535 to 0..255, whatever the image holds, so that equal values stay
  equal from image to image. ``bits=12`` maps 0..4095 instead (larger values become white, which
  :mod:`dismix.data.depth` tells).
  16-bit colour, and grey with transparency, are read in their upper 8 bits, so other ``bits``
  are refused for them.
* Floating-point pixels map 0..1 to 0..255, NaN and infinities to 0. Others, and whole numbers
  outside 0..65535, are refused: stretched by its own extremes, each image would get a scale of
  its own, and equal values would differ from image to image.
* Transparent pixels are laid on black; palettes become RGB; CMYK becomes RGB.
* A file with several frames or pages is refused: nobody says which one was graded. Smaller
  copies of the first page, as slide scanners write them, are no pages, nor are a photo's previews.
* Grey from colour is the luminance (ITU-R 601); colour from grey repeats the channel.
"""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from dismix.data.depth import SeeDepth, depth_of
from dismix.errors import DisMixError

Channels = Literal[1, 3]
Fit = Literal["stretch", "pad", "crop"]
Source = str | Path | bytes
Stream = io.BufferedReader | io.BytesIO

MAX_PIXELS = 64_000_000
_PILLOW_PIXELS = 178_956_970
# A closed list: Pillow's other readers include ones that start external programs.
FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP")
_KINDS = "JPEG, PNG, WebP, TIFF, BMP or DICOM"
# Pillow calls results from 3 target sizes "visually indistinguishable" from full decoding.
_REDUCING_GAP = 3
_DICOM_SUFFIXES = (".dcm", ".dicom")
# Resampling oversteps 0..1 by rounding.
_ROUNDING = 1e-3
#: The part of a cure that gets a whole manifest past the file; see :func:`advised`.
SKIP = "or leave such rows out: `dismix data check MANIFEST --write-readable NEW.csv`"


def decode_image(
    source: Source,
    *,
    channels: Channels | None = None,
    max_pixels: int = MAX_PIXELS,
    bits: int = 16,
    near_size: int | None = None,
    see_depth: SeeDepth | None = None,
) -> NDArray[np.uint8]:
    """Decode one image file.

    Args:
        source: Path of the file, or its bytes.
        channels: 1 for grey, 3 for RGB, None for what the file holds.
        max_pixels: Files with more pixels are refused before they are decoded. Pillow's
            own bound of 178,956,970 stays.
        bits: Bits in use of 16-bit grey pixels.
        near_size: The array will be resized to about this side: a JPEG of more than
            three times the size may be decoded at a half, a quarter or an eighth.
        see_depth: Called with the depth of 16-bit grey pixels, unless all are equal.

    Returns:
        Pixels (H, W, channels), uint8.

    Raises:
        DisMixError: The file cannot be used; the message names it and the cure.

    Example:
        >>> data = io.BytesIO()
        >>> Image.new("RGBA", (4, 2), (200, 100, 0, 255)).save(data, "PNG")
        >>> decode_image(data.getvalue())[0, 0], decode_image(data.getvalue(), channels=1).shape
        (array([200, 100,   0], dtype=uint8), (2, 4, 1))
    """
    with opened(source) as (stream, name):
        return decode_stream(
            stream,
            name,
            channels=channels,
            max_pixels=max_pixels,
            bits=bits,
            near_size=near_size,
            see_depth=see_depth,
        )


@contextmanager
def opened(source: Source) -> Iterator[tuple[Stream, str]]:
    """Open a path or bytes; yields the stream and a name for messages.

    What the system says against reading, then or later, becomes a DisMixError.
    """
    if isinstance(source, bytes):
        yield io.BytesIO(source), "<bytes>"
        return
    try:
        with open(source, "rb") as stream:
            yield stream, os.fspath(source)
    except FileNotFoundError:
        raise DisMixError("file not found", file=source, cure=f"correct the path, {SKIP}") from None
    except IsADirectoryError:
        raise DisMixError("is a folder, not an image", file=source, cure="name a file") from None
    except PermissionError:
        raise DisMixError(
            "may not be read by this user", file=source, cure=f"change its rights, {SKIP}"
        ) from None
    except OSError as error:
        raise DisMixError(
            f"cannot be read ({error.strerror})", file=source, cure=f"check the disk, {SKIP}"
        ) from None


def decode_stream(
    stream: Stream,
    name: str,
    *,
    channels: Channels | None = None,
    max_pixels: int = MAX_PIXELS,
    bits: int = 16,
    near_size: int | None = None,
    see_depth: SeeDepth | None = None,
) -> NDArray[np.uint8]:
    """Decode an open file; see :func:`decode_image`. ``name`` is used in messages only."""
    start = stream.read(132)
    stream.seek(0)
    if not start:
        raise DisMixError("file is empty", file=name, cure=f"copy it again, {SKIP}")
    if is_dicom(start, name):
        from dismix.data.dicom import decode_dicom

        pixels = decode_dicom(stream, name, max_pixels=max_pixels)
    else:
        try:
            pixels = _decode_pillow(stream, name, max_pixels, bits, near_size, see_depth)
        except DisMixError:
            raise
        except UnidentifiedImageError:
            raise DisMixError(
                "is not an image that can be read", file=name, cure=f"use {_KINDS}, {SKIP}"
            ) from None
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            raise too_large(name, min(max_pixels, _PILLOW_PIXELS)) from None
        # Damaged files make Pillow's readers raise almost anything (struct.error, SyntaxError).
        except Exception as error:
            state = "cut short" if "truncated" in str(error) else "damaged"
            raise DisMixError(
                f"image is {state}", file=name, cure=f"copy or export it again, {SKIP}"
            ) from error
    return with_channels(pixels, channels)


def is_dicom(start: bytes, name: str) -> bool:
    """Tell DICOM by the first 132 bytes of a file or by its name.

    Example:
        >>> is_dicom(bytes(128) + b"DICM", "export/0001"), is_dicom(b"GIF89a", "a.gif")
        (True, False)
    """
    return start[128:] == b"DICM" or name.lower().endswith(_DICOM_SUFFIXES)


def advised(error: DisMixError, instead: str = "") -> DisMixError:
    """Return the error with other advice than to leave rows of a manifest out.

    Args:
        error: From decoding.
        instead: What the command at hand offers; nothing where the file was left out already.

    Example:
        >>> error = DisMixError("file is empty", file="a.png", cure=f"copy it again, {SKIP}")
        >>> print(advised(error))
        a.png: file is empty; copy it again
    """
    cure = (error.cure or "").replace(SKIP, instead).removesuffix(", ")
    return DisMixError(
        error.problem, file=error.file, row=error.row, column=error.column, cure=cure or None
    )


def too_large(name: str, max_pixels: int, size: tuple[int, int] | None = None) -> DisMixError:
    """Return the error for an image with more than ``max_pixels`` pixels."""
    shape = f"{size[0]} x {size[1]} pixels" if size else "image"
    return DisMixError(
        f"{shape} is over the limit of {max_pixels:,} pixels",
        file=name,
        cure=f"shrink it (from Python, max_pixels may be raised), {SKIP}",
    )


def several(name: str, count: int, noun: str) -> DisMixError:
    """Return the error for a file that holds more than one picture."""
    return DisMixError(
        f"holds {count} {noun}, and nothing says which one was graded",
        file=name,
        cure=f"write that one into a file of its own, {SKIP}",
    )


def _decode_pillow(
    stream: Stream,
    name: str,
    max_pixels: int,
    bits: int,
    near_size: int | None,
    see_depth: SeeDepth | None,
) -> NDArray[np.uint8]:
    with Image.open(stream, formats=FORMATS) as image:
        if image.width * image.height > max_pixels:
            raise too_large(name, max_pixels, image.size)
        # Of JPEG files (MPO) further pictures are previews.
        pages = 1 if image.format == "MPO" else count_pages(image, stream)
        if pages > 1:
            raise several(name, pages, "pages" if image.format == "TIFF" else "frames")
        if near_size is not None:
            image.draft(None, (near_size * _REDUCING_GAP,) * 2)
        if bits != 16 and _deep_colour(image, stream):
            raise DisMixError(
                f"holds 16-bit colour or transparency, of which only the upper 8 bits are read:"
                f" bits={bits} cannot scale it",
                file=name, cure=f"export all images in 8 bits by one scale, {SKIP}",
            )  # fmt: skip
        # White-is-zero TIFFs: Pillow inverts 8-bit ones only. Asked for before the tags go.
        white_is_zero = getattr(image, "tag_v2", {}).get(262) == 0
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
        if image.mode.startswith(("I", "F")):
            stored = np.asarray(image)
            values = _to_8_bits(stored, bits, name)
            if see_depth is not None and image.mode != "F":
                depth = depth_of(stored, bits)
                if depth is not None:
                    see_depth(depth)
            return 255 - values if white_is_zero and image.mode != "F" else values
        return np.asarray(_flattened(image, name))


def _deep_colour(image: Image.Image, stream: Stream) -> bool:
    """Return whether a file has more than one channel of more than 8 bits; Pillow hides it."""
    if image.format == "TIFF":
        found = getattr(image, "tag_v2", {}).get(258, (8,))
        depths = found if isinstance(found, tuple) else (found,)
        return len(depths) >= 3 and max(depths) > 8
    if image.format != "PNG":
        return False
    place = stream.tell()
    stream.seek(24)
    depth, colour = stream.read(2)
    stream.seek(place)
    # Colour type: 2 is RGB, 4 and 6 are grey and RGB with transparency.
    return depth > 8 and colour in (2, 4, 6)


def _flattened(image: Image.Image, name: str) -> Image.Image:
    """Return the image as L or RGB, transparent parts on black."""
    if image.mode in ("L", "RGB") and "transparency" not in image.info:
        return image
    if image.mode in ("LA", "La") or (image.mode == "L" and "transparency" in image.info):
        layers = image.convert("RGBA")
        grey = Image.new("L", image.size)
        grey.paste(layers.getchannel("R"), mask=layers.getchannel("A"))
        return grey
    if image.mode in ("RGBA", "RGBa", "PA") or "transparency" in image.info:
        layers = image.convert("RGBA")
        flat = Image.new("RGB", image.size)
        flat.paste(layers, mask=layers.getchannel("A"))
        return flat
    if image.mode == "1":
        return image.convert("L")
    if image.mode in ("P", "CMYK", "YCbCr", "RGBX", "HSV"):
        return image.convert("RGB")
    raise DisMixError(
        f"colour mode {image.mode} is not supported", file=name, cure=f"export it as RGB, {SKIP}"
    )


def count_pages(image: Image.Image, stream: Stream) -> int:
    """Return how many pictures a file holds, smaller copies of one and masks not counted."""
    if image.format != "TIFF":
        return int(getattr(image, "n_frames", 1))
    pages, place = 0, stream.tell()
    try:
        # Another reader: looking at damaged pages spoils the one that looks.
        stream.seek(0)
        tiff = Image.open(stream, formats=["TIFF"])
        for page in range(int(getattr(tiff, "n_frames", 1))):
            tiff.seek(page)
            tags = getattr(tiff, "tag_v2", {})
            # NewSubfileType: bit 0 a smaller copy, bit 2 a mask; or the older SubfileType.
            pages += not (int(tags.get(254, 0)) & 0b101 or tags.get(255) == 2)
    except Exception:
        # What follows the first picture is damaged; whether that one is shows when it is read.
        pages = max(pages, 1)
    stream.seek(place)
    return pages


def _to_8_bits(values: NDArray[np.generic], bits: int, name: str) -> NDArray[np.uint8]:
    """Map grey values of more than 8 bits (H, W) to uint8 by the rule of this module."""
    levels = values.astype(np.float64)
    finite = np.isfinite(levels)
    whole = values.dtype.kind in "iu"
    low, high = (float(f(levels[finite], initial=0)) for f in (np.min, np.max))
    slack, top = (0.0, 65535.0) if whole else (_ROUNDING, 1.0)
    if low < -slack or high > top + slack:
        raise DisMixError(
            f"{'' if whole else 'floating-point '}pixels run from {low:g} to {high:g}, not within"
            f" 0 to {top:g}: there is no scale that all images share",
            file=name,
            cure=f"export all images by one scale, as whole numbers up to 255 or 65535, {SKIP}",
        )
    levels[~finite] = 0
    scaled = np.rint(levels * 255 / (2**bits - 1 if whole else 1))
    return np.clip(scaled, 0, 255).astype(np.uint8)


def with_channels(pixels: NDArray[np.uint8], channels: Channels | None) -> NDArray[np.uint8]:
    """Return pixels (H, W) or (H, W, 1 or 3) with the channels asked for, None for as is."""
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if channels == 1 and pixels.shape[2] == 3:
        pixels = np.asarray(Image.fromarray(pixels).convert("L"))[:, :, None]
    elif channels == 3 and pixels.shape[2] == 1:
        pixels = np.repeat(pixels, 3, axis=2)
    return np.ascontiguousarray(pixels)


def resize(pixels: NDArray[np.uint8], size: int, fit: Fit = "stretch") -> NDArray[np.uint8]:
    """Resize to a square with an antialiased bicubic filter.

    Args:
        pixels: (H, W, channels), uint8.
        size: Side of the result.
        fit: "stretch" ignores the proportions, as the paper does; "pad" keeps them with
            black bars; "crop" keeps them and takes the middle square.

    Returns:
        (size, size, channels), uint8.

    Example:
        >>> resize(np.full((10, 20, 1), 7, np.uint8), 4, "pad")[:, :, 0]
        array([[0, 0, 0, 0],
               [7, 7, 7, 7],
               [7, 7, 7, 7],
               [0, 0, 0, 0]], dtype=uint8)
    """
    height, width, channels = pixels.shape
    if (height, width) == (size, size):
        return pixels
    image = Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels)
    box, target = (0.0, 0.0, float(width), float(height)), (size, size)
    if fit == "crop":
        side = min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        box = (left, top, left + side, top + side)
    elif fit == "pad":
        scale = size / max(width, height)
        target = (max(1, round(width * scale)), max(1, round(height * scale)))
    small = image.resize(target, Image.Resampling.BICUBIC, box, reducing_gap=_REDUCING_GAP)
    if target != (size, size):
        canvas = Image.new(small.mode, (size, size))
        canvas.paste(small, ((size - target[0]) // 2, (size - target[1]) // 2))
        small = canvas
    return np.asarray(small).reshape(size, size, channels)
