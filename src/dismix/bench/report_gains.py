"""What a mixer gains on each other one, drawn: the main table at a glance, with its doubt.

Gains are those of runs on the same seeds (and folds), so what a seed alone makes better or worse
is not in them. Lines reach one standard error to each side; one seed has none, and its dot is
hollow.
"""

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from dismix.bench.report_study import Study, grader_name, mixer_name
from dismix.bench.tables import METRICS, Cell, Metric, Table
from dismix.bench.tables_statistics import NONE, baselines, focus

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM, _ROW, _GAP = 560, 176, 24, 30, 34, 16, 8
# In a page these are its own colours; in a file of its own they are the fallbacks.
_INK, _SOFT, _LINE = "var(--ink,#1b1f27)", "var(--soft,#5b6473)", "var(--line,#d9dee6)"
_PAPER, _UP, _DOWN = "var(--paper,#fff)", "var(--up,#2563eb)", "var(--down,#dc2626)"


class Gain(NamedTuple):
    """What one mixer gains on another one with one grader.

    Attributes:
        data: Data set.
        grader: Its name.
        against: The other mixer.
        mean: Over the repeats that both have, in the unit of the report; more is better.
        error: Standard error of that mean, None of one repeat.
        repeats: How many.
        ids: Of the runs behind it.
    """

    data: str
    grader: str
    against: str
    mean: float
    error: float | None
    repeats: int
    ids: tuple[str, ...] = ()


def gains(study: Study, metric: Metric) -> list[Gain]:
    """Return what the mixer of interest gains, in the order of the main table."""
    ours = focus(study)
    others = [NONE, *baselines(study, ours)]
    found = []
    for data in study.data():
        for grader in study.graders(data):
            mine = study.key(data, grader, ours)
            for other in others:
                theirs = study.key(data, grader, other)
                values = study.seed_gains(mine, theirs, metric.key, higher=metric.higher)
                if not len(values):
                    continue
                values, count = metric.scale * values, len(values)
                error = float(values.std(ddof=1)) / math.sqrt(count) if count > 1 else None
                ids = study.paired_ids(mine, theirs, metric.key)
                found.append(Gain(data, grader, other, float(values.mean()), error, count, ids))
    return found


def gains_table(study: Study) -> Table:
    """Return the gains as a table, a row for each grader and other mixer."""
    found = [{gain[:3]: gain for gain in gains(study, metric)} for metric in METRICS]
    rows = []
    for place, gain in found[0].items():
        cells = [
            _number(metric, own.get(place)) for metric, own in zip(METRICS, found, strict=True)
        ]
        names = (study.data_name(gain.data), grader_name(gain.grader), mixer_name(gain.against))
        rows.append(
            (*(Cell(name) for name in names), Cell(str(gain.repeats), gain.repeats), *cells)
        )
    return Table(
        "gains", f"Gains of {mixer_name(focus(study))} with the same {study.repeats}",
        ("data set", "grader", "against", study.repeats, "accuracy (points)", "error (ranks)"),
        tuple(rows), 3, ("Means ± the standard error of the paired difference; more is better.",),
        folded=True,
    )  # fmt: skip


def _number(metric: Metric, gain: Gain | None) -> Cell:
    if gain is None:
        return Cell("not known", missing=True)
    text = metric.gain(gain.mean / metric.scale)
    if gain.error is not None:
        text += f" ± {gain.error:.{metric.digits}f}"
    return Cell(text, gain.mean, gain.ids)


def gains_charts(study: Study, metric: Metric) -> str:
    """Return a figure a data set as HTML, "" where nothing can be compared."""
    return "".join(
        f'<figure class="chart"><figcaption>{escape(words)}</figcaption>'
        f"{gains_svg(own, words, metric)}</figure>"
        for _, words, own in gains_by_data(study, metric)
    )


def gains_by_data(study: Study, metric: Metric) -> Iterator[tuple[str, str, list[Gain]]]:
    """Yield each data set with what a figure of it shows, in words, and its gains."""
    found = gains(study, metric)
    for data in dict.fromkeys(gain.data for gain in found):
        yield data, _title(study, metric, data), [gain for gain in found if gain.data == data]


def _title(study: Study, metric: Metric, data: str) -> str:
    unit = metric.unit.split(",")[0].replace("per cent", "points")
    ours = mixer_name(focus(study))
    return f"{metric.title}: what {ours} gains on {study.data_name(data)} ({unit})"


def gains_svg(found: Sequence[Gain], words: str, metric: Metric, heading: bool = False) -> str:
    """Return the gains of one data set as SVG, a line each.

    Args:
        found: What is shown.
        words: What it is, for who cannot see it.
        metric: Of the gains.
        heading: Write the words above, as a file of its own needs it.

    Example:
        >>> one = [Gain("koa", "cloc", "none", 1.5, 0.5, 3)]
        >>> text = gains_svg(one, "Accuracy gained (points)", METRICS[0])
        >>> "CLOC" in text, "+1.50 ± 0.50 (3 repeats)" in text
        (True, True)
    """
    reach = 1.06 * max(1e-9, *(abs(g.mean) + (g.error or 0) for g in found))
    top = _TOP + 24 * heading
    rows, y, before = [], top, None
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    half = (_WIDTH - _RIGHT - _LEFT) / 2
    for gain in found:
        if gain.grader != before:
            y += _GAP if before is not None else 0
            rows.append(
                _text(8, y + 12, grader_name(gain.grader), "start", f"{_INK};font-weight:600")
            )
            before = gain.grader
        rows.append(_line(gain, y + _ROW / 2, middle, half / reach, metric))
        y += _ROW
    bottom = y + 4
    title = _text(8, 20, words, "start", f"{_INK};font-weight:600") if heading else ""
    ends = "".join(
        _text(x, top - 8, told, anchor, _SOFT)
        for x, told, anchor in (
            (_LEFT - 12, "against", "end"), (middle - 8, "worse", "end"),
            (middle + 8, "better", "start"),
        )
    )  # fmt: skip
    # A page knows what SVG is; a file has to say it.
    file = ' xmlns="http://www.w3.org/2000/svg"' if heading else ""
    return (
        f'<svg{file} viewBox="0 0 {_WIDTH} {bottom + _BOTTOM:.0f}"'
        f' role="img" aria-label="{escape(words)}"'
        ' font-family="system-ui, Segoe UI, Roboto, sans-serif">'
        + (f'<rect width="100%" height="100%" style="fill:{_PAPER}"/>' if heading else "")
        + title
        + ends
        + _axis(reach, middle, half, top, bottom)
        + "".join(rows)
        + "</svg>"
    )


def _line(gain: Gain, y: float, middle: float, scale: float, metric: Metric) -> str:
    x = middle + gain.mean * scale
    doubt = gain.error if gain.error is not None else math.inf
    colour = _UP if gain.mean > doubt else _DOWN if gain.mean < -doubt else _SOFT
    told = f"against {mixer_name(gain.against)}: {_number(metric, gain).text}"
    told += f" ({gain.repeats} repeat{'s' * (gain.repeats > 1)})"
    reach = (gain.error or 0) * scale
    fill = colour if gain.error is not None else _PAPER
    return (
        f"<g><title>{escape(told)}</title>"
        + _text(_LEFT - 12, y + 4, mixer_name(gain.against), "end", _SOFT)
        + f'<path d="M{x - reach:.1f} {y:.1f}H{x + reach:.1f}"'
        f' style="stroke:{colour};stroke-width:2;fill:none"/>'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"'
        f' style="fill:{fill};stroke:{colour};stroke-width:1.6"/></g>'
    )


def _axis(reach: float, middle: float, half: float, top: float, bottom: float) -> str:
    steps = (s * 10.0**k for k in range(-3, 3) for s in (1, 2, 5))
    step = next((s for s in steps if reach / s <= 4), reach)
    marks = []
    for k in range(-int(reach / step), int(reach / step) + 1):
        x = middle + k * step / reach * half
        colour = _SOFT if k == 0 else _LINE
        marks.append(
            f'<path d="M{x:.1f} {top - 2}V{bottom:.0f}" style="stroke:{colour};fill:none"/>'
            + _text(
                x, bottom + 18, f"{k * step:+.6g}".replace("-", "−") if k else "0", "middle", _SOFT
            )
        )
    return "".join(marks)


def _text(x: float, y: float, words: str, anchor: str, style: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        f' style="font-size:12.5px;fill:{style}">{escape(words)}</text>'
    )
