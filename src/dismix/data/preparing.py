"""Images decoded ahead of time, into the very stores that training reads from."""

from pathlib import Path

from dismix.data.building import OnError
from dismix.data.manifest import SPLITS, Manifest
from dismix.data.store import ImageStore, build_store
from dismix.data.store_settings import settings_for
from dismix.progress import Progress


def prepare_images(
    manifest: Manifest,
    size: int,
    cache: Path | None = None,
    *,
    on_error: OnError = "stop",
    progress: Progress | None = None,
) -> dict[str, ImageStore]:
    """Build one store for each split that has images, as training asks for them.

    Args:
        manifest: All splits.
        size: Pixels a side.
        cache: Folder of the stores; the default cache when None.
        on_error: "stop" raises on the first bad file; "skip" lists it in the store.
        progress: Called while images are decoded.
    """
    settings = settings_for(manifest.meta, size)
    parts = {split: manifest.split(split) for split in SPLITS}
    return {
        split: build_store(rows.image_paths, settings, cache, on_error=on_error, progress=progress)
        for split, rows in parts.items()
        if len(rows)
    }
