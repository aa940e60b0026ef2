"""The report beside the paper: how far numbers of one condition lie apart, and its own counting."""

from collections.abc import Iterable

import numpy as np

from dismix.bench.counting import compare_all, pairs_of
from dismix.bench.paper import PAPER_MIXERS, find_number, paper_scores
from dismix.bench.report_study import Study, mixer_name
from dismix.bench.tables import METRICS, OURS, Metric
from dismix.bench.tables_statistics import p_text
from dismix.bench.tables_studies import main_grid


def beside_paper(study: Study) -> Iterable[str]:
    """Yield how our numbers compare with the paper's of the same condition, where it has any."""
    # A study of few images, say, is not held against the paper's runs on all images.
    table = main_grid(study).paper
    for metric in METRICS if table else ():
        gaps: dict[str, list[float]] = {}
        for (data, grader), row in study.scores(metric.key).items():
            for mixer, value in row.items():
                number = find_number(table, data, grader, mixer_name(mixer), metric.key)
                if number is not None:
                    gaps.setdefault(mixer, []).append(metric.scale * value - number.mean)
        everything = [gap for values in gaps.values() for gap in values]
        if not everything:
            continue
        text = (
            f"{metric.title}: over the {len(everything)} numbers that both have, ours"
            f" {_differ(float(np.mean(everything)), metric)} the paper's on average"
        )
        if OURS in gaps:
            text += f"; those of DisMix {_differ(float(np.mean(gaps[OURS])), metric)} them"
        yield text + "."
    if study.beside_paper and table == "main":
        yield paper_sentence()


def _differ(gap: float, metric: Metric) -> str:
    digits = 1 if metric.scale == 100 else 2
    return f"are {abs(gap):.{digits}f} {unit_of(metric)} {'above' if gap >= 0 else 'below'}"


def unit_of(metric: Metric) -> str:
    """Return what differences of a metric are counted in."""
    return "points" if metric.scale == 100 else "ranks"


def paper_sentence() -> str:
    """Return what the same counting says of the paper's own numbers."""
    rivals = [name for name in PAPER_MIXERS if name != OURS]
    found = [
        compare_all(pairs_of(paper_scores(metric.key), OURS), rivals, higher=metric.higher)[0]
        for metric in METRICS
    ]
    (accuracy, mae) = found
    return (
        f"The same counting applied to the paper's numbers: best accuracy in {accuracy.wins} of"
        f" {len(accuracy.duels)} settings, strictly best error in {mae.wins}; against the best"
        f" baseline of each setting one-sided p = {p_text(accuracy.p_as_computed)} for accuracy"
        f" and {p_text(mae.p_as_computed)} for error. (Those are as the paper computes them; its"
        f" errors have two decimals and many are equal, and with equal gains treated as equal,"
        f" as everywhere else here, p is {p_text(accuracy.test.p)} and {p_text(mae.test.p)}.)"
    )
