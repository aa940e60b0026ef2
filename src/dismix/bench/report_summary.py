"""The report in plain words: who wins, how surely, where it loses, what was not run."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from dismix.bench.counting import Comparison
from dismix.bench.paper import DATA, PAPER_MIXERS
from dismix.bench.report_data import MAIN, mixer_order
from dismix.bench.report_paper import beside_paper, unit_of
from dismix.bench.report_study import Study, grader_name, mixer_name
from dismix.bench.tables import METRICS, Metric
from dismix.bench.tables_costs import seconds_text
from dismix.bench.tables_statistics import (
    LEVEL,
    NONE,
    Outcome,
    focus,
    judge,
    p_text,
    unequal_settings,
)
from dismix.bench.tables_studies import STUDIES, condition_words

_MOST_NAMED = 8


@dataclass(frozen=True)
class Tile:
    """A headline: a figure, what it is, and more in small print."""

    figure: str
    title: str
    more: str


@dataclass(frozen=True)
class Summary:
    """The opening of a report.

    Attributes:
        tiles: Headlines.
        paragraphs: (heading, sentences).
        not_run: One line each.
    """

    tiles: tuple[Tile, ...]
    paragraphs: tuple[tuple[str, tuple[str, ...]], ...]
    not_run: tuple[str, ...]


def summarise(study: Study) -> Summary:
    """Put the records into words."""
    outcomes = [judge(study, metric) for metric in METRICS]
    left = tuple(not_run(study))
    paragraphs = [
        ("Who wins", tuple(_wins(study, outcomes))),
        ("Where it loses", tuple(_losses(study, outcomes))),
        ("Beside the paper", tuple(beside_paper(study))),
        ("What was not run", _few(left)),
        ("How it was made", tuple(_made(study))),
    ]
    return Summary(tuple(_tiles(study, outcomes)), tuple(p for p in paragraphs if p[1]), left)


def _few(lines: tuple[str, ...]) -> tuple[str, ...]:
    return lines or ("Everything that the plans ask for was run.",)


def _tiles(study: Study, outcomes: list[Outcome]) -> Iterable[Tile]:
    ours = mixer_name(focus(study))
    for outcome in outcomes:
        found = outcome.strongest
        if found is not None:
            tied = f", {found.ties} tied" if found.ties else ""
            p = f"p = {p_text(found.test.p)} against the best baseline of each".replace("= <", "<")
            yield Tile(
                f"{found.wins} of {len(found.duels)}",
                f"settings where {ours} has the best {outcome.metric.title.lower()} of the mixers",
                ("too few settings for a test" if too_few(found) else p) + tied,
            )
    done = sum(r.status == "done" for r in study.records)
    failed = sum(r.status != "done" for r in study.records)
    missing = sum(len(units) for _, units in study.missing())
    more = [f"{failed} failed"] * bool(failed) + [f"{missing} planned and not run"] * bool(missing)
    told = ", ".join(more) or "none failed"
    yield Tile(f"{done}", f"run{'s' * (done != 1)} behind these numbers", told)


def _wins(study: Study, outcomes: list[Outcome]) -> Iterable[str]:
    ours = focus(study)
    if not ours:
        yield "No mixer was run, so there is nothing to compare."
        return
    if study.is_main and study.base != MAIN:
        yield f"DisMix has {condition_words(study.base)} in all of its runs."
    elif study.base != MAIN:
        yield f"All of this is under one condition: {condition_words(study.base)}."
    if all(outcome.strongest is None for outcome in outcomes):
        where = " on the same folds" if study.has_folds else ""
        yield f"{mixer_name(ours)} was run without any other mixer{where} to compare it with."
    for outcome in outcomes:
        if outcome.strongest is not None:
            yield _verdict(mixer_name(ours), outcome)
    for outcome in outcomes:
        if outcome.against_none is not None:
            found, metric = outcome.against_none, outcome.metric
            yield (
                f"Against no mixing it is better in {metric.title.lower()} in {found.wins} of"
                f" {_settings(found)} (mean gain {metric.gain(found.mean_gain)},"
                f" {_significance(found)})."
            )
    if unequal := unequal_settings(study, ours):
        yield _unequal(study, unequal)


def _unequal(study: Study, count: int) -> str:
    """Say that some means rest on different repeats, which chance then does not treat alike."""
    where = f"In {count} of these settings" if count > 1 else "In one of these settings"
    if study.has_folds:
        return (
            f"{where} some mixers lack runs that others have; any two are compared on the folds and"
            f" seeds that both have, and the best baseline is one of those that share most of them"
            f" with {mixer_name(focus(study))}."
        )
    return (
        f"{where} some mixers were run with other seeds or fewer than {mixer_name(focus(study))};"
        " each mean is over all seeds that its mixer has."
    )


def _verdict(ours: str, outcome: Outcome) -> str:
    found, metric = outcome.strongest, outcome.metric
    assert found is not None
    rivals = {name for c in outcome.comparisons[1:] for name in [c.opponent] if ":" not in name}
    text = (
        f"{ours} has the best {metric.title.lower()} among {_mixers(outcome, rivals)} in"
        f" {found.wins} of {_settings(found)}"
        + (f" and ties in {found.ties}" if found.ties else "")
        + f". Against the best baseline of each setting the mean gain is"
        f" {metric.gain(found.mean_gain)} {unit_of(metric)}: {_significance(found)}."
    )
    if len(rivals) > 1 and ":" in outcome.comparisons[1].opponent:
        average = outcome.comparisons[1]
        name = mixer_name(average.opponent.partition(": ")[2])
        text += (
            f" Against {name}, the best baseline on average, it is"
            f" {metric.gain(average.mean_gain)}: {_significance(average)}."
        )
    return text


def _mixers(outcome: Outcome, rivals: set[str]) -> str:
    """Return how many mixers were run where ours was: not all of them need be everywhere."""
    single = [found for found in outcome.comparisons if found.opponent in rivals]
    counts = Counter(duel.setting for found in single for duel in found.duels)
    least, most = 1 + min(counts.values()), 1 + max(counts.values())
    return f"{most} mixers" if least == most else f"{least} to {most} mixers"


def _settings(found: Comparison) -> str:
    return f"{len(found.duels)} setting{'s' * (len(found.duels) != 1)}"


def _significance(found: Comparison) -> str:
    if too_few(found):
        return "too few settings for a test"
    text = f"one-sided p = {p_text(found.test.p)}".replace("= <", "<")
    return f"{text}, {'significant' if found.test.p < LEVEL else 'not significant'} at 5 %"


def too_few(found: Comparison) -> bool:
    """Return whether not even winning everywhere could give p below 0.05."""
    return bool(0.5**found.test.pairs > LEVEL)


def _losses(study: Study, outcomes: list[Outcome]) -> Iterable[str]:
    for outcome in outcomes:
        if outcome.strongest is not None:
            yield _lost(study, outcome.strongest, outcome.metric, outcome.metric.title)
    # The best of all mixers may still be worse than no mixing.
    for outcome in outcomes:
        if outcome.against_none is not None:
            title = f"{outcome.metric.title} against no mixing"
            yield _lost(study, outcome.against_none, outcome.metric, title)


def _lost(study: Study, found: Comparison, metric: Metric, title: str) -> str:
    lost = sorted((d for d in found.duels if d.gain < 0), key=lambda d: d.gain)
    if not lost:
        return f"{title}: in no setting."
    named = [
        f"{study.data_name(d.setting[0])} with {grader_name(d.setting[1])}"
        f" ({mixer_name(d.opponent)} {metric.gain(d.gain)})"
        for d in lost[:_MOST_NAMED]
    ]
    more = f", and {len(lost) - _MOST_NAMED} more" if len(lost) > _MOST_NAMED else ""
    return f"{title}: {len(lost)} of {len(found.duels)}: {', '.join(named)}{more}."


def not_run(study: Study) -> Iterable[str]:
    """Yield what is missing, coarse before fine."""
    if study.beside_paper:
        yield from _absent_parts(study)
    else:
        yield "None of the paper's data sets was run: these are other data."
    # A main table of few images is the study of few images; one of chosen policies is no study.
    beside = [s for s in STUDIES if not (study.is_main and s.is_main_table(study))]
    absent = [s.title.lower() for s in STUDIES if not (s in beside and s.was_run(study))]
    absent = [title for title in absent if study.base == MAIN or title != "main table"]
    if absent:
        yield f"Studies of the paper: {', '.join(absent)}: not run."
    kinds = {r.kind for r in study.records}
    for kind, words in (("generator", "Probes of generators"), ("overhead", "Time of mixing")):
        if kind not in kinds:
            yield f"{words}: not run apart."
    failed = [r for r in study.records if r.status != "done"]
    if failed:
        yield f"{len(failed)} run{'s' * (len(failed) > 1)} failed; they are listed with the runs."
    missing = list(study.missing())
    if missing:
        total = sum(len(units) for _, units in missing)
        settings = f"{len(missing)} setting{'s' * (len(missing) > 1)}"
        yield f"{total} planned run{'s' * (total > 1)} in {settings}: not finished."
    for why, count in study.blocked.items():
        yield f"{count} of them cannot run: {why}"
    if study.older:
        unit = "setting, fold and seed" if study.has_folds else "setting and seed"
        yield (
            f"{len(study.older)} older run{'s' * (len(study.older) > 1)} of a {unit}"
            " that was run again: not counted."
        )


def _absent_parts(study: Study) -> Iterable[str]:
    main = study.base if study.is_main else MAIN
    run = {key for key in study.groups if key.condition == main}
    for words, wanted, found in (
        ("Data sets", [*DATA], {k.data for k in run}),
        ("Mixers", [NONE, *PAPER_MIXERS], {k.mixer for k in run}),
    ):
        absent = [name for name in wanted if name not in found]
        if absent:
            names = [DATA.get(n) or mixer_name(n) for n in absent]
            yield f"{words} of the main table: {', '.join(names)}: not run."
    holes = [
        f"{study.data_name(data)} with {grader_name(grader)}"
        for data in DATA
        if any(k.data == data for k in run)
        for grader in study.graders(data)
        if not any((k.data, k.grader) == (data, grader) for k in run)
    ]
    if holes:
        yield f"Graders of the main table: {', '.join(holes)}: not run."


def _made(study: Study) -> Iterable[str]:
    found = [r.content["provenance"] for r in study.records]

    def listed(name: str) -> str:
        values = sorted({str(p[name]) for p in found if p.get(name)})
        return ", ".join(values[:6]) + (f" and {len(values) - 6} more" if len(values) > 6 else "")

    seconds = sum(r.number("wall_s") or 0 for r in study.records)
    mixers = mixer_order({key.mixer for key in study.groups})
    names = ", ".join(mixer_name(m) for m in mixers)
    ran = f"Mixers run: {names}" if names else "No run of a grader has ended"
    yield f"{ran}. All runs together took {seconds_text(seconds)}."
    yield f"Hardware: {listed('hardware') or 'not recorded'}. Commit: {listed('commit') or '-'}."
