"""Whether images are grey, found by looking at some of them.

X-rays exported with three equal channels, or not marked as grey, would be learned as colour, and
a generator would give its pictures faint tints. A model that learned grey images reads colour ones
as grey, and says of eyes what it knows of knees.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dismix.data.depth import over_text
from dismix.data.draws import drawn_order, image_keys
from dismix.data.looks import Look, look_at_all
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
    for looks in _looks(manifest.image_paths, manifest.meta.bits, LOOKS):
        if any(look.channels == 3 for look in looks):
            return manifest
        seen += len(looks)
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

    Those are images mostly in colour for one that reads grey, grey ones alone for one that reads
    colour, and those of more bits than it reads.

    Args:
        paths: Of N images, some of which are looked at.
        grey: Whether the grader's training images were read as grey.
        bits: Bits in use of 16-bit grey files.
    """
    looks = [look for some in _looks(paths, bits, FEW_LOOKS) for look in some]
    depths = [look.depth for look in looks if look.depth is not None]
    if beyond := sum(depth.over > 0 for depth in depths):
        return (
            f"{over_text(beyond, len(depths), bits)}, as the grader's training images were read: it"
            " does not see what is brighter; export images by the scale of those"
        )
    seen, colour = len(looks), sum(look.channels == 3 for look in looks)
    if not seen or (2 * colour <= seen if grey else colour):
        return ""
    count = f"{colour if grey else seen} of {seen} images looked at"
    kind, learned = ("in colour", "grey") if grey else ("grey", "colour")
    return (
        f"{count} are {kind}, the grader's training images were read as {learned}: of pictures of"
        " another kind than these its grades mean nothing"
    )


def _looks(paths: Sequence[Path], bits: int, most: int) -> Iterator[list[Look]]:
    """Yield looks at images drawn by their names, some at a time; none at unreadable ones."""
    files = sorted({*paths})
    order = drawn_order(image_keys(files), seed=0, purpose="grey")[:most]
    for start in range(0, len(order), _AT_ONCE):
        some = [files[number] for number in order[start : start + _AT_ONCE]]
        yield [look for look in look_at_all(some, bits=bits) if look.error is None]
