"""How much of their 16 bits grey files use: one scale for all fits what was exported alike.

Files say that they hold 16 bits, not how many of them are in use; two devices of one clinic may
differ in that. A device leaves a trace that photographs, however dark, do not: the brightest
values of its images end below one power of two, and between these and those of another device
there is nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Share of the pixels that may be brighter than the rest and mean nothing: dead pixels.
STRAY = 1e-4
#: Images of the lower depth: that many, and this share, at the least.
FEWEST, SHARE = 3, 0.1
#: Empty bits between two depths, and the images that each of them then needs. One empty bit (12
#: bits beside 14) parts a handful of photographs by chance as well.
GAPS = ((1, 8), (2, 1))
#: Share of the images that may lie between two depths.
BETWEEN = 0.02
#: Bits that devices have.
_USUAL = (8, 10, 12, 14, 16)


@dataclass(frozen=True)
class Depth:
    """What a 16-bit grey file holds, stray pixels left out.

    Args:
        top: Its greatest value.
        over: Share of its pixels above what the declared bits can hold.
    """

    top: int
    over: float = 0.0

    @property
    def bits(self) -> int:
        """Bits in use."""
        return self.top.bit_length()


SeeDepth = Callable[[Depth], None]


def depth_of(values: NDArray[np.integer[Any]], bits: int) -> Depth | None:
    """Return the depth of whole numbers from 0 to 65535, None of an even picture.

    Args:
        values: (H, W), as they are stored.
        bits: Bits that are said to be in use.

    Example:
        >>> depth_of(np.arange(8192).reshape(64, 128) // 2, bits=10)
        Depth(top=4095, over=0.75)
        >>> depth_of(np.array([[0, 0, 700], [0, 900, 65535]]), bits=10)
        Depth(top=900, over=0.0)
    """
    counts = np.bincount(values.ravel())
    if np.count_nonzero(counts) < 2:
        return None
    # How many pixels are brighter than each value.
    brighter = values.size - np.cumsum(counts)
    stray = max(1, int(STRAY * values.size))
    over = int(counts[2**bits :].sum())
    return Depth(int(np.argmax(brighter <= stray)), over / values.size if over > stray else 0.0)


def usual_bits(bits: int) -> int:
    """Return the depth of a device whose images use so many bits.

    Example:
        >>> usual_bits(11), usual_bits(12), usual_bits(13)
        (12, 12, 14)
    """
    return min(usual for usual in _USUAL if usual >= bits)


def lower_depth(depths: Sequence[Depth]) -> int | None:
    """Return the bits that some images keep to while the others use more, None if all are alike.

    Example:
        >>> lower_depth([Depth(4095)] * 18 + [Depth(65535)] * 6)
        12
        >>> lower_depth([Depth(round(65535 / 1.2**i)) for i in range(24)]) is None
        True
    """
    every = [depth.bits for depth in depths]
    used = np.array(every, dtype=np.int64)
    for bits in sorted(set(every)):
        low = used[used <= bits]
        # Of one device, most images come near to the most that it can hold.
        if len(low) < max(FEWEST, SHARE * len(used)) or np.mean(low == bits) < 0.5:
            continue
        for gap, images in GAPS:
            high = used[used > bits + gap]
            between = len(used) - len(low) - len(high)
            if min(len(low), len(high)) < images or between > BETWEEN * len(used):
                continue
            if np.mean(high == used.max()) >= 0.5:
                return bits
    return None


def depth_note(depths: Sequence[Depth], bits: int) -> str:
    """Return what to say of images that were decoded by a scale that does not fit, else nothing.

    Args:
        depths: Of the 16-bit grey ones.
        bits: Bits that were said to be in use.

    Example:
        >>> depth_note([Depth(4095)] * 8, 12)
        ''
        >>> depth_note([Depth(4095), Depth(65535, over=0.9)], 12)
        '1 of 2 16-bit images holds values above 4095, which bits=12 cuts off; ...'
    """
    over = sum(depth.over > 0 for depth in depths)
    low = lower_depth(depths)
    if over:
        said = over_text(over, len(depths), bits)
    elif low is not None:
        said = low_text(sum(depth.bits <= low for depth in depths), len(depths), low)
    else:
        return ""
    return f"{said}; `dismix data check MANIFEST` says which and what to do"


def over_text(count: int, total: int, bits: int) -> str:
    """Say how many images hold more than the declared bits."""
    hold = "holds" if count == 1 else "hold"
    held = f"{count} of {total} 16-bit images {hold} values above {2**bits - 1}"
    return f"{held}, which bits={bits} cuts off"


def low_text(count: int, total: int, bits: int) -> str:
    """Say how many images are of a lower depth than the others."""
    return f"{count} of {total} 16-bit images use at most {bits} bits, the others more"
