r"""A class-per-folder tree: ``<split>/<grade>/image`` or ``<grade>/image``.

Folders called train(ing), val(id, idation) and test(ing) are splits, beside which no other folder
may hold images; without them every image is in ``train`` and splitting is a later step. Folders
with whole numbers as names are ranks in that order, and a number missing in between stays an
empty rank that `data check` reports; one far above the others, such as 99 for "not graded", is
refused. Other names are ranked by the one number that tells them apart (0_none, grade 10), or as
``ranks`` lists them; words alone are refused without it, since the alphabet knows no severity.
"""

import warnings
from pathlib import Path

import pandas as pd

from dismix.data.manifest import Manifest, ManifestMeta, make_manifest
from dismix.data.sources import koa
from dismix.data.sources.base import (
    SOURCES,
    Source,
    compiled_group_pattern,
    group_of,
    require_folder,
)
from dismix.data.sources.folder_ranks import ranked_names
from dismix.data.sources.walking import (
    holds_images,
    images_below,
    kinds_of,
    subfolders,
    unread_below,
)
from dismix.data.spelling import alike
from dismix.errors import DisMixError

SPLIT_FOLDERS = {
    "train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val",
    "test": "test", "testing": "test",
}  # fmt: skip
_CURE = "arrange images as <grade>/<image> or <split>/<grade>/<image>"


def read(
    root: str | Path,
    *,
    ranks: tuple[str, ...] = (),
    group_pattern: str = "",
    grey: bool = False,
    equalize: bool = False,
    bits: int = 16,
    fit: str = "stretch",
) -> Manifest:
    r"""Read a tree of images sorted into folders by grade.

    Args:
        root: Folder that contains the grade folders, or the split folders.
        ranks: Folder names from the lowest rank to the highest; empty where numbers say the order.
        group_pattern: Regular expression with one capture group that finds the patient in an
            image's path below its grade folder, such as ``^(\d+)_``.
        grey: Images have one channel; `read_source` finds out where it is not given.
        equalize: Equalise histograms.
        bits: Bits in use of 16-bit grey files.
        fit: How other proportions become square: stretch, pad or crop.
    """
    root = require_folder(root)
    pattern = compiled_group_pattern(group_pattern)
    _refuse_other_splits(root)
    found = _grade_folders(root)
    _tell_unread(root, [folder for _, folder in found])
    grades = [(split, folder) for split, folder in found if holds_images(folder)]
    if not grades:
        raise DisMixError("no image was found in a grade folder", file=root, cure=_CURE)
    for _, folder in grades:
        _refuse_space(folder.relative_to(root), root)
    names = ranked_names([folder.name for _, folder in grades], ranks, root)
    if len(names) < 2:
        raise DisMixError(f"holds only one grade, '{names[0]}'", file=root, cure=_CURE)
    position = {alike(name): rank for rank, name in enumerate(names)}
    rows = []
    for split, folder in grades:
        for image in images_below(folder):
            row: dict[str, object] = {
                "image": image.relative_to(root).as_posix(),
                "split": split,
                "grade": position[alike(folder.name)],
            }
            if pattern is not None:
                row["group"] = group_of(image.relative_to(folder).as_posix(), pattern)
            rows.append(row)
    meta = ManifestMeta(
        ranks=names,
        grey=grey,
        equalize=equalize,
        bits=bits,
        fit=fit,
        source="folders",
        notes="" if ranks else f"ranks by folder name: {' < '.join(names)}",
    )
    return make_manifest(pd.DataFrame(rows), meta, root)


def recognises(root: Path) -> bool:
    """Return whether two or more folders, all with images, can be grades; KOA's are its own."""
    if not root.is_dir() or koa.recognises(root):
        return False
    try:
        folders = [folder for _, folder in _grade_folders(root)]
    except DisMixError:
        return False
    # Only images directly in a folder count: a guess must not walk through a whole disk.
    two = len({alike(folder.name) for folder in folders}) >= 2
    # Pictures that cannot be read count as well: reading the tree then says so.
    return two and all(images_below(folder, deep=False, unread=True) for folder in folders)


def _grade_folders(root: Path) -> list[tuple[str, Path]]:
    """Return (split, folder) of each grade folder, splits in their order."""
    _refuse_loose(root)
    parts = [f for f in subfolders(root) if _is_split(f)]
    if not parts:
        return [("train", folder) for folder in subfolders(root)]
    order = list(SPLIT_FOLDERS)
    found: list[tuple[str, Path]] = []
    for part in sorted(parts, key=lambda f: order.index(f.name.casefold())):
        _refuse_loose(part)
        split = SPLIT_FOLDERS[part.name.casefold()]
        found.extend((split, folder) for folder in subfolders(part))
    return found


def _tell_unread(root: Path, folders: list[Path]) -> None:
    """Warn of pictures that are left out; raise where a grade has no others."""
    left: list[Path] = []
    for folder in folders:
        unread = unread_below(folder)
        if unread and not holds_images(folder):
            raise DisMixError(
                f"holds pictures that cannot be read ({kinds_of(unread)}) and no others",
                file=folder,
                cure="export them as PNG, TIFF, JPEG or DICOM, or move the folder away",
            )
        left += unread
    if left:
        warnings.warn(
            f"{root}: {len(left)} pictures of kinds that cannot be read are left out"
            f" ({kinds_of(left)}); export them as PNG, TIFF, JPEG or DICOM",
            stacklevel=3,
        )


def _is_split(folder: Path) -> bool:
    return folder.name.casefold() in SPLIT_FOLDERS


def _refuse_other_splits(root: Path) -> None:
    """Raise for a folder of images beside the splits: as none of them it would be left out."""
    found = subfolders(root)
    if not any(_is_split(folder) for folder in found):
        return
    for folder in found:
        if not _is_split(folder) and holds_images(folder):
            raise DisMixError(
                "holds images beside the folders of the splits",
                file=folder,
                cure="rename it to train, val or test, or move it away",
            )


def _refuse_space(folder: Path, root: Path) -> None:
    """Raise for a path that begins with a space: tables lose it, and with it the images."""
    first = folder.parts[0]
    if first != first.lstrip():
        raise DisMixError(
            f"the name of the folder '{first}' begins with a space", file=root, cure="rename it"
        )


def _refuse_loose(folder: Path) -> None:
    loose = images_below(folder, deep=False)
    if loose:
        raise DisMixError("lies in no grade folder", file=loose[0], cure=_CURE)


SOURCE = SOURCES.register("folders")(
    Source(
        name="folders",
        about="your own images in <grade>/ or <split>/<grade>/ folders",
        obtain="your own data",
        read=read,
        recognises=recognises,
    )
)
