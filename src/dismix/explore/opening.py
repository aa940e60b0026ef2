"""From a run folder to a session."""

import json
from pathlib import Path
from typing import Any

from dismix.data.manifest import read_manifest
from dismix.errors import DisMixError
from dismix.explore.library import Library, open_library, without_data
from dismix.explore.opinion import NearestReal, Opinion
from dismix.explore.session import Session
from dismix.generator.model import CONFIG_FILE, Generator
from dismix.generator.run_file import require_fitting
from dismix.mixing.encoding import run_manifest
from dismix.progress import Progress


def open_session(
    run: str | Path,
    *,
    manifest: str | Path | None = None,
    grader: str | Path | None = None,
    device: str = "cpu",
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Session:
    """Open a run with its data, as far as they are still there.

    Args:
        run: Run folder of a trained generator.
        manifest: Data; what the run was trained on by default. One that was named must be there.
        grader: Run folder of a grader whose opinion is to be shown.
        device: Where to compute.
        cache: Folder of the image stores.
        progress: Called while images are read.
    """
    run = Path(run)
    if not (run / CONFIG_FILE).is_file():
        raise DisMixError(
            "is not the run folder of a generator", file=run,
            cure=f"give a folder with {CONFIG_FILE}: what `dismix generator train -o` filled",
        )  # fmt: skip
    model = Generator.load(run, device)
    library = _library(run, model, manifest, cache, progress)
    opinion = None
    if grader is not None:
        from dismix.graders.base import Grader

        judge = Grader.load(grader, device)
        opinion = Opinion(judge, library.ranks, equalized=library.equalize, run=run)
    nearest = NearestReal(library, progress) if "train" in library.shelves else None
    return Session(model, library, run, opinion=opinion, nearest=nearest)


def _library(
    run: Path,
    model: Generator,
    manifest: str | Path | None,
    cache: Path | None,
    progress: Progress | None,
) -> Library:
    ranks, size = model.config.num_ranks, model.image_size
    if manifest is None:
        try:
            path = run_manifest(run)
            there = path.exists()
        except DisMixError:
            there = False
        if not there:
            return without_data(_rank_names(run, ranks), size, model.in_channels)
        manifest = path
    data = read_manifest(manifest)
    require_fitting(run, data)
    return open_library(manifest, ranks, size, cache=cache, progress=progress)


def _rank_names(run: Path, count: int) -> list[str]:
    """Return the ranks' names that the run remembers, or plain numbers."""
    try:
        described: Any = json.loads((run / "run.json").read_text(encoding="utf-8"))
        names = [str(name) for name in described["ranks"]]
    except (OSError, ValueError, KeyError, TypeError):
        names = []
    return names if len(names) == count else [str(rank) for rank in range(count)]
