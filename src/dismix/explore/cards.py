"""Pieces of HTML: pictures with captions, laws as bars, points with hover. No scripts.

Every text that comes from outside is escaped here.
"""

import html
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dismix.explore.pictures import as_image, data_uri, png
from dismix.explore.subject import rank_title

#: Above so many ranks only the likely ones are listed.
_ALL_RANKS = 7
_LOW, _MIDDLE, _HIGH = (59, 102, 176), (150, 150, 158), (184, 62, 62)


def safe(text: str) -> str:
    """Escape text for HTML, and for the templates that the page's library fills with it.

    Example:
        >>> safe('<b>"{{x}}" ${y}')
        '&lt;b&gt;&quot;&#123;&#123;x&#125;&#125;&quot; &#36;&#123;y&#125;'
    """
    escaped = html.escape(text)
    for sign in "{}$`":
        escaped = escaped.replace(sign, f"&#{ord(sign)};")
    return escaped


def rank_colour(rank: float, num_ranks: int) -> str:
    """Return blue for the lowest rank, grey between, red for the highest.

    Example:
        >>> rank_colour(0, 5), rank_colour(4, 5)
        ('rgb(59,102,176)', 'rgb(184,62,62)')
    """
    place = 2 * rank / max(1, num_ranks - 1)
    low, high = (_LOW, _MIDDLE) if place <= 1 else (_MIDDLE, _HIGH)
    share = place if place <= 1 else place - 1
    mixed = (round(a + share * (b - a)) for a, b in zip(low, high, strict=True))
    return f"rgb({','.join(map(str, mixed))})"


def picture(pixels: Tensor, text: str) -> str:
    """Return an embedded picture (channels, H, W) with an alternative text."""
    source = data_uri(png(as_image(pixels)))
    return f'<img class="dx-pic" alt="{safe(text)}" src="{source}">'


def law_bars(title: str, law: Sequence[float], names: tuple[str, ...]) -> str:
    """Return shares of the ranks as bars with their names.

    Args:
        title: Who says so.
        law: C shares.
        names: C names.
    """
    shown = [*range(len(law))]
    if len(law) > _ALL_RANKS:
        likely = sorted(shown, key=lambda rank: -law[rank])[:5]
        shown = sorted(rank for rank in likely if law[rank] >= 0.005)
    rows = "".join(
        f'<div class="dx-bar"><span class="dx-name">{safe(rank_title(rank, names))}</span>'
        f'<span class="dx-track"><i style="width:{100 * law[rank]:.1f}%;'
        f'background:{rank_colour(rank, len(law))}"></i></span>'
        f'<span class="dx-share">{100 * law[rank]:.0f} %</span></div>'
        for rank in shown
    )
    return f'<div class="dx-law"><div class="dx-who">{safe(title)}</div>{rows}</div>'


def small_law(title: str, law: Sequence[float], names: tuple[str, ...]) -> str:
    """Return shares of the ranks as upright bars, and the likeliest rank in words.

    Args:
        title: Who says so.
        law: C shares.
        names: C names.
    """
    best = max(range(len(law)), key=law.__getitem__)
    columns = "".join(
        f'<i title="{safe(rank_title(rank, names))}: {100 * share:.0f} %" style="height:'
        f'{max(3.0, 100 * share):.0f}%;background:{rank_colour(rank, len(law))}"></i>'
        for rank, share in enumerate(law)
    )
    said = f"{title}: {rank_title(best, names)}, {100 * law[best]:.0f} %"
    return (
        f'<div class="dx-law"><div class="dx-cols">{columns}</div>'
        f'<div class="dx-who">{safe(said)}</div></div>'
    )


def card(pixels: Tensor, title: str, note: str = "", below: str = "", *, kind: str = "") -> str:
    """Return a picture with a title, a note and further pieces below.

    Args:
        pixels: (channels, H, W) uint8.
        title: Plain text.
        note: Plain text.
        below: HTML made by this module.
        kind: "made" or "chosen", for the frame.
    """
    return (
        f'<figure class="dx-card {kind}">{picture(pixels, title)}'
        f"<figcaption><b>{safe(title)}</b>"
        f'<span class="dx-note">{safe(note)}</span>{below}</figcaption></figure>'
    )


def row(*cards: str, kind: str = "") -> str:
    """Lay cards out side by side; they wrap on narrow screens.

    Args:
        *cards: From `card`.
        kind: "dx-small", "dx-six" or "dx-strip" (one line, however many).
    """
    return f'<div class="dx-row {kind}">{"".join(cards)}</div>'


def heading(text: str, explanation: str = "") -> str:
    """Return a heading with a sentence that explains it."""
    lead = f"<p>{safe(explanation)}</p>" if explanation else ""
    return f'<div class="dx-head"><h3>{safe(text)}</h3>{lead}</div>'


def notice(text: str, kind: str = "info") -> str:
    """Return a box with a message: "info", "warn" or "error"."""
    role = "alert" if kind == "error" else "note"
    return f'<div class="dx-box {kind}" role="{role}">{safe(text)}</div>'


def download(content: bytes, kind: str, file: str, text: str) -> str:
    """Return a link that saves content as a file; nothing is stored on the server."""
    return (
        f'<a class="dx-save" download="{safe(file)}"'
        f' href="{data_uri(content, kind)}">{safe(text)}</a>'
    )


def bars(counts: NDArray[np.int64], title: str) -> str:
    """Return a chart of numbers, sorted, as an SVG: how evenly codes are used."""
    values = np.sort(counts)[::-1].astype(float)
    values = values[values > 0]
    # One bar a pixel is all the eye can tell apart.
    groups = np.array_split(values, min(len(values), 240))
    heights = [float(group.mean()) for group in groups]
    most, width = max(heights), 480 / len(heights)
    shapes = "".join(
        f'<rect x="{i * width:.2f}" y="{110 - 100 * h / most:.2f}" width="{width * 0.9:.2f}"'
        f' height="{100 * h / most:.2f}"/>'
        for i, h in enumerate(heights)
    )
    label = safe(title)
    return (
        f'<svg class="dx-bars" viewBox="0 0 480 112" role="img" aria-label="{label}"'
        f' preserveAspectRatio="none">{shapes}</svg>'
    )


def scatter(
    points: NDArray[np.float64],
    ranks: NDArray[np.int64],
    names: tuple[str, ...],
    hover: Sequence[tuple[str, Tensor]],
    title: str,
) -> str:
    """Return points coloured by rank; hovering over one shows its image beside them.

    Args:
        points: (N, 2).
        ranks: (N,).
        names: C names.
        hover: Title and image (channels, H, W) of each point.
        title: Above the plot.
    """
    low, high = points.min(0), points.max(0)
    places = 14 + 372 * (points - low) / np.maximum(high - low, 1e-9)
    groups = []
    for (x, y), rank, (text, pixels) in zip(places, ranks, hover, strict=True):
        small = as_image(pixels)
        small.thumbnail((64, 64))
        label = safe(text)
        lines = "".join(
            f'<text x="408" y="{182 + 15 * line}">{safe(part[:22])}</text>'
            for line, part in enumerate(text.split(", ", 1))
        )
        groups.append(
            f'<g class="dx-pt" tabindex="-1"><circle cx="{x:.1f}" cy="{y:.1f}" r="5"'
            f' fill="{rank_colour(float(rank), len(names))}"><title>{label}</title></circle>'
            f'<g class="dx-tip"><image x="408" y="14" width="150" height="150"'
            f' href="{data_uri(png(small))}"/>{lines}</g></g>'
        )
    key = "".join(
        f'<circle cx="416" cy="{232 + 18 * place}" r="5" fill="{rank_colour(rank, len(names))}"/>'
        f'<text x="428" y="{236 + 18 * place}">{safe(rank_title(rank, names))}</text>'
        for place, rank in enumerate(_key_ranks(len(names)))
    )
    return (
        f'<figure class="dx-map"><figcaption><b>{safe(title)}</b></figcaption>'
        f'<svg viewBox="0 0 570 400" role="img" aria-label="{safe(title)}">'
        '<rect class="dx-plane" x="1" y="1" width="398" height="398" rx="6"/>'
        '<rect class="dx-plane" x="408" y="14" width="150" height="150" rx="4"/>'
        '<text class="dx-hint" x="483" y="92" text-anchor="middle">point at a dot</text>'
        f"{key}{''.join(groups)}</svg></figure>"
    )


def _key_ranks(num_ranks: int) -> list[int]:
    """Return the ranks that a legend names: all, or about ten of many."""
    step = -(-num_ranks // 10)
    return [*range(0, num_ranks, step)]
