r"""A class-per-folder tree: ``<split>/<grade>/image`` or ``<grade>/image``.

Folders called train(ing), val(id, idation) and test(ing) are splits, beside which no other folder
may hold images; without them every image is in ``train`` and splitting is a later step. Folders
with whole numbers as names are ranks in that order, and a number missing in between stays an
empty rank that `data check` reports; one far above the others, such as 99 for "not graded", is
refused. Other numbers are ranked by their value, other names by
natural sort (grade 9 before grade 10), or as ``ranks`` lists them.
"""

import unicodedata
import warnings
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from dismix.data.manifest import Manifest, ManifestMeta, make_manifest
from dismix.data.rank_names import written_number
from dismix.data.sources import koa
from dismix.data.sources.base import (
    SOURCES,
    Source,
    compiled_group_pattern,
    group_of,
    require_folder,
)
from dismix.data.sources.walking import (
    holds_images,
    images_below,
    kinds_of,
    natural_key,
    subfolders,
    unread_below,
)
from dismix.data.spelling import alike
from dismix.data.validate import first_jump
from dismix.errors import DisMixError
from dismix.registry import near_names

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
        ranks: Folder names from the lowest rank to the highest; empty for their natural order.
        group_pattern: Regular expression with one capture group that finds the patient in an
            image's path below its grade folder, such as ``^(\d+)_``.
        grey: Images have one channel.
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
    names = _ranked([folder.name for _, folder in grades], ranks, root)
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
        notes="" if ranks else _order_note(names),
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


def _ranked(found: Iterable[str], ranks: tuple[str, ...], root: Path) -> tuple[str, ...]:
    """Return the names of all ranks, low to high."""
    # Neither names nor their order hang on how a disk spells accents.
    spelled = {alike(name): unicodedata.normalize("NFC", name) for name in found}
    names = sorted(spelled.values(), key=natural_key)
    if ranks:
        known = [alike(rank) for rank in ranks]
        for name in names:
            if alike(name) not in known:
                raise DisMixError(
                    f"folder '{name}' is not among the ranks",
                    file=root,
                    column="ranks",
                    cure=near_names(name, list(ranks)),
                )
        return tuple(ranks)
    if all(name.isdecimal() for name in names):
        numbers = {int(name): name for name in names}
        _refuse_same_number(names, numbers, root)
        _refuse_jump(numbers, root)
        return tuple(numbers.get(n, str(n)) for n in range(min(numbers), max(numbers) + 1))
    values = [(value, name) for name in names if (value := written_number(name)) is not None]
    # Not by natural sort, which has 0.25 after 0.5, and -1 after 0.
    return tuple(name for _, name in sorted(values)) if len(values) == len(names) else tuple(names)


def _refuse_same_number(names: Iterable[str], numbers: dict[int, str], root: Path) -> None:
    """Raise for a name such as 00 whose number another name has too."""
    for name in names:
        other = numbers[int(name)]
        if other != name:
            raise DisMixError(
                f"folders '{name}' and '{other}' have the same number",
                file=root,
                cure="give the folders of a grade one name, and those of two grades two numbers",
            )


def _refuse_jump(numbers: dict[int, str], root: Path) -> None:
    """Raise for a number that looks like a code for "not graded" and would make many ranks."""
    jump = first_jump(sorted(numbers))
    if jump is not None:
        below, name = (numbers[int(number)] for number in jump)
        raise DisMixError(
            f"is far above the next grade, {below}",
            file=root / name,
            cure=f"move the folder away if {name} says that there is no grade; if it is a rank,"
            " list the names of all folders from low to high with --ranks",
        )


def _order_note(names: tuple[str, ...]) -> str:
    """Say how ranks were ordered; words in alphabetical order are seldom in that of severity.

    Example:
        >>> _order_note(("0_none", "1_mild"))
        'ranks by folder name: 0_none < 1_mild'
    """
    order = " < ".join(names)
    if all(any(letter.isdecimal() for letter in name) for name in names):
        return f"ranks by folder name: {order}"
    return f"ranks by alphabet: {order}; if that is not their order, import again with --ranks"


SOURCE = SOURCES.register("folders")(
    Source(
        name="folders",
        about="your own images in <grade>/ or <split>/<grade>/ folders",
        obtain="your own data",
        read=read,
        recognises=recognises,
    )
)
