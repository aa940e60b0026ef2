"""What holds for all images of a manifest, kept as ``<stem>.meta.json`` beside its table."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dismix import atomic
from dismix.data.spelling import alike
from dismix.errors import DisMixError
from dismix.registry import near_names

FITS = ("stretch", "pad", "crop")


@dataclass(frozen=True)
class ManifestMeta:
    """What holds for all images of a manifest.

    Attributes:
        ranks: Names of the ranks, low to high.
        equalize: Equalise histograms before training (the paper does so for KOA).
        grey: Images have one channel and stay so.
        bits: Bits in use of 16-bit grey files: 12 for 12-bit data, which would else be dark.
        fit: How other proportions become square: "stretch" (the paper), "pad" or "crop".
        source: Where the data come from.
        notes: Free text: licence, choices made on import.
    """

    ranks: tuple[str, ...]
    equalize: bool = False
    grey: bool = False
    bits: int = 16
    fit: str = "stretch"
    source: str = ""
    notes: str = ""

    def __post_init__(self) -> None:
        if self.fit not in FITS:
            raise DisMixError(f"unknown fit '{self.fit}'", cure=near_names(self.fit, [*FITS]))
        if not 1 <= self.bits <= 16:
            raise DisMixError(f"{self.bits} bits", cure="give 1 to 16, the bits in use")


def meta_path(path: Path) -> Path:
    """Return the path of a manifest's meta file."""
    return path.with_suffix(".meta.json")


_META_KINDS = {
    "equalize": "true or false", "grey": "true or false", "bits": "a whole number",
    "fit": "stretch, pad or crop", "source": "text", "notes": "text",
}  # fmt: skip


def read_meta(path: Path) -> ManifestMeta | None:
    """Read the meta file beside a manifest, or return None when there is none."""
    file = meta_path(path)
    if not file.is_file():
        return None
    try:
        # With or without byte-order mark, which editors on Windows put in front.
        return _meta_of(json.loads(file.read_text(encoding="utf-8-sig")))
    except (ValueError, KeyError, TypeError, DisMixError) as error:
        raise DisMixError(
            f"is not a manifest's meta file ({error})",
            file=file,
            cure='it needs {"ranks": ["low", ..., "high"]}; delete it to infer the ranks',
        ) from error


def _meta_of(content: Any) -> ManifestMeta:
    """Return what a meta file says; raises where it says it wrongly."""
    if not isinstance(content, dict):
        raise TypeError("it is no object")
    ranks = content["ranks"]
    if not isinstance(ranks, list) or len(ranks) < 2:
        raise TypeError("'ranks' must list at least two names")
    for rank in ranks:
        # Numbers are names too; true and false are as likely a slip.
        if type(rank) not in (str, int, float):
            raise TypeError(f"'ranks' must list names, not {json.dumps(rank)}")
    names = tuple(str(rank) for rank in ranks)
    refuse_bad_ranks(names)
    for name in content:
        if name not in ("ranks", *_META_KINDS):
            raise TypeError(f"unknown field '{name}', {near_names(name, [*_META_KINDS])}")
    for name, words in _META_KINDS.items():
        default = getattr(ManifestMeta, name)
        # By type, since any other text, "no" too, would count as true.
        if type(content.get(name, default)) is not type(default):
            raise TypeError(f"'{name}' must be {words}, not {content[name]!r}")
    return ManifestMeta(**{**content, "ranks": names})


def write_meta(meta: ManifestMeta, path: Path) -> None:
    """Write the meta file beside a manifest, atomically."""
    atomic.write_json(meta_path(path), {**asdict(meta), "ranks": [*meta.ranks]})


def refuse_bad_ranks(ranks: tuple[str, ...], path: Path | None = None) -> None:
    """Raise for names that occur twice, and for fewer than two."""
    if any(not name.strip() for name in ranks):
        raise DisMixError("a rank has an empty name", file=path, cure="give each rank a name")
    first: dict[str, str] = {}
    for name in ranks:
        # Grades are compared so: two such ranks would share their images by chance.
        key = alike(name.strip())
        if key in first:
            told = f"the ranks '{first[key]}' and '{name}' differ in spelling only"
            if first[key] == name:
                told = f"two ranks are called '{name}'"
            raise DisMixError(told, file=path, cure="give each rank its own name")
        first[key] = name
    if len(ranks) < 2:
        raise DisMixError(
            f"an ordinal scale needs at least 2 ranks, got {', '.join(ranks) or 'none'}",
            file=path,
            cure="name all ranks, also those that no image has",
        )
