"""A chart of gains and their intervals in plain HTML: its text stays readable on a phone."""

import html
import math
from collections.abc import Sequence

from dismix.study.choices import Metric
from dismix.study.verdict import NAMES, Comparison
from dismix.study.words import bare, span


def forest(comparisons: Sequence[Comparison], metric: Metric, worth: float) -> str:
    """Return one row a comparison: interval, mean, and a ring for each fold.

    Args:
        comparisons: Gains; positive is better.
        metric: What was compared.
        worth: Smallest gain worth having, dotted.
    """
    low, high = _ends(comparisons, worth)

    def place(value: float) -> str:
        return f"{100 * (value - low) / (high - low):.2f}%"

    rows = []
    for one in comparisons:
        gain = one.gain
        width = f"{100 * (gain.high - gain.low) / (high - low):.2f}%"
        rings = "".join(f'<i class="fold" style="left:{place(v)}"></i>' for v in one.by_fold)
        title = f"{NAMES[one.mixer]} against {NAMES[one.against]}"
        rows.append(
            f'<div class="row t-{one.mixer}"><div class="says"><b>{html.escape(title)}</b>'
            f"<span>{html.escape(span(metric, one))}: {one.finding}</span></div>"
            f'<div class="track" role="img" aria-label="{html.escape(title)}">'
            f'<i class="worth" style="left:{place(worth)}"></i>'
            f'<i class="zero" style="left:{place(0)}"></i>'
            f'<i class="bar" style="left:{place(gain.low)};width:{width}"></i>'
            f'<i class="mean" style="left:{place(gain.mean)}"></i>{rings}</div></div>'
        )
    ticks = "".join(
        f'<span style="left:{place(v)}">{bare(metric, v, signed=v != 0)}</span>'
        for v in _ticks(low, high)
    )
    unit = f"<span>{html.escape(metric.gain_unit.strip())}</span>" if metric.gain_unit else ""
    return (
        f'<div class="forest">{"".join(rows)}<div class="axis">{ticks}</div>'
        f'<div class="sides"><span>\u2190 worse</span>{unit}<span>better \u2192</span></div></div>'
    )


def _ends(comparisons: Sequence[Comparison], worth: float) -> tuple[float, float]:
    values = [0.0, worth]
    for one in comparisons:
        values += [one.gain.low, one.gain.high, *one.by_fold]
    low, high = min(values), max(values)
    room = 0.08 * (high - low)
    return low - room, high + room


def _ticks(low: float, high: float) -> list[float]:
    """Return some round values between two ends, zero among them.

    Example:
        >>> _ticks(-0.06, 0.11)
        [-0.05, 0.0, 0.05, 0.1]
    """
    step = 10.0 ** math.floor(math.log10((high - low) / 2))
    for factor in (1, 2, 5, 10):
        if (high - low) / (factor * step) <= 5.5:
            step *= factor
            break
    first = math.ceil(low / step)
    last = math.floor(high / step)
    return [round(step * i, 10) for i in range(first, last + 1)]
