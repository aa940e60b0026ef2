"""Small charts of the demo's page, as SVG that takes the page's colours."""

from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 360, 230, 46, 40


def control_chart(at_ranks: Sequence[float], title: str) -> str:
    """Draw the severity that pictures show against the rank that was asked for.

    Args:
        at_ranks: Mean measured severity at ranks 0..C-1.
        title: Told to those who cannot see it.

    Example:
        >>> control_chart([0.0, 1.1, 2.0], "control").count("<circle")
        3
    """
    top = len(at_ranks) - 1
    low, high = min(0.0, *at_ranks), max(float(top), *at_ranks)
    x = _Scale(0, top, _LEFT, _WIDTH - 14)
    y = _Scale(low, high, _HEIGHT - _BOTTOM, 14)
    grid = "".join(
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 14}" y1="{y(r):.1f}" y2="{y(r):.1f}"/>'
        f'<text x="{_LEFT - 8}" y="{y(r) + 4:.1f}" text-anchor="end">{r}</text>'
        f'<text x="{x(r):.1f}" y="{_HEIGHT - 20}" text-anchor="middle">{r}</text>'
        for r in range(top + 1)
    )
    right = f'<line class="right" x1="{x(0)}" y1="{y(0)}" x2="{x(top)}" y2="{y(top)}"/>'
    points = " ".join(f"{x(r):.1f},{y(v):.1f}" for r, v in enumerate(at_ranks))
    dots = "".join(
        f'<circle class="dot ours" cx="{x(r):.1f}" cy="{y(v):.1f}" r="5"><title>asked {r}, shown'
        f" {v:.2f}</title></circle>"
        for r, v in enumerate(at_ranks)
    )
    axes = (
        f'<text x="{(_LEFT + _WIDTH) / 2}" y="{_HEIGHT - 4}" text-anchor="middle">rank asked for'
        f'</text><text transform="translate(12 {_HEIGHT / 2 - 10}) rotate(-90)"'
        ' text-anchor="middle">severity measured</text>'
    )
    return _svg(title, f'{grid}{right}<polyline class="ours" points="{points}"/>{dots}{axes}')


def dot_chart(groups: Mapping[str, Mapping[str, Sequence[float]]], title: str) -> str:
    """Draw one dot a run, in per cent: a block a grader, a row a mixer, a bar at the mean.

    Args:
        groups: Grader -> mixer -> values of the seeds, shares of one.
        title: Told to those who cannot see it.
    """
    values = [100 * v for rows in groups.values() for found in rows.values() for v in found]
    low, high = 10 * (min(values) // 10), 10 * -(-max(values) // 10)
    high = high if high > low else low + 10
    x, row, left, top = _Scale(low, high, 130, _WIDTH + 106), 26, 122, 10
    parts, place = [], float(top)
    for grader, rows in groups.items():
        parts.append(f'<text class="group" x="0" y="{place + 14}">{escape(grader)}</text>')
        for mixer, found in rows.items():
            middle = place + row / 2
            kind = "ours" if mixer == "DisMix" else "other"
            mean = 100 * sum(found) / len(found)
            parts.append(
                f'<text x="{left}" y="{middle + 4}" text-anchor="end">{escape(mixer)}</text>'
                f'<line class="mean {kind}" x1="{x(mean):.1f}" x2="{x(mean):.1f}"'
                f' y1="{middle - 9}" y2="{middle + 9}"/>'
            )
            parts += [
                f'<circle class="dot {kind}" cx="{x(100 * v):.1f}" cy="{middle}" r="4.5">'
                f"<title>{mixer}: {100 * v:.1f} %</title></circle>"
                for v in found
            ]
            place += row
        place += 12
    ticks = range(round(low), round(high) + 1, 10)
    grid = "".join(
        f'<line class="grid" x1="{x(t):.1f}" x2="{x(t):.1f}" y1="{top}" y2="{place - 8}"/>'
        f'<text x="{x(t):.1f}" y="{place + 8}" text-anchor="middle">{t} %</text>'
        for t in ticks
    )
    return _svg(title, grid + "".join(parts), _WIDTH + 120, round(place + 14))


class _Scale:
    """Maps values to places."""

    def __init__(self, low: float, high: float, start: float, stop: float) -> None:
        self.low, self.start = low, start
        self.step = (stop - start) / ((high - low) or 1.0)

    def __call__(self, value: float) -> float:
        return round(self.start + (value - self.low) * self.step, 1)


def _svg(title: str, inner: str, width: int = _WIDTH, height: int = _HEIGHT) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img"'
        f' aria-label="{escape(title)}">{inner}</svg>'
    )
