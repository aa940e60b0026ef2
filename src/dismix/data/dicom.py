"""DICOM pixels to 8 bits; nothing but pixels ever leaves this module.

Needs pydicom (``pip install 'dismix[dicom]'``), which is imported on first use.

The steps follow the standard's grey-scale pipeline (PS3.4 N.2): rescale slope and
intercept (or modality table), then the first window (or the first VOI table), then
MONOCHROME1 is inverted. Without window and table the whole range of the stored bits maps
to 0..255, which does not depend on the image. Files of several frames
are refused.
RGB, YBR and palette images become RGB.

Only the attributes listed in ``_TAGS`` are parsed, none of which identifies a person, and
files that declare burned-in annotations are refused, because their pixels may show a name.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dismix.data.decode import SKIP, Stream, several, too_large
from dismix.errors import DisMixError

_TAGS = [
    "SamplesPerPixel",
    "PhotometricInterpretation",
    "PlanarConfiguration",
    "NumberOfFrames",
    "Rows",
    "Columns",
    "BitsAllocated",
    "BitsStored",
    "HighBit",
    "PixelRepresentation",
    "BurnedInAnnotation",
    "RescaleSlope",
    "RescaleIntercept",
    "ModalityLUTSequence",
    "WindowCenter",
    "WindowWidth",
    "VOILUTFunction",
    "VOILUTSequence",
    "RedPaletteColorLookupTableDescriptor",
    "GreenPaletteColorLookupTableDescriptor",
    "BluePaletteColorLookupTableDescriptor",
    "RedPaletteColorLookupTableData",
    "GreenPaletteColorLookupTableData",
    "BluePaletteColorLookupTableData",
    "SharedFunctionalGroupsSequence",
    "PerFrameFunctionalGroupsSequence",
]
_DAMAGED = f"export it again, {SKIP}"


class MissingExtraError(DisMixError):
    """An optional package is not installed; skipping files would not help."""


def decode_dicom(stream: Stream, name: str, *, max_pixels: int) -> NDArray[np.uint8]:
    """Decode an open DICOM file of one frame.

    Args:
        stream: The file, at its start.
        name: Its path, used in messages only.
        max_pixels: Larger images are refused before they are decoded.

    Returns:
        Pixels (H, W) or (H, W, 3), uint8.
    """
    try:
        import pydicom
        from pydicom.pixels import pixel_array
    except ImportError:
        raise MissingExtraError(
            "reading DICOM needs pydicom", file=name, cure="pip install 'dismix[dicom]'"
        ) from None
    try:
        header = pydicom.dcmread(stream, force=True, stop_before_pixels=True, specific_tags=_TAGS)
        _check(header, name, max_pixels)
        _promote_first_frame(header)
        stream.seek(0)
        pixels = pixel_array(stream, index=0)
        return _to_8_bits(pixels, header)
    except DisMixError:
        raise
    # pydicom's own texts may quote attribute values, so none of them is passed on.
    except Exception as error:
        syntax = _compression(stream)
        if isinstance(error, RuntimeError) and syntax:
            raise DisMixError(
                f"no installed decoder for {syntax}",
                file=name,
                cure="pip install pylibjpeg[all], or store it uncompressed",
            ) from None
        raise DisMixError("DICOM file is damaged", file=name, cure=_DAMAGED) from None


def _check(header: Any, name: str, max_pixels: int) -> None:
    rows, columns = int(header.get("Rows") or 0), int(header.get("Columns") or 0)
    if rows < 1 or columns < 1:
        raise DisMixError("is not a DICOM file with an image", file=name, cure=_DAMAGED)
    if rows * columns > max_pixels:
        raise too_large(name, max_pixels, (columns, rows))
    frames = int(header.get("NumberOfFrames") or 1)
    if frames > 1:
        raise several(name, frames, "frames")
    if str(header.get("BurnedInAnnotation", "NO")).upper() == "YES":
        raise DisMixError(
            "declares text burned into the image, which may name a person",
            file=name,
            cure=f"black the text out and set BurnedInAnnotation to NO, {SKIP}",
        )


def _compression(stream: Stream) -> str:
    """Return the name of the compressed transfer syntax, or nothing."""
    import pydicom

    try:
        stream.seek(0)
        syntax = pydicom.dcmread(stream, specific_tags=["Rows"]).file_meta.TransferSyntaxUID
        return str(syntax.name) if syntax.is_compressed else ""
    except Exception:
        return ""


def _promote_first_frame(header: Any) -> None:
    """Lift the rescale and the window of enhanced files to the top level."""
    for groups in ("PerFrameFunctionalGroupsSequence", "SharedFunctionalGroupsSequence"):
        for group in list(header.get(groups) or [])[:1]:
            for sequence in ("PixelValueTransformationSequence", "FrameVOILUTSequence"):
                for item in list(group.get(sequence) or [])[:1]:
                    for tag in _TAGS:
                        if tag in item and tag not in header:
                            setattr(header, tag, getattr(item, tag))


def _to_8_bits(pixels: NDArray[Any], header: Any) -> NDArray[np.uint8]:
    from pydicom.pixels import apply_color_lut, apply_modality_lut

    kind = str(header.PhotometricInterpretation).upper()
    if kind == "PALETTE COLOR":
        pixels = apply_color_lut(pixels, header)
        return _scaled(pixels.astype(np.float64), 0.0, float(np.iinfo(pixels.dtype).max))
    if not kind.startswith("MONOCHROME"):
        return _scaled(pixels.astype(np.float64), 0.0, 2.0 ** int(header.BitsStored) - 1)
    values = apply_modality_lut(pixels, header)
    grey = _windowed(values, header)
    return 255 - grey if kind == "MONOCHROME1" else grey


def _windowed(values: NDArray[Any], header: Any) -> NDArray[np.uint8]:
    """Apply the first window, else the first VOI table, else the full stored range."""
    from pydicom.pixels import apply_voi

    centre, width = _first(header.get("WindowCenter")), _first(header.get("WindowWidth"))
    function = str(header.get("VOILUTFunction") or "LINEAR").upper()
    if centre is not None and width is not None and width > 0:
        levels = values.astype(np.float64)
        if function == "SIGMOID":
            # 1 / (1 + exp(-4 x)) written so that it cannot overflow.
            return _scaled(np.tanh(2 * (levels - centre) / width), -1.0, 1.0)
        if function != "LINEAR_EXACT":
            # PS3.3 C.11.2.1.2.1: the default function counts pixel values, not the gaps.
            centre, width = centre - 0.5, max(width - 1, 1e-9)
        return _scaled(levels, centre - width / 2, centre + width / 2)
    if header.get("VOILUTSequence"):
        depth = int(header.VOILUTSequence[0].LUTDescriptor[2])
        table = apply_voi(np.rint(values).astype(np.int64), header)
        return _scaled(table.astype(np.float64), 0.0, 2.0**depth - 1)
    return _scaled(values.astype(np.float64), *_stored_range(values, header))


def _stored_range(values: NDArray[Any], header: Any) -> tuple[float, float]:
    """Return the least and the greatest value that the stored bits can express."""
    bits = header.get("BitsStored")
    if bits is None or header.get("ModalityLUTSequence"):
        # Floating-point pixels and tables state no range: the image's own is used.
        finite = values[np.isfinite(values)]
        return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    low, high = 0.0, 2.0 ** int(bits) - 1
    if int(header.get("PixelRepresentation") or 0) == 1:
        low, high = low - 2.0 ** (int(bits) - 1), high - 2.0 ** (int(bits) - 1)
    if header.get("RescaleSlope") is None or header.get("RescaleIntercept") is None:
        return low, high
    slope, intercept = float(header.RescaleSlope), float(header.RescaleIntercept)
    ends = sorted((low * slope + intercept, high * slope + intercept))
    return ends[0], ends[1]


def _scaled(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.uint8]:
    """Map ``low`` to 0 and ``high`` to 255, clipped."""
    span = high - low if high != low else 1.0
    levels = np.nan_to_num((values - low) * 255 / span, nan=0.0, posinf=255.0, neginf=0.0)
    return np.clip(np.rint(levels), 0, 255).astype(np.uint8)


def _first(value: Any) -> float | None:
    """Return the first of one or several decimal values, None for an absent one."""
    if value is None or value == "":
        return None
    return float(value) if isinstance(value, int | float | str) else float(value[0])
