"""A contact sheet: a row of example images for each grade."""

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from dismix.data.manifest import Manifest
from dismix.data.rank_names import own_numbers
from dismix.errors import DisMixError
from dismix.progress import Progress
from dismix.show.lettering import Font, lettering

MARGIN, LABEL = 4, 150
INK, PAPER, FAINT = (30, 30, 34), (255, 255, 255), (120, 120, 128)


def choose_rows(manifest: Manifest, columns: int, seed: int = 0) -> list[list[int]]:
    """Return row positions to show: up to ``columns`` of each majority grade.

    Args:
        manifest: N graded images.
        columns: Images a grade.
        seed: Decides which.

    Returns:
        One list a rank, low to high.
    """
    majority = manifest.target().hard.numpy()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(manifest))
    return [
        sorted(int(i) for i in order[majority[order] == rank][:columns])
        for rank in range(manifest.num_ranks)
    ]


def contact_sheet(
    manifest: Manifest,
    *,
    columns: int = 10,
    size: int = 96,
    seed: int = 0,
    on_bad: Callable[[DisMixError], None] | None = None,
    progress: Progress | None = None,
) -> Image.Image:
    """Draw a row of images for each grade, with its name and number of images.

    Images are decoded, fitted and equalised as training reads them (``bits``, ``fit``, ``grey``
    and ``equalize`` of the manifest), so that what is squeezed or dark there is so here.

    Args:
        manifest: The graded images.
        columns: Images a grade.
        size: Side of an image in pixels.
        seed: Decides which images are shown.
        on_bad: Called for a file that cannot be read, which is then left out; by default the
            error is raised.
        progress: Called as images are read.
    """
    import torch

    from dismix.data.store_settings import load_image, settings_for
    from dismix.data.transforms import equalize

    settings = settings_for(manifest.meta, size)
    rows = choose_rows(manifest, columns, seed)
    paths = manifest.image_paths
    counts = np.bincount(manifest.target().hard.numpy(), minlength=manifest.num_ranks)
    total, done = sum(len(row) for row in rows), 0
    pictures: list[list[NDArray[np.uint8]]] = []
    for row in rows:
        pictures.append([])
        for index in row:
            try:
                picture = load_image(paths[index], settings)
                if manifest.meta.equalize:
                    picture = equalize(torch.tensor(picture)[None])[0].numpy()
                pictures[-1].append(picture.transpose(1, 2, 0))
            except DisMixError as error:
                if on_bad is None:
                    raise
                on_bad(error)
            done += 1
            if progress is not None:
                progress("reading images", done, total)
    numbered = own_numbers(manifest.meta.ranks) is not None
    captions = [
        # A name with a number of its own, such as 1 of a scale from 1, needs no second one.
        (name if numbered else f"{rank}  {name}", f"{counts[rank]} images")
        for rank, name in enumerate(manifest.meta.ranks)
    ]
    return picture_grid(pictures, captions, size)


def picture_grid(
    pictures: Sequence[Sequence[NDArray[np.uint8]]],
    captions: Sequence[tuple[str, str]],
    size: int,
) -> Image.Image:
    """Lay out rows of (size, size, 1 or 3) images with a caption and a note at the left."""
    width = LABEL + max((len(row) for row in pictures), default=0) * (size + MARGIN) + MARGIN
    sheet = Image.new("RGB", (width, len(pictures) * (size + MARGIN) + MARGIN), PAPER)
    draw = ImageDraw.Draw(sheet)
    for y, (row, (caption, note)) in enumerate(zip(pictures, captions, strict=True)):
        top = MARGIN + y * (size + MARGIN)
        for text, ink, letters, place in ((caption, INK, 15, -18), (note, FAINT, 12, 4)):
            words, font = lettering(text, letters)
            shown = shorten(words, font, LABEL - 3 * MARGIN)
            draw.text((MARGIN * 2, top + size // 2 + place), shown, ink, font)
        for x, pixels in enumerate(row):
            picture = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
            sheet.paste(picture, (LABEL + x * (size + MARGIN), top))
    return sheet


def save_picture(picture: Image.Image, path: str | Path) -> None:
    """Write a picture atomically, in the format its ending names.

    Raises:
        DisMixError: There is no such format, or it is for smaller or other pictures.
    """
    from dismix import atomic

    ending = Path(path).suffix
    if Image.registered_extensions().get(ending.lower()) not in Image.SAVE:
        raise DisMixError(f"unknown picture format '{ending}'", file=path, cure="use .png or .jpg")
    with atomic.replacing(path) as temporary:
        try:
            picture.save(temporary)
        # Each format says in its own way that a picture is too large for it.
        except (ValueError, OSError, struct.error) as error:
            # These are of the disk, and told by whoever replaces the file.
            if getattr(error, "errno", None) is not None:
                raise
            raise DisMixError(
                f"{picture.width} x {picture.height} pixels cannot be written as '{ending}'",
                file=path,
                cure="use .png, or fewer or smaller images",
            ) from error


def shorten(text: str, font: Font, width: int) -> str:
    """Cut a text that is wider than so many pixels."""
    shown = text
    while font.getlength(shown) > width and len(text) > 1:
        text = text[:-1].rstrip()
        shown = text + "…"
    return shown
