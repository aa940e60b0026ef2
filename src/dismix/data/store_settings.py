"""How a file becomes a row of an image store, and how a store is named."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

import numpy as np
from numpy.typing import NDArray

from dismix.data.decode import MAX_PIXELS, Channels, Fit, decode_stream, opened, resize
from dismix.data.depth import SeeDepth
from dismix.errors import DisMixError

if TYPE_CHECKING:
    from dismix.data.manifest import ManifestMeta

# Raise it whenever the same file and settings would give other bytes. Stores and all codes of
# images are named by it; where only few kinds of files are read otherwise, raise DECODING.
FORMAT = 1
#: By which rules a store was decoded, see `dismix.data.store_outdated`.
DECODING = 2


@dataclass(frozen=True)
class StoreSettings:
    """How files become rows of a store.

    Attributes:
        size: Side of the square images.
        channels: 1 keeps or makes grey, 3 RGB.
        fit: How other proportions become square, see :func:`dismix.data.decode.resize`.
        max_pixels: Files with more pixels are refused.
        bits: Bits in use of 16-bit grey files.
    """

    size: int = 256
    channels: Channels = 3
    fit: Fit = "stretch"
    max_pixels: int = MAX_PIXELS
    bits: int = 16

    def __post_init__(self) -> None:
        for name, valid, rule in (
            ("size", self.size >= 1, "a positive whole number"),
            ("channels", self.channels in get_args(Channels), "1 (grey) or 3 (RGB)"),
            ("fit", self.fit in get_args(Fit), " or ".join(get_args(Fit))),
            ("max_pixels", self.max_pixels >= 1, "a positive whole number"),
            ("bits", 1 <= self.bits <= 16, "1 to 16"),
        ):
            if not valid:
                raise DisMixError(f"{name} is {getattr(self, name)!r}", cure=f"give {rule}")


def settings_for(meta: "ManifestMeta", size: int) -> StoreSettings:
    """Return the settings that a manifest asks for, so that all who read it share a store.

    Args:
        meta: The manifest's.
        size: Side of the square images.
    """
    channels: Channels = 1 if meta.grey else 3
    return StoreSettings(size, channels, cast(Fit, meta.fit), bits=meta.bits)


class ChangedFileError(DisMixError):
    """A file's content is not the one that named the store."""


def load_image(
    path: str | Path,
    settings: StoreSettings,
    digest: str | None = None,
    see_depth: SeeDepth | None = None,
) -> NDArray[np.uint8]:
    """Decode and resize one file as a store does.

    Args:
        path: Image file.
        settings: Size, channels and the like.
        digest: SHA-256 that the content must have; "" of a file that could not be read.
        see_depth: See :func:`dismix.data.decode.decode_image`.

    Returns:
        Pixels (channels, size, size), uint8.
    """
    with opened(path) as (stream, name):
        if digest is not None and hashlib.file_digest(stream, "sha256").hexdigest() != digest:
            raise ChangedFileError(
                "changed while the image store was built", file=name, cure="run again"
            )
        stream.seek(0)
        pixels = decode_stream(
            stream,
            name,
            channels=settings.channels,
            max_pixels=settings.max_pixels,
            bits=settings.bits,
            near_size=settings.size,
            see_depth=see_depth,
        )
    return np.ascontiguousarray(resize(pixels, settings.size, settings.fit).transpose(2, 0, 1))


def store_key(digests: Sequence[str], settings: StoreSettings) -> str:
    """Return the name of the store of these contents, in this order, with these settings.

    Example:
        >>> store_key(["ab"], StoreSettings()) == store_key(["ab"], StoreSettings(size=128))
        False
    """
    text = json.dumps([FORMAT, asdict(settings), list(digests)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
