"""The page of a study: everything a reader needs in one file, the answer first."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dismix import atomic
from dismix.study.chart import forest
from dismix.study.choices import METRICS, Metric
from dismix.study.page_parts import (
    agreement_part,
    cost_part,
    grades_part,
    method_part,
    mixes_part,
    numbers_part,
    rich,
)
from dismix.study.style import STYLE
from dismix.study.verdict import Comparison, Verdict
from dismix.study.words import gained

TITLE = "Does mixing help on these images?"
_TONES = {"yes": "yes", "no": "no", "cannot tell": "maybe"}


def write_page(
    path: Path,
    found: Mapping[str, Any],
    verdict: Verdict,
    comparisons: Sequence[Comparison],
    shown: Sequence[Any],
) -> None:
    """Write the page.

    Args:
        path: File.
        found: What ``study.json`` holds.
        verdict: The answer.
        comparisons: In the order in which they are shown.
        shown: Mixes with their pictures.
    """
    metric, worth = METRICS[found["metric"]], float(found["worth"])
    parts = [
        f"<h1>{TITLE}</h1>",
        f'<p class="lead">{html.escape(_lead(found))}</p>',
        _verdict(verdict),
        _notes(found["notes"]),
        "<h2>What mixing gained</h2>",
        f"<p>Difference in {metric.words}{_unit(metric)} on held-out images, positive is better. "
        "The bar is the interval that decides, the stroke the mean, each ring a fold; the dotted "
        f"line is the smallest gain worth having ({html.escape(gained(metric, worth))}).</p>",
        forest(comparisons, metric, worth),
        numbers_part(found),
        grades_part(found),
        agreement_part(found),
        mixes_part(found, shown),
        cost_part(found),
        method_part(found),
        "<footer>For research on augmentation, not for diagnosis. This page shows images of the "
        "data set: treat it as you treat them.</footer>",
    ]
    atomic.write_text(path, _whole("".join(parts)))


def _unit(metric: Metric) -> str:
    return f" in percentage{metric.gain_unit}" if metric.gain_unit else ""


def _whole(body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{TITLE}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def _lead(found: Mapping[str, Any]) -> str:
    data, how = found["data"], found["how"]
    people = len(data["annotators"])
    graded = f", {people} annotator{'s' * (people != 1)}" if people else ""
    return (
        f"{data['name']}: {data['images']:,} images, {len(data['ranks'])} grades{graded}. "
        f"Grader {how['grader']} on {how['backbone']}, {how['size']} px, {how['folds']} folds, "
        f"{how['repeats']} training{'s' * (how['repeats'] != 1)} each; {found['date']}."
    )


def _verdict(verdict: Verdict) -> str:
    lines = "".join(f"<li>{rich(line)}</li>" for line in verdict.sentences)
    return (
        f'<section class="verdict {_TONES[verdict.answer]}"><strong class="head">'
        f"{html.escape(verdict.headline)}</strong><ul>{lines}</ul></section>"
    )


def _notes(notes: Sequence[str]) -> str:
    return "".join(f'<p class="note">{rich(note)}</p>' for note in notes)
