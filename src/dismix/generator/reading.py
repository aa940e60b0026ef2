"""How files become pictures, and whether a generator and data agree on it.

A generator decodes pictures of the kind it was trained on: grey ones, or with a padded border, or
equalised. Mixed among images that are read in another way, they can be told from them at a glance,
and a grader learns just that.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from dismix.data.decode import FORMATS, opened
from dismix.errors import DisMixError

if TYPE_CHECKING:
    from dismix.data.manifest import Manifest
    from dismix.data.manifest_meta import ManifestMeta

FIELDS = ("grey", "fit", "equalize", "bits")
READING = "reading"


def reading_of(meta: "ManifestMeta") -> dict[str, Any]:
    """Return what decides how the files of a manifest become pictures.

    Example:
        >>> from dismix.data.manifest_meta import ManifestMeta
        >>> reading_of(ManifestMeta(("mild", "severe"), fit="pad"))
        {'grey': False, 'fit': 'pad', 'equalize': False, 'bits': 16}
    """
    return {name: getattr(meta, name) for name in FIELDS}


def reading_at(manifest: str | Path | None) -> dict[str, Any]:
    """Return how a manifest that may be gone by now is read; nothing where it is."""
    from dismix.data.manifest import read_manifest

    try:
        return {} if manifest is None else reading_of(read_manifest(manifest).meta)
    except (DisMixError, OSError):
        return {}


def run_reading(run: str | Path) -> dict[str, Any]:
    """Return how the images of a generator were read, as far as that is known.

    Args:
        run: Its folder. Older ones do not say; their manifest does, if it is still there.

    Example:
        >>> run_reading("no such run")
        {}
    """
    from dismix.generator.run_file import RUN_FILE, manifest_of

    try:
        described = json.loads((Path(run) / RUN_FILE).read_text(encoding="utf-8"))
        known: dict[str, Any] = described.get(READING) or reading_at(manifest_of(described))
        return known
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def require_same_reading(known: Mapping[str, Any], data: "Manifest") -> None:
    """Raise where data are read in another way than the images of a generator were.

    A field that makes no difference to the training images, by the headers of their files, may
    differ.

    Args:
        known: From `reading_of`, as far as known.
        data: What the generator is used on.
    """
    own = reading_of(data.meta)
    other = [name for name in FIELDS if name in known and known[name] != own[name]]
    if other:
        idle = _without_effect(data.split("train").image_paths)
        other = [name for name in other if name not in idle]
    if not other:
        return
    theirs = {name: known[name] for name in other}
    raise DisMixError(
        f"is read with {_listed(own, other)}, the generator's images were read with"
        f" {_listed(theirs, other)}",
        file=data.path,
        cure="import these data with "
        + " ".join(f"--set {name}={_word(known[name])}" for name in other)
        + ", or train a generator on them as they are",
    )


def _without_effect(paths: Iterable[Path]) -> set[str]:
    """Return the fields that change none of these files; in doubt a field changes them."""
    idle = {"grey", "fit", "bits"}
    for path in paths:
        if not idle:
            break
        try:
            with opened(path) as (stream, _), Image.open(stream, formats=FORMATS) as image:
                deep = image.mode.startswith(("I", "F"))
                if image.width != image.height:
                    idle.discard("fit")
                if deep:
                    idle.discard("bits")
                elif image.mode not in ("1", "L"):
                    idle.discard("grey")
        # DICOM, or a damaged header, which makes readers raise almost anything.
        except Exception:
            return set()
    return idle


def _listed(values: Mapping[str, Any], names: Iterable[str]) -> str:
    return ", ".join(f"{name} {_word(values[name])}" for name in names)


def _word(value: object) -> str:
    """Return a value as `--set` takes it."""
    return str(value).lower()
