"""Whether images are grey, found by looking at some of them.

X-rays exported with three equal channels, or not marked as grey, would be learned as colour, and
a generator would give its pictures faint tints. A model that learned grey images reads colour ones
as grey, and says of eyes what it knows of knees.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dismix.data.draws import drawn_order, image_keys
from dismix.data.looks import look_at_all
from dismix.data.manifest import Manifest

#: Images that are looked at; smaller data sets are seen whole. If every tenth image or more is in
#: colour, 99 of 100 such draws have one of them.
LOOKS = 48
#: So many tell that pictures are of another kind altogether.
FEW_LOOKS = 16
#: Read at a time: the first colour ends it.
_AT_ONCE = 8


def with_grey_found(manifest: Manifest) -> Manifest:
    """Return a manifest marked as grey, with a note that says so, if all images looked at are.

    The images are drawn by their names: their order makes no difference. Those that cannot be
    read say nothing.
    """
    seen = 0
    for channels in _channels(manifest.image_paths, manifest.meta.bits, LOOKS):
        if 3 in channels:
            return manifest
        seen += len(channels)
    if not seen:
        return manifest
    found = (
        "all images are"
        if seen == len({*manifest.image_paths})
        else f"all {seen} images looked at are"
    )
    note = f"{found} grey and keep one channel (--set grey=false reads them as colour)"
    notes = "; ".join(part for part in (manifest.meta.notes, note) if part)
    return replace(manifest, meta=replace(manifest.meta, grey=True, notes=notes))


def other_kind_note(paths: Sequence[Path], *, grey: bool, bits: int) -> str:
    """Return what to say of images that a grader seems not to be made for, else nothing.

    Those are images mostly in colour for one that reads grey, and grey ones alone for one that
    reads colour.

    Args:
        paths: Of N images, some of which are looked at.
        grey: Whether the grader's training images were read as grey.
        bits: Bits in use of 16-bit grey files.
    """
    channels = [one for some in _channels(paths, bits, FEW_LOOKS) for one in some]
    seen, colour = len(channels), channels.count(3)
    if not seen or (2 * colour <= seen if grey else colour):
        return ""
    count = f"{colour if grey else seen} of {seen} images looked at"
    kind, learned = ("in colour", "grey") if grey else ("grey", "colour")
    return (
        f"{count} are {kind}, the grader's training images were read as {learned}: of pictures of"
        " another kind than these its grades mean nothing"
    )


def _channels(paths: Sequence[Path], bits: int, most: int) -> Iterator[list[int]]:
    """Yield 1 (grey) or 3 for images drawn by their names, some at a time."""
    files = sorted({*paths})
    order = drawn_order(image_keys(files), seed=0, purpose="grey")[:most]
    for start in range(0, len(order), _AT_ONCE):
        some = [files[number] for number in order[start : start + _AT_ONCE]]
        looks = look_at_all(some, bits=bits)
        yield [look.channels for look in looks if look.error is None]
