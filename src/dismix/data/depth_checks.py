"""Checks of brightness: images that show nothing, and bits in use that are not those declared."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dismix.data.depth import Depth, low_text, lower_depth, over_text, usual_bits
from dismix.data.findings import Finding
from dismix.data.looks import Look
from dismix.data.rank_names import rank_label
from dismix.data.table_checks import Sheet

#: Brightest grey level of 255, over all images, below which the data set is called dark: that of
#: 14-bit data in 16-bit files.
DARK = 64
#: So rarely would chance alone let depth and grade go together as they do.
RARE = 0.01
_SET_BITS = "`dismix data import ... --set bits={}`"
_ONE_SCALE = "export all images by one scale"


def level_findings(
    sheet: Sheet, names: Sequence[str], rows: Sequence[int], looks: Sequence[Look]
) -> Iterator[Finding]:
    """Say which images show nothing, are cut off or scaled unlike others, and that all are dark.

    Args:
        sheet: What is checked.
        names: Images of all its rows.
        rows: Rows of the images that were looked at, K.
        looks: What was seen of them, K.
    """
    spans = {r: look.span for r, look in zip(rows, looks, strict=True) if look.span is not None}
    blank = [r for r, (low, high) in spans.items() if low == high]
    if blank:
        lines = tuple(int(sheet.lines[r]) for r in blank)
        yield Finding(
            "warning", "blank-image",
            f"{len(blank)} of {len(spans)} images show one even grey; the first is row"
            f" {lines[0]}: {names[blank[0]]}",
            lines, tuple(names[r] for r in blank),
            "export them again (a DICOM window may be wrong), or drop the rows",
        )  # fmt: skip
    # Images of 8 bits have a scale of their own, and DICOM files say theirs.
    deep = {r: look.depth for r, look in zip(rows, looks, strict=True) if look.depth is not None}
    low = lower_depth([*deep.values()])
    yield from _over_findings(sheet, names, deep, mixed=low is not None)
    if low is not None:
        yield _mixed_finding(sheet, names, deep, low)
    yield from _dark_findings(sheet, spans, deep)


def _bits(sheet: Sheet) -> int:
    return 16 if sheet.meta is None else sheet.meta.bits


def _over_findings(
    sheet: Sheet, names: Sequence[str], deep: Mapping[int, Depth], *, mixed: bool
) -> Iterator[Finding]:
    over = [r for r, depth in deep.items() if depth.over > 0]
    if not over:
        return
    lines = tuple(int(sheet.lines[r]) for r in over)
    worst = max(deep[r].over for r in over)
    right = usual_bits(max(depth.bits for depth in deep.values()))
    cure = f"they want {_SET_BITS.format(right)}"
    if mixed:
        cure = f"{_ONE_SCALE}: with --set bits={right} the others would be dark"
    yield Finding(
        "warning", "beyond-bits",
        f"{over_text(len(over), len(deep), _bits(sheet))} ({_percent(worst)} % of the pixels at"
        f" worst); the first is row {lines[0]}: {names[over[0]]}",
        lines, tuple(names[r] for r in over), cure,
    )  # fmt: skip


def _percent(share: float) -> str:
    """Return a share in per cent, never rounded to none or all.

    Example:
        >>> _percent(0.99949), _percent(0.0004), _percent(0.123), _percent(1.0)
        ('99.9', '0.1', '12.3', '100')
    """
    return "100" if share == 1 else f"{min(max(100 * share, 0.1), 99.9):.1f}"


def _mixed_finding(
    sheet: Sheet, names: Sequence[str], deep: Mapping[int, Depth], bits: int
) -> Finding:
    """Return the finding on images of two depths, the lower one of which is ``bits``."""
    low = [r for r, depth in deep.items() if depth.bits <= bits]
    high = [r for r, depth in deep.items() if depth.bits > bits]
    firsts = " and ".join(f"row {sheet.lines[rows[0]]}: {names[rows[0]]}" for rows in (low, high))
    few = low if len(low) <= len(high) else high
    return Finding(
        "warning", "mixed-depth",
        f"{low_text(len(low), len(deep), bits)}; the first of each are {firsts}"
        f"{_grade_text(sheet, low, high)}",
        tuple(int(sheet.lines[r]) for r in few), tuple(names[r] for r in few),
        f"{_ONE_SCALE}, or scale the values of some; a depth that goes with the grade is a leak",
    )  # fmt: skip


def _grade_text(sheet: Sheet, low: Sequence[int], high: Sequence[int]) -> str:
    """Return which ranks have how many images of the lower depth, if chance would hardly do so."""
    counts = np.zeros((2, len(sheet.ranks)), np.int64)
    for depth, rows in enumerate((low, high)):
        labels = sheet.labels[list(rows)]
        np.add.at(counts[depth], labels[~np.isnan(labels)].astype(np.int64), 1)
    total = counts.sum(axis=0)
    seen = np.flatnonzero(total).tolist()
    if len(seen) < 2 or not counts.any(axis=1).all():
        return ""
    # Slow to import, and seldom asked.
    from scipy.stats import chi2_contingency

    if chi2_contingency(counts[:, seen]).pvalue >= RARE:
        return ""
    shares = [f"{counts[0, c]} of {total[c]} in rank {rank_label(c, sheet.ranks)}" for c in seen]
    return "; depth goes with the grade (of the lower one are " + ", ".join(shares) + ")"


def _dark_findings(
    sheet: Sheet, spans: Mapping[int, tuple[int, int]], deep: Mapping[int, Depth]
) -> Iterator[Finding]:
    if _bits(sheet) != 16 or not spans:
        return
    # By 16-bit images where there are any: of others one is bright soon, and says nothing of them.
    tops = [255 * depth.top / 65535 for depth in deep.values()]
    brightest = max(tops or [high for _, high in spans.values()])
    if brightest < DARK:
        kind = "16-bit image" if 0 < len(deep) < len(spans) else "image"
        bits = usual_bits(max((depth.bits for depth in deep.values()), default=12))
        yield Finding(
            "warning", "dark-images",
            f"no {kind} is brighter than {100 * brightest / 255:.0f} % of white",
            cure=f"{bits}-bit data in 16-bit files want {_SET_BITS.format(bits)}",
        )  # fmt: skip
