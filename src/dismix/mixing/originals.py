"""The original images of a folder of mixes, so that one manifest lists both.

Mixes are made of what the generator saw. Where that was equalised, mixes are, and a manifest says
for all its images whether to equalise: so equalised copies of the originals go into the folder.
"""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from torch import Tensor

from dismix import atomic
from dismix.data.manifest import Manifest
from dismix.data.store import build_store
from dismix.data.store_settings import settings_for
from dismix.data.transforms import equalize
from dismix.progress import Progress

FOLDER = "originals"
_CHUNK = 64


def original_images(
    output: Path,
    data: Manifest,
    size: int,
    *,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Sequence[str]:
    """Return where the images of a manifest are; those to be equalised are written first.

    Args:
        output: Folder of mixes.
        data: N images.
        size: Pixels a side of the copies, the generator's.
        cache: Folder of the image stores.
        progress: Called while copies are written.

    Returns:
        N paths; those of copies are relative to ``output``.
    """
    if not data.meta.equalize:
        return [str(path) for path in data.image_paths]
    store = build_store(data.image_paths, settings_for(data.meta, size), cache, progress=progress)
    # By content, so that what an earlier writing left is known again, and a changed image not.
    names = [f"{FOLDER}/{digest[:20]}.png" for digest in store.digests]
    for start in range(0, len(names), _CHUNK):
        part = slice(start, min(start + _CHUNK, len(names)))
        missing = [not (output / name).is_file() for name in names[part]]
        if any(missing):
            for picture, name in zip(equalize(store[part]), names[part], strict=True):
                save_picture(picture, output / name)
        if progress is not None:
            progress("writing equalised originals", part.stop, len(names))
    return names


def save_picture(picture: Tensor, file: Path) -> None:
    """Write a picture (channels, H, W) uint8 atomically, in the format that the name says."""
    pixels = picture.permute(1, 2, 0).numpy()
    with atomic.replacing(file) as temporary:
        Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(temporary)
