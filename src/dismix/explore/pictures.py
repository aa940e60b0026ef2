"""Pictures for the page: sizes people can see, differences, files to take away."""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, PngImagePlugin
from torch import Tensor

from dismix.explore.subject import NOTICE
from dismix.show.contact_sheet import FAINT, INK, PAPER
from dismix.show.lettering import lettering

#: Side below which pictures are enlarged for people.
SHOWN = 256
# Smaller changes are drawn faint instead of being blown up to full colour.
_LEAST_SCALE = 48.0


def as_image(pixels: Tensor) -> Image.Image:
    """Return pixels (channels, H, W) uint8 as a picture of the same size."""
    array = pixels.permute(1, 2, 0).numpy()
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)


def png(image: Image.Image, notes: Mapping[str, Any] | None = None) -> bytes:
    """Return a PNG file; notes and the notice go into its text, so they travel with it."""
    buffer = io.BytesIO()
    info = PngImagePlugin.PngInfo()
    if notes is not None:
        info.add_text("Comment", NOTICE)
        info.add_itxt("dismix", json.dumps(notes, ensure_ascii=False))
    # A slider move makes several, and packing tightly takes longer than decoding on a GPU.
    image.save(buffer, "PNG", pnginfo=info, compress_level=1)
    return buffer.getvalue()


def data_uri(content: bytes, kind: str = "image/png") -> str:
    """Return content as an address of its own, so that no file has to be served."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def difference(made: Tensor, before: Tensor) -> tuple[Tensor, float]:
    """Return what changed as a picture, red where brighter and blue where darker.

    Args:
        made: (channels, H, W) uint8.
        before: (channels, H, W) uint8.

    Returns:
        (3, H, W) uint8 on white, and the mean change in per cent of the grey range.

    Example:
        >>> black, grey = (torch.full((1, 1, 1), v, dtype=torch.uint8) for v in (0, 48))
        >>> picture, change = difference(grey, black)
        >>> picture.flatten().tolist(), round(change, 1)
        ([178, 24, 43], 18.8)
    """
    change = made.float().mean(0) - before.float().mean(0)
    scale = max(_LEAST_SCALE, float(change.abs().quantile(0.995)))
    share = (change / scale).clamp(-1, 1)[None]
    red, blue = (torch.tensor(c).view(3, 1, 1) for c in ((178.0, 24.0, 43.0), (33.0, 102.0, 172.0)))
    colour = torch.where(share > 0, red, blue)
    picture = 255 + share.abs() * (colour - 255)
    return picture.round().to(torch.uint8), float(change.abs().mean()) / 2.55


def film_strip(
    pictures: Sequence[Tensor], titles: Sequence[str], marked: int | None
) -> Image.Image:
    """Draw pictures (channels, H, W) in a row with titles below; one may be marked.

    Args:
        pictures: Same size, uint8.
        titles: One each.
        marked: Place of the frame to outline.
    """
    side, gap, foot = max(128, pictures[0].shape[-1]), 6, 46
    width = len(pictures) * (side + gap) + gap
    sheet = Image.new("RGB", (width, side + gap + foot), PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for place, (picture, title) in enumerate(zip(pictures, titles, strict=True)):
        left = gap + place * (side + gap)
        if place == marked:
            draw.rectangle((left - 4, gap - 4, left + side + 3, gap + side + 3), fill=INK)
        large = as_image(picture).resize((side, side), Image.Resampling.BICUBIC)
        sheet.paste(large, (left, gap))
        words, written = lettering(title, 13)
        draw.text((left + side // 2, gap + side + 12), words, INK, written, anchor="mm")
    draw.text((gap, side + gap + foot - 14), NOTICE, FAINT, font)
    return sheet


def highlighted(pixels: Tensor, where: NDArray[np.bool_]) -> Tensor:
    """Tint the parts of a picture (channels, H, W) that a grid (h, w) marks: (3, H, W)."""
    colour = pixels.float().expand(3, -1, -1) if len(pixels) == 1 else pixels.float()
    mask = torch.from_numpy(where.astype(np.float32))[None, None]
    mask = torch.nn.functional.interpolate(mask, pixels.shape[-2:], mode="nearest")[0]
    tint = torch.tensor([255.0, 170.0, 0.0]).view(3, 1, 1)
    return (colour * (1 - 0.55 * mask) + tint * 0.55 * mask).round().to(torch.uint8)
