"""Write a phantom set: pictures, manifest and the true factors beside it.

The folder holds ``images/``, ``manifest.csv`` with its meta file, ``factors.csv`` and, written
last, ``phantom.json`` with the spec. While the work goes on the spec stands in
``phantom.part.json`` instead, by which an interrupted build is known and completed.
"""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from dismix import atomic
from dismix.data.phantom.factors import factor_row
from dismix.data.phantom.plan import PlannedImage, plan_images
from dismix.data.phantom.render import render
from dismix.data.phantom.spec import PhantomSpec
from dismix.errors import DisMixError
from dismix.progress import Progress

if TYPE_CHECKING:
    import pandas as pd

    from dismix.data.manifest import Manifest

# Raise when the drawing changes: a folder drawn otherwise is not reused.
DRAWING = 1
DONE, PART, MANIFEST, FACTORS = "phantom.json", "phantom.part.json", "manifest.csv", "factors.csv"
_RANKS_OF_FIVE = {
    "knee": ("none", "doubtful", "minimal", "moderate", "severe"),
    "fundus": ("none", "mild", "moderate", "severe", "proliferative"),
}


def build_phantom(
    spec: PhantomSpec, folder: str | Path, progress: Progress | None = None
) -> "Manifest":
    """Write a phantom set, or finish or reuse the one that is there.

    The same spec gives the same files, byte for byte. Training and validation images get
    votes from the confusion matrix beside the true ``grade``; test images only the grade.

    Args:
        spec: What to draw.
        folder: Where to; absent, empty, or holding this very set, whole or interrupted.
        progress: Called as ``progress(stage, done, total)``.

    Returns:
        The manifest at ``folder/manifest.csv``.

    Raises:
        DisMixError: When the folder holds something else.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     manifest = build_phantom(PhantomSpec(train=4, val=0, test=2, size=32), folder)
        ...     len(manifest), manifest.num_ranks, manifest.annotators
        (6, 5, ['1', '2', '3', '4', '5'])
    """
    from dismix.data.manifest import make_manifest, read_manifest, write_manifest

    folder = Path(folder)
    _check_folder(spec, folder)
    planned = list(plan_images(spec))
    missing = [image for image in planned if not (folder / image.image).is_file()]
    tables = all((folder / name).is_file() for name in (DONE, MANIFEST, FACTORS))
    if not missing and tables:
        return read_manifest(folder / MANIFEST)
    if not (folder / DONE).is_file():
        atomic.write_json(folder / PART, _stamp(spec))
    _draw(missing, len(planned), folder, spec.size, progress)
    _write_factors(planned, folder / FACTORS)
    manifest = make_manifest(_table(spec, planned), _meta(spec), folder)
    write_manifest(manifest, folder / MANIFEST)
    atomic.write_json(folder / DONE, _stamp(spec))
    (folder / PART).unlink(missing_ok=True)
    return read_manifest(folder / MANIFEST)


def read_factors(folder: str | Path) -> "pd.DataFrame":
    """Read the true factors of a set: one row per image, in the manifest's order.

    Raises:
        DisMixError: When the folder holds no phantom set.
    """
    import pandas as pd

    path = Path(folder) / FACTORS
    if not path.is_file():
        raise DisMixError("no such file", file=path, cure="draw a set with `dismix data phantom`")
    return pd.read_csv(path, keep_default_na=False)


def _stamp(spec: PhantomSpec) -> dict[str, Any]:
    return {"drawing": DRAWING, "spec": json.loads(json.dumps(spec.to_json()))}


def _check_folder(spec: PhantomSpec, folder: Path) -> None:
    """Let pass: nothing, an empty folder, or this spec's set, whole or interrupted."""
    cure = "choose another folder, or delete this one"
    if not folder.exists():
        return
    if not folder.is_dir():
        raise DisMixError("is a file", file=folder, cure="choose another folder")
    stamps = [folder / name for name in (DONE, PART) if (folder / name).is_file()]
    if not stamps:
        if any(folder.iterdir()):
            raise DisMixError("holds something else than a phantom set", file=folder, cure=cure)
        return
    try:
        found = json.loads(stamps[0].read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if found != _stamp(spec):
        raise DisMixError("is from another phantom set", file=stamps[0], cure=cure)


def _draw(
    missing: Sequence[PlannedImage],
    total: int,
    folder: Path,
    size: int,
    progress: Progress | None,
) -> None:
    present = total - len(missing)
    for done, image in enumerate(missing, start=1):
        with atomic.replacing(folder / image.image) as temporary:
            Image.fromarray(render(image.factors, size)).save(temporary, format="PNG")
        if progress is not None:
            progress("drawing", present + done, total)


def _write_factors(planned: Sequence[PlannedImage], path: Path) -> None:
    rows = [{"image": image.image, **factor_row(image.factors)} for image in planned]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    atomic.write_text(path, text.getvalue())


def _table(spec: PhantomSpec, planned: Sequence[PlannedImage]) -> "pd.DataFrame":
    import pandas as pd

    columns: dict[str, list[Any]] = {
        "image": [image.image for image in planned],
        "split": [image.split for image in planned],
        "group": [image.group for image in planned],
        "grade": [image.factors.rank for image in planned],
    }
    for a in range(spec.annotators):
        votes = [image.votes[a] if image.votes else None for image in planned]
        columns[f"annotator_{a + 1}"] = votes
    return pd.DataFrame(columns)


def _meta(spec: PhantomSpec) -> Any:
    from dismix.data.manifest import ManifestMeta

    names = tuple(str(rank) for rank in range(spec.num_ranks))
    if spec.num_ranks == 5:
        names = _RANKS_OF_FIVE[spec.subject]
    return ManifestMeta(
        ranks=names,
        grey=spec.subject == "knee",
        source=f"dismix phantom ({spec.subject})",
        notes=f"drawn, no patient data; seed {spec.seed}; true factors in {FACTORS}",
    )
