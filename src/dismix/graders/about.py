"""What a grader knows of its data beside its weights: enough to read new images as in training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dismix.data.manifest_meta import ManifestMeta
from dismix.errors import DisMixError
from dismix.generator.reading import FIELDS, reading_of
from dismix.graders.base import Grader


def about_images(
    ranks: Sequence[str],
    size: int,
    *,
    grey: bool = False,
    fit: str = "stretch",
    equalize: bool = False,
    bits: int = 16,
) -> dict[str, Any]:
    """Return what a grader must know to read new images: the value for `Grader.about`.

    Args:
        ranks: Names of the C ranks, low to high.
        size: H and W of the training images.
        grey: They had one channel.
        fit: How other proportions became square: "stretch", "pad" or "crop".
        equalize: Their histograms were equalised.
        bits: Bits in use of 16-bit grey files.

    Example:
        >>> about_images(["mild", "severe"], 64, grey=True)["grey"]
        True
    """
    names = (ranks,) if isinstance(ranks, str) else tuple(str(name) for name in ranks)
    if len({*names}) < max(2, len(names)):
        raise DisMixError(
            f"{[*names]} are no ranks", cure="name two or more, each once, low to high"
        )
    if not isinstance(size, int) or size < 1:
        raise DisMixError(f"{size!r} is no size", cure="give the pixels of a side, as 256")
    meta = ManifestMeta(names, equalize=bool(equalize), grey=bool(grey), bits=bits, fit=fit)
    return {"ranks": [*names], "size": int(size), **reading_of(meta)}


def require_about(grader: Grader) -> dict[str, Any]:
    """Return what a grader knows of its images, or say how to tell it.

    Args:
        grader: Should be a grader that knows all that `about_images` tells.
    """
    require_grader(grader)
    if any(name not in grader.about for name in ("ranks", "size", *FIELDS)):
        raise DisMixError(
            "this grader does not know how its images were read",
            cure="set grader.about = about_images(ranks, size), from dismix.graders.about, before"
            " save_grader or now; tensors can be given to grader.predict",
        )
    return grader.about


def require_grader(grader: object) -> None:
    """Raise for what is no grader, such as the path of one.

    Example:
        >>> require_grader("runs/corn")
        Traceback (most recent call last):
        dismix.errors.DisMixError: 'runs/corn' is of type str, no grader; give Grader.load of ...
    """
    if not isinstance(grader, Grader):
        kind = type(grader).__name__
        if isinstance(grader, str | Path):
            raise DisMixError(
                f"'{grader}' is of type {kind}, no grader", cure="give Grader.load of that path"
            )
        inside = [name for name in ("_orig_mod", "module") if hasattr(grader, name)]
        cure = "give one from create_grader or load"
        if inside:
            cure = f"give what is in it, its .{inside[0]}"
        raise DisMixError(f"a {kind} is no grader", cure=cure)
