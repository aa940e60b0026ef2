"""Rows of pictures with a caption at the left of each, and a heading above each column."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from dismix.show.contact_sheet import FAINT, LABEL, MARGIN, PAPER, picture_grid, shorten
from dismix.show.lettering import lettering

Pixels = NDArray[np.uint8]
#: Small pictures are enlarged to about this side.
_SIDE = 112
_HEADER = 22


def headed_grid(
    rows: Sequence[Sequence[Pixels]], captions: Sequence[tuple[str, str]], headers: Sequence[str]
) -> Image.Image:
    """Lay out rows of square pictures with captions at the left and headers above.

    Args:
        rows: Pictures (side, side, 1 or 3), all of one side.
        captions: A caption and a note a row.
        headers: One a column.
    """
    side = rows[0][0].shape[0]
    size = side * max(1, -(-_SIDE // side))
    large = [[picture.repeat(size // side, 0).repeat(size // side, 1) for picture in row]
             for row in rows]  # fmt: skip
    grid = picture_grid(large, captions, size)
    sheet = Image.new("RGB", (grid.width, grid.height + _HEADER), PAPER)
    sheet.paste(grid, (0, _HEADER))
    draw = ImageDraw.Draw(sheet)
    for column, header in enumerate(headers):
        centre = LABEL + column * (size + MARGIN) + size // 2
        # Ranks have names of any length, in any script.
        words, font = lettering(header, 12)
        shown = shorten(words, font, size + MARGIN)
        draw.text((centre, _HEADER - 6), shown, FAINT, font, anchor="ms")
    return sheet
