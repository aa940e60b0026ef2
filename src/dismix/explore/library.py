"""The images of the run's data, where they still are; else the reason why there are none."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dismix.data.manifest import SPLITS, Manifest, read_manifest
from dismix.data.store import ImageStore, build_store
from dismix.data.store_settings import StoreSettings, settings_for
from dismix.data.transforms import equalize
from dismix.errors import DisMixError
from dismix.explore.subject import Subject
from dismix.laws import majority_rank
from dismix.progress import Progress


@dataclass(frozen=True)
class Shelf:
    """One split.

    Attributes:
        store: Its images.
        names: As the manifest writes them.
        laws: (N, C) what the annotators said.
        rows: Rows whose image could be read.
    """

    store: ImageStore
    names: list[str]
    laws: Tensor
    rows: NDArray[np.int64]


@dataclass(frozen=True)
class Library:
    """All images to choose from.

    Attributes:
        ranks: Names of the ranks.
        settings: How files are read, uploads too.
        equalize: Histograms are equalised on the way.
        shelves: Split -> images; empty when the data are gone.
        note: Why there are none, or which are missing.
    """

    ranks: tuple[str, ...]
    settings: StoreSettings
    equalize: bool = False
    shelves: dict[str, Shelf] = field(default_factory=dict)
    note: str = ""

    @property
    def keys(self) -> list[str]:
        """Keys of all images, split by split."""
        return [f"{split}/{row}" for split, shelf in self.shelves.items() for row in shelf.rows]

    def majorities(self, split: str) -> NDArray[np.int64]:
        """Return the majority ranks of a split's readable images."""
        shelf = self.shelves[split]
        found: NDArray[np.int64] = majority_rank(shelf.laws[torch.from_numpy(shelf.rows)]).numpy()
        return found

    def subject(self, key: str) -> Subject:
        """Return one image; unknown keys are an error."""
        split, _, row = key.partition("/")
        shelf = self.shelves.get(split)
        if shelf is None or not row.isdecimal() or int(row) not in set(shelf.rows.tolist()):
            raise DisMixError(f"there is no image '{key}'", cure="choose one of the gallery")
        number = int(row)
        pixels = self.prepared(shelf.store[[number]])[0]
        return Subject(key, shelf.names[number], pixels, tuple(shelf.laws[number].tolist()))

    def prepared(self, pixels: Tensor) -> Tensor:
        """Return images (B, channels, H, W) uint8 as the generator sees them."""
        return equalize(pixels) if self.equalize else pixels

    def browse(
        self, split: str | None = None, rank: int | None = None, *, most: int | None = None,
        seed: int = 0,
    ) -> list[str]:  # fmt: skip
        """Return keys in the order of their ranks.

        Args:
            split: One split only.
            rank: One majority rank only.
            most: At most so many, drawn evenly over the ranks.
            seed: Decides which.
        """
        found: list[tuple[int, str]] = []
        for name in self.shelves if split is None else [split]:
            ranks = self.majorities(name)
            rows = self.shelves[name].rows
            found += [(int(r), f"{name}/{row}") for r, row in zip(ranks, rows, strict=True)]
        found = [item for item in found if rank is None or item[0] == rank]
        if most is not None and len(found) > most:
            rng = np.random.default_rng(seed)
            order = rng.permutation(len(found))
            # A rank's first image comes before any rank's second.
            seen: dict[int, int] = {}
            turns = [seen.setdefault(found[i][0], 0) for i in order]
            for place, i in enumerate(order):
                turns[place] = seen[found[i][0]]
                seen[found[i][0]] += 1
            chosen = [order[p] for p in np.argsort(turns, kind="stable")[:most]]
            found = [found[i] for i in sorted(chosen)]
        return [key for _, key in sorted(found, key=lambda item: item[0])]


def open_library(
    manifest: str | Path,
    num_ranks: int,
    size: int,
    *,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Library:
    """Read a manifest and decode its images, each split into its own store.

    Args:
        manifest: Manifest or its folder.
        num_ranks: C of the generator.
        size: Pixels a side.
        cache: Folder of the image stores.
        progress: Called while images are decoded.
    """
    data = read_manifest(manifest)
    if data.num_ranks != num_ranks:
        raise DisMixError(
            f"has {data.num_ranks} ranks, the generator {num_ranks}", file=data.path,
            cure="give the manifest the generator was trained on",
        )  # fmt: skip
    library = Library(data.meta.ranks, settings_for(data.meta, size), data.meta.equalize)
    shelves, missing = {}, 0
    for split in SPLITS:
        rows = data.split(split)
        if len(rows):
            shelf = _shelf(rows, library.settings, cache, progress)
            missing += len(rows) - (0 if shelf is None else len(shelf.rows))
            if shelf is not None:
                shelves[split] = shelf
    note = (
        f"{missing} of {len(data)} images of the run's data could not be read." if missing else ""
    )
    if not shelves:
        note = "The images of the run's data are no longer there: only uploads can be shown."
    return replace(library, shelves=shelves, note=note)


def _shelf(
    rows: Manifest, settings: StoreSettings, cache: Path | None, progress: Progress | None
) -> Shelf | None:
    there = [path.is_file() for path in rows.image_paths]
    if not any(there):
        return None
    if not all(there):
        # Files that are gone would only be listed one by one.
        rows = rows.with_table(rows.table[there].reset_index(drop=True))
    try:
        store = build_store(rows.image_paths, settings, cache, on_error="skip", progress=progress)
    except DisMixError as error:
        if "cache" in error.problem:
            raise
        return None
    return Shelf(store, _names(rows), rows.target().probs, np.asarray(store.valid))


def _names(rows: Manifest) -> list[str]:
    return [Path(str(name)).name for name in rows.table["image"]]


def without_data(ranks: Sequence[str], size: int, channels: int) -> Library:
    """Return a library for uploads alone, when not even the manifest can be read.

    Example:
        >>> without_data(["a", "b"], 64, 1).note
        "The run's data are no longer there: only uploads can be shown."
    """
    settings = StoreSettings(size, 1 if channels == 1 else 3)
    note = "The run's data are no longer there: only uploads can be shown."
    return Library(tuple(ranks), settings, note=note)
