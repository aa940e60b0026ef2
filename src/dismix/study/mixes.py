"""Mixes of one fold's generator, each with the training image that is nearest to it.

A mix that is practically a training image would bring nothing new and could give a patient's
picture away. How near real pictures come that the generator never saw, the fold's held-out
images, is the measure of what is usual.
"""

import base64
import io
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from PIL import Image

from dismix.bench.sources import FULL, TRAINING
from dismix.data.manifest import Manifest, read_manifest
from dismix.data.store import ImageStore, build_store
from dismix.data.store_settings import settings_for
from dismix.data.twins import SAME_PICTURE
from dismix.mixing.mix_table import TABLE
from dismix.mixing.nearest import NearestTraining
from dismix.mixing.writing import read_pictures, write_mixes
from dismix.progress import Progress

#: Mixes that are measured, and those of them that are shown.
MEASURED, SHOWN = 64, 12
_SIDE = 128


@dataclass(frozen=True)
class ShownMix:
    """One mix with where it comes from.

    Attributes:
        policy: How it was made.
        rank: Its target.
        anchor_rank: Grade of the image it started from.
        similarity: Of the nearest training image.
        nearest_is_source: That image took part in the mix.
        pictures: The anchor, the partner (None where a picture was generated), the mix and the
            nearest training image, as data addresses.
    """

    policy: str
    rank: float
    anchor_rank: int
    similarity: float
    nearest_is_source: bool
    pictures: dict[str, str | None]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values without the pictures."""
        return {k: v for k, v in asdict(self).items() if k != "pictures"}


@dataclass(frozen=True)
class MixLook:
    """What was seen of the mixes.

    Attributes:
        shown: Some of them, spread over the policies, not picked by their looks.
        count: Mixes measured.
        median: Middle similarity to the nearest training image.
        highest: The highest.
        copies: Mixes that are practically a training image.
        held_out_median: Middle similarity of real held-out images to theirs.
        held_out_copies: Those that are practically a training image.
        held_out: Real held-out images measured.
        same: Similarity from which two pictures count as the same.
    """

    shown: tuple[ShownMix, ...]
    count: int
    median: float
    highest: float
    copies: int
    held_out_median: float
    held_out_copies: int
    held_out: int
    same: float = SAME_PICTURE

    def to_dict(self) -> dict[str, Any]:
        """Return plain values without the pictures."""
        return {**asdict(self), "shown": [mix.to_dict() for mix in self.shown]}


def look_at_mixes(
    run: Path,
    data: Path,
    output: Path,
    size: int,
    *,
    device: str = "cpu",
    progress: Progress | None = None,
) -> MixLook:
    """Write some mixes of a generator and find their nearest training images.

    Args:
        run: Run folder of the generator.
        data: Folder of the fold's derived data.
        output: Folder of the mixes.
        size: Pixels a side.
        device: Where to decode.
        progress: Called while mixes are made.
    """
    # Named, since the whole study may have been moved since the generator was trained.
    write_mixes(
        run, output, MEASURED, manifest=data / TRAINING, seed=0, device=device, progress=progress
    )
    table = pd.read_csv(output / TABLE)
    full = read_manifest(data / FULL)
    train, held = full.split("train"), full.split("test")
    images = _store(train, size)
    finder = NearestTraining(images, equalized=train.meta.equalize)
    count = min(MEASURED, len(held))
    real = _store(held, size)[np.linspace(0, len(held) - 1, count).astype(np.int64)]
    near = finder.find(_seen(real, held))
    similarity = table["similarity"].to_numpy(np.float64)
    return MixLook(
        tuple(_shown(table, row, train, images, output) for row in _spread(table["policy"])),
        len(table), float(np.median(similarity)), float(similarity.max()),
        int((similarity >= SAME_PICTURE).sum()), float(np.median(near.similarity)),
        int((near.similarity >= SAME_PICTURE).sum()), count,
    )  # fmt: skip


def _store(manifest: Manifest, size: int) -> ImageStore:
    return build_store(manifest.image_paths, settings_for(manifest.meta, size))


def _seen(pixels: torch.Tensor, manifest: Manifest) -> torch.Tensor:
    from dismix.data.transforms import equalize

    return equalize(pixels) if manifest.meta.equalize else pixels


def _spread(policies: "pd.Series[str]") -> list[int]:
    """Return the first rows of every policy, in turn."""
    turns = policies.groupby(policies).cumcount()
    order = np.lexsort((np.arange(len(policies)), turns.to_numpy()))
    return [int(row) for row in order[:SHOWN]]


def _shown(
    table: pd.DataFrame, row: int, train: Manifest, images: ImageStore, output: Path
) -> ShownMix:
    one = table.iloc[row]
    names = {name: i for i, name in enumerate(train.table["image"])}

    def real(index: int) -> str:
        return _address(_seen(images[[index]], train)[0].numpy())

    anchor, partner = int(one["anchor"]), one["partner"]
    nearest = _row_of(names, str(one["nearest_image"]))
    return ShownMix(
        str(one["policy"]), float(one["rank"]), int(train.target().hard[anchor]),
        float(one["similarity"]), bool(one["nearest_is_source"]),
        {
            "anchor": real(anchor),
            "partner": None if pd.isna(partner) else real(int(partner)),
            "mix": _address(read_pictures(output, range(row, row + 1))[0].numpy()),
            "nearest": None if nearest is None else real(nearest),
        },
    )  # fmt: skip


def _row_of(names: dict[str, int], image: str) -> int | None:
    """Return the row of an image; manifests in other folders may name it by another path."""
    if image in names:
        return names[image]
    ends = [row for name, row in names.items() if Path(name).name == Path(image).name]
    return ends[0] if len(ends) == 1 else None


def _address(pixels: NDArray[np.uint8]) -> str:
    """Return a picture (channels, H, W) as a data address, no larger than it is shown."""
    array = pixels.transpose(1, 2, 0)
    image = Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array)
    image.thumbnail((_SIDE, _SIDE))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=88)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
