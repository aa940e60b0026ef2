"""Whether images are grey, found by looking at some of them, where nobody said it.

X-rays exported with three equal channels, or not marked as grey, would be learned as colour, and
a generator would give its pictures faint tints.
"""

from dataclasses import replace

from dismix.data.draws import drawn_order, image_keys
from dismix.data.looks import look_at_all
from dismix.data.manifest import Manifest

#: Images that are looked at; smaller data sets are seen whole. If every tenth image or more is in
#: colour, 99 of 100 such draws have one of them.
LOOKS = 48
#: Read at a time: the first colour ends it.
_AT_ONCE = 8


def with_grey_found(manifest: Manifest) -> Manifest:
    """Return a manifest marked as grey, with a note that says so, if all images looked at are.

    The images are drawn by their names: their order makes no difference. Those that cannot be
    read say nothing.
    """
    paths = sorted({*manifest.image_paths})
    order = drawn_order(image_keys(paths), seed=0, purpose="grey")[:LOOKS]
    drawn = [paths[number] for number in order]
    seen = 0
    for start in range(0, len(drawn), _AT_ONCE):
        looks = look_at_all(drawn[start : start + _AT_ONCE], bits=manifest.meta.bits)
        channels = [look.channels for look in looks if look.error is None]
        if 3 in channels:
            return manifest
        seen += len(channels)
    if not seen:
        return manifest
    found = "all images are" if seen == len(paths) else f"all {seen} images looked at are"
    note = f"{found} grey and keep one channel (--set grey=false reads them as colour)"
    notes = "; ".join(part for part in (manifest.meta.notes, note) if part)
    return replace(manifest, meta=replace(manifest.meta, grey=True, notes=notes))
