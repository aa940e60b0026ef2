"""Charts of a report as HTML and SVG: no scripts, no pictures, colours of the page."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from dismix.bench.report_study import Study, grader_name, mixer_name
from dismix.bench.tables import OURS
from dismix.bench.tables_costs import (
    OVERHEAD,
    Overhead,
    boundary_errors,
    boundary_settings,
    overheads,
    seconds_text,
    step_name,
    step_order,
)

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 560, 380, 56, 46, 18, 24


def boundary_bars(study: Study) -> str:
    """Return bars of the boundary errors, a card a step between grades."""
    parts = []
    for data, grader in boundary_settings(study):
        found = boundary_errors(study, data, grader)
        steps: dict[str, dict[str, float]] = {}
        for mixer, values in found.items():
            for step, value in values.items():
                steps.setdefault(step, {})[mixer] = value
        most = max(v for values in steps.values() for v in values.values()) or 1.0
        ordered = sorted(steps, key=step_order)
        cards = "".join(_bars(step_name(study, data, s), steps[s], most) for s in ordered)
        title = f"{study.data_name(data)}, {grader_name(grader)}"
        parts.append(f'<h3>{escape(title)}</h3><div class="cards">{cards}</div>')
    return f'<div class="wide">{"".join(parts)}</div>'


def _bars(words: str, values: Mapping[str, float], most: float) -> str:
    least = min(values.values())
    rows = []
    for mixer, value in values.items():
        kind = "bar ours" if mixer == OURS else "bar"
        number = f"<b>{100 * value:.1f}</b>" if value == least else f"{100 * value:.1f}"
        rows.append(
            f'<div class="{kind}"><span>{escape(mixer_name(mixer))}</span>'
            f'<i style="--w:{value / most:.4f}"></i><em>{number}</em></div>'
        )
    return f'<figure class="card"><figcaption>grades {escape(words)}</figcaption>' + (
        "".join(rows) + "</figure>"
    )


def overhead_settings(study: Study) -> tuple[str, str, list[Overhead]]:
    """Return the setting of the overhead figure and its points: GOL on IDRiD, else the first."""
    points = [o for o in overheads(study) if o.accuracy is not None]
    places = {(o.data, o.grader): None for o in points}
    if not places:
        return "", "", []
    data, grader = OVERHEAD if OVERHEAD in places else next(iter(places))
    # One point a mixer: under the usual condition, which comes first, where that was timed.
    first: dict[str, Overhead] = {}
    for o in points:
        if (o.data, o.grader) == (data, grader):
            first.setdefault(o.mixer, o)
    return data, grader, [*first.values()]


def overhead_scatter(study: Study) -> str:
    """Return accuracy against extra training time as SVG, "" where nothing is known."""
    data, grader, points = overhead_settings(study)
    if len(points) < 2:
        return ""
    accuracies = [100 * o.accuracy for o in points if o.accuracy is not None]
    low, high = min(accuracies), max(accuracies)
    pad = max(0.5, 0.12 * (high - low))
    low, high = low - pad, high + pad
    right = _squeeze(max(10.0, *(o.percent for o in points)) * 1.25)

    def place(percent: float, accuracy: float) -> tuple[float, float]:
        x = _LEFT + _squeeze(percent) / right * (_WIDTH - _LEFT - _RIGHT)
        y = _TOP + (high - accuracy) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)
        return x, y

    marks = _axes(place, low, high, right)
    spots = {o.mixer: place(o.percent, 100 * (o.accuracy or 0)) for o in points}
    taken = [_Box(x - 7, y - 7, x + 7, y + 7) for x, y in spots.values()]
    for o in sorted(points, key=lambda o: o.mixer != OURS):
        marks.append(_point(o, *spots[o.mixer], taken))
    title = f"Accuracy against extra training time: {grader_name(grader)} on "
    title += study.data_name(data)
    return (
        f'<figure class="chart"><figcaption>{escape(title)}</figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{''.join(marks)}</svg></figure>"
    )


def _squeeze(percent: float) -> float:
    """Return a place on an axis that shows 0, 10 and 1000 per cent apart."""
    return math.copysign(math.log10(1 + abs(percent) / 10), percent) if percent > -5 else -0.18


def _axes(place: Any, low: float, high: float, right: float) -> list[str]:
    bottom = _HEIGHT - _BOTTOM
    marks = []
    for percent in (0, 10, 30, 100, 300, 1000, 3000, 10000):
        if _squeeze(percent) > right:
            break
        x, _ = place(percent, low)
        marks.append(
            f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>'
            f'<text x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{percent} %</text>'
        )
    step = next((s for s in (0.5, 1, 2, 5, 10, 20) if (high - low) / s <= 7), 50)
    tick = math.ceil(low / step) * step
    while tick <= high:
        _, y = place(0, tick)
        marks.append(
            f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
            f'<text x="{_LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
        )
        tick += step
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    marks.append(
        f'<text x="{middle:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">'
        "training time beyond that without mixing</text>"
        f'<text transform="translate(14 {(_TOP + bottom) / 2:.0f}) rotate(-90)"'
        ' text-anchor="middle">accuracy (%)</text>'
    )
    return marks


class _Box(NamedTuple):
    """Room taken by a dot or a label."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "_Box") -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


def _label_room(x: float, y: float, width: float, taken: list[_Box]) -> _Box:
    """Return the nearest free place for a label beside a dot."""
    edges = _Box(_LEFT, 2, _WIDTH - 2, _HEIGHT - _BOTTOM)
    first = _Box(x + 9, y - 8, x + 9 + width, y + 7)
    for away in range(0, 90, 6):
        for left, top in (
            (x + 9, y - 8 - away), (x + 9, y - 8 + away), (x - 9 - width, y - 8 - away),
            (x - 9 - width, y - 8 + away), (x - width / 2, y - 24 - away),
            (x - width / 2, y + 9 + away),
        ):  # fmt: skip
            box = _Box(left, top, left + width, top + 15)
            inside = box.left > edges.left and box.right < edges.right and box.top > edges.top
            if inside and box.bottom < edges.bottom and not any(box.meets(b) for b in taken):
                return box
    return first


def _point(o: Overhead, x: float, y: float, taken: list[_Box]) -> str:
    label = name = mixer_name(o.mixer)
    if o.generator_s is not None:
        label += f" (+ {seconds_text(o.generator_s)} generator, once)"
    box = _label_room(x, y, 7.3 * len(label), taken)
    taken.append(box)
    kind = "dot ours" if o.mixer == OURS else "dot"
    told = f"{name}: {100 * (o.accuracy or 0):.2f} %, {o.percent:+.0f} % time"
    return (
        f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{6 if o.mixer == OURS else 5}">'
        f"<title>{escape(told)}</title></circle>"
        f'<text class="{kind}" x="{(box.left + box.right) / 2:.1f}" y="{box.bottom - 3:.1f}"'
        f' text-anchor="middle">{escape(label)}</text>'
    )


def feature_panels(content: Mapping[str, Any]) -> str:
    """Return a panel a mixer: its images among the original ones, coloured by rank.

    Args:
        content: What `dismix.bench.figures.make_feature_map` writes.
    """
    panels: Sequence[Mapping[str, Any]] = content["panels"]
    points = [point for panel in panels for point in panel["points"]]
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    # Distances in a t-SNE have no unit: each axis fills its side.
    wide, high = (max(xs) - min(xs)) or 1.0, (max(ys) - min(ys)) or 1.0
    top = max(1, int(content["ranks"]) - 1)

    def spots(panel: Mapping[str, Any], faint: bool) -> str:
        drawn = []
        for (x, y), rank in zip(panel["points"], panel["rank"], strict=True):
            cx, cy = 8 + 204 * (x - min(xs)) / wide, 8 + 204 * (y - min(ys)) / high
            style = "" if faint else f' style="fill:{rank_colour(rank / top)}"'
            drawn.append(f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="{2 if faint else 3}"{style}/>')
        return f'<g class="{"faint" if faint else "spots"}">{"".join(drawn)}</g>'

    original = next((p for p in panels if p["name"] == "original"), panels[0])
    figures = []
    for panel in panels:
        name = panel["name"]
        words = "original images" if name == "original" else mixer_name(str(name))
        back = "" if panel is original else spots(original, True)
        figures.append(
            f'<figure class="card panel"><figcaption>{escape(words)}</figcaption>'
            f'<svg viewBox="0 0 220 220" role="img" aria-label="{escape(words)}">'
            f"{back}{spots(panel, False)}</svg></figure>"
        )
    scale = "".join(f'<i style="background:{rank_colour(k / 8)}"></i>' for k in range(9))
    # Figures of before names were kept have positions only.
    low, high = (escape(str(n)) for n in content.get("names") or ("rank 0", f"rank {top}"))
    legend = f'<p class="legend">{low} <span class="ramp">{scale}</span> {high}</p>'
    return f'<div class="wide"><div class="cards panels">{"".join(figures)}</div>{legend}</div>'


def rank_colour(share: float) -> str:
    """Return blue for low, red for high ranks, through a pale grey.

    Example:
        >>> rank_colour(0), rank_colour(0.5), rank_colour(1)
        ('#3b4cc0', '#b9b6b2', '#b40426')
    """
    ends = ((0x3B, 0x4C, 0xC0), (0xB9, 0xB6, 0xB2), (0xB4, 0x04, 0x26))
    share = min(1.0, max(0.0, share))
    part = 2 * share if share < 0.5 else 2 * share - 1
    low, high = ends[:2] if share < 0.5 else ends[1:]
    mixed = (round(a + part * (b - a)) for a, b in zip(low, high, strict=True))
    return "#" + "".join(f"{c:02x}" for c in mixed)
