"""The images a generator is trained and judged on, decoded once and held ready."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dismix.data.manifest import Manifest
from dismix.data.mixed_rows import INSTEAD, mixed_rows
from dismix.data.store import ImageStore, build_store
from dismix.data.store_settings import settings_for
from dismix.data.transforms import equalize, to_unit
from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.progress import Progress

_MAKES = {
    "val": "`dismix data split MANIFEST --val 0.15 -o NEW` makes a validation part",
    "test": "`dismix data split MANIFEST --test 0.2 -o NEW` makes a test part",
}


@dataclass(frozen=True)
class SplitImages:
    """One split.

    Attributes:
        source: (N, channels, H, W) uint8 on the device, or a memory-mapped store.
        target: Targets of the N images.
        equalize: Equalise histograms on the way.
        names: (C) what the ranks are called, low to high; their positions by default.
    """

    source: Tensor | ImageStore
    target: OrdinalTarget
    equalize: bool
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.names:
            object.__setattr__(self, "names", tuple(map(str, range(self.target.num_ranks))))

    def __len__(self) -> int:
        return len(self.target)

    def images(self, rows: Tensor, device: torch.device | str) -> Tensor:
        """Return images (B, channels, H, W) in [-1, 1], not augmented."""
        home = self.source.device if isinstance(self.source, Tensor) else "cpu"
        pixels = self.source[rows.to(home)].to(device)
        return to_unit(equalize(pixels) if self.equalize else pixels)


def load_split(
    manifest: Manifest,
    split: str,
    size: int,
    *,
    device: torch.device,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> SplitImages:
    """Decode one split of a manifest into a store, and put it on the device when it fits.

    Args:
        manifest: All splits.
        split: "train", "val" or "test".
        size: Pixels a side.
        device: Where training runs.
        cache: Folder of the stores; the default cache when None.
        progress: Called while images are decoded.
    """
    rows = require_images(manifest, split)
    settings = settings_for(manifest.meta, size)
    store = build_store(rows.image_paths, settings, cache, progress=progress)
    source = store.to_device(device) if store.fits_on(device) else store
    return SplitImages(
        source, rows.target().to(device), manifest.meta.equalize, manifest.meta.ranks
    )


def require_images(manifest: Manifest, split: str) -> Manifest:
    """Return the rows of a split; raise where there are none."""
    rows = manifest.split(split)
    if len(rows) == 0:
        raise DisMixError(
            f"has no images in split '{split}'",
            file=manifest.path,
            cure=_cure(manifest, split),
        )
    return rows


def _cure(manifest: Manifest, split: str) -> str:
    """Return how to get images of a split: never by a split of mixes, which would leak."""
    made = mixed_rows(manifest)
    if made.all():
        return "its images are mixes: `dismix mix write RUN ... --originals` lists the others too"
    if made.any():
        return f"mixes are among its images: {INSTEAD}"
    return _MAKES.get(split, f"write '{split}' into the column 'split' of some rows")
