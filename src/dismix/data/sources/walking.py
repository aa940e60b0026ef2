"""Which files below a folder are images, and which are pictures that nobody here can read."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from dismix.data.encodings import refuse_undecodable
from dismix.errors import DisMixError

IMAGE_SUFFIXES = (
    ".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".dcm", ".dicom",
)  # fmt: skip
#: Endings of pictures that are not read: left out silently, they might be a whole grade.
UNREAD_SUFFIXES = (
    ".gif", ".pgm", ".ppm", ".pbm", ".pnm", ".jp2", ".j2k", ".jpf", ".jxl", ".heic", ".heif",
    ".avif", ".tga", ".psd", ".exr", ".svs", ".ndpi", ".mrxs", ".czi", ".mha", ".mhd", ".nrrd",
    ".nii", ".nii.gz", ".raw",
)  # fmt: skip
#: Folders that operating systems and archivers leave behind.
_HIDDEN = (".", "__MACOSX", "lost+found")


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Return a sort key that puts "grade 10" after "grade 9".

    Example:
        >>> sorted(["g10", "g9", "g1"], key=natural_key)
        ['g1', 'g9', 'g10']
    """
    parts = re.findall(r"\d+|\D+", text.casefold())
    return [(0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts]


def is_image(name: str) -> bool:
    """Return whether a file name ends like an image and is not hidden."""
    return name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith(".")


def is_unread(name: str) -> bool:
    """Return whether a file name ends like a picture of a kind that is not read.

    Example:
        >>> is_unread("eye.GIF"), is_unread("eye.png"), is_unread("notes.txt")
        (True, False, False)
    """
    return name.lower().endswith(UNREAD_SUFFIXES) and not name.startswith(".")


def is_bare_dicom(path: Path) -> bool:
    """Return whether a file without an ending holds DICOM, as archives export (IM0001, 1.2.840)."""
    bare = path.suffix == "" or path.suffix[1:].isdecimal()
    if not bare or path.name.startswith(".") or path.name.upper() == "DICOMDIR":
        return False
    try:
        # Opening a pipe would wait for whoever writes into it.
        if not path.is_file():
            return False
        with path.open("rb") as stream:
            return stream.read(132)[128:] == b"DICM"
    except OSError:
        return False


def subfolders(folder: Path) -> list[Path]:
    """Return the visible folders in a folder in natural order; none where it is no folder."""
    try:
        found = [p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(_HIDDEN)]
    except OSError:
        return []
    return sorted(found, key=lambda p: natural_key(p.name))


def images_below(folder: Path, *, deep: bool = True, unread: bool = False) -> list[Path]:
    """Return the image files in a folder, and below it when ``deep``, in natural order.

    Args:
        folder: Where to look; linked folders are looked into once all others are.
        deep: Look below it as well.
        unread: Return pictures of kinds that are not read, too.

    Raises:
        DisMixError: A name is not UTF-8, which neither a manifest nor a prediction can hold, or a
            folder cannot be looked into.
    """
    found = [
        path
        for path in _walked(folder, deep)
        if is_image(path.name) or is_bare_dicom(path) or (unread and is_unread(path.name))
    ]
    found.sort(key=lambda path: natural_key(path.relative_to(folder).as_posix()))
    refuse_undecodable(map(str, found))
    return found


def holds_images(folder: Path, *, deep: bool = True) -> bool:
    """Return whether :func:`images_below` would find one, looking no further.

    Raises:
        DisMixError: A folder cannot be looked into.
    """
    return any(is_image(path.name) or is_bare_dicom(path) for path in _walked(folder, deep))


def unread_below(folder: Path) -> list[Path]:
    """Return the pictures below a folder that are of kinds which are not read."""
    return [path for path in _walked(folder, True) if is_unread(path.name)]


def kinds_of(files: Iterable[Path]) -> str:
    """Return the endings of files, with how many there are of each.

    Example:
        >>> kinds_of([Path("a.gif"), Path("b.GIF"), Path("c.nii.gz")])
        '2 .gif, 1 .nii.gz'
    """
    names = [path.name.lower() for path in files]
    # The longest ending that fits: .nii.gz is no .gz.
    by_length = sorted(UNREAD_SUFFIXES, key=len, reverse=True)
    counts = Counter(next(s for s in by_length if name.endswith(s)) for name in names)
    return ", ".join(f"{count} {suffix}" for suffix, count in counts.most_common())


def _refuse_unreadable(error: OSError) -> None:
    """Raise for a folder that cannot be looked into: left out silently, it might be a grade."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise DisMixError(
            f"cannot be read ({error.strerror})",
            file=error.filename,
            cure="change its rights, or move it away",
        ) from error


def _walked(folder: Path, deep: bool) -> Iterator[Path]:
    """Yield files in the order of the disk; a folder with several names is looked into once."""
    seen: set[tuple[int, int]] = set()
    waiting = [folder]
    while waiting:
        # Links come last, so that a file has the name by which it is truly there.
        for parent, folders, names in os.walk(waiting.pop(0), onerror=_refuse_unreadable):
            place = os.stat(parent)
            if (place.st_dev, place.st_ino) in seen:
                folders.clear()
                continue
            seen.add((place.st_dev, place.st_ino))
            yield from (Path(parent, name) for name in names)
            folders[:] = [f for f in folders if deep and not f.startswith(_HIDDEN)]
            waiting += [Path(parent, f) for f in folders if Path(parent, f).is_symlink()]
