"""Who wins and how sure that is, as tables: over settings, over test images, over repeats."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dismix.bench.counting import Comparison, Pair, Pairs, Setting, compare_all
from dismix.bench.report_data import Key, mixer_order
from dismix.bench.report_study import Study, grader_name, mixer_name
from dismix.bench.statistics import bootstrap, sign_flip_test, signed_rank
from dismix.bench.tables import METRICS, OURS, Cell, Metric, Table

NONE = "none"
#: Paired tests over seeds are shown from this many; three seeds cannot reach p < 0.1.
FEW_SEEDS = 5
#: Smaller p-values are bold.
LEVEL = 0.05


@dataclass(frozen=True)
class Outcome:
    """All comparisons of one metric over settings.

    Attributes:
        metric: Which.
        strongest: With the best baseline of each setting.
        comparisons: With the strongest, in both meanings, and with every baseline.
        against_none: With no mixing, None where that was not run.
    """

    metric: Metric
    strongest: Comparison | None
    comparisons: tuple[Comparison, ...]
    against_none: Comparison | None


def focus(study: Study) -> str:
    """Return the mixer that is compared with the others: DisMix, else the last one run."""
    run = mixer_order({key.mixer for key in study.groups} - {NONE})
    return OURS if OURS in run else (run[-1] if run else "")


def unequal_settings(study: Study, ours: str) -> int:
    """Return in how many settings a mixer that ours is compared with has other repeats."""
    found = 0
    for (data, grader), row in study.scores(METRICS[0].key).items():
        units = {
            mixer: frozenset(study.by_unit(study.key(data, grader, mixer), METRICS[0].key))
            for mixer in row
        }
        found += ours in row and any(other != units[ours] for other in units.values())
    return found


def baselines(study: Study, ours: str) -> list[str]:
    """Return the mixers that ours is compared with; no mixing is not one of them."""
    return [m for m in mixer_order({key.mixer for key in study.groups}) if m not in (ours, NONE)]


def judge(study: Study, metric: Metric) -> Outcome:
    """Compare over the settings of the base condition."""
    ours = focus(study)
    return _outcome(metric, study.pairs(metric.key, ours), baselines(study, ours))


def judge_everywhere(study: Study, metric: Metric) -> Outcome | None:
    """Compare over all conditions at once; None where there is but one."""
    ours = focus(study)
    pairs: dict[Setting, dict[str, Pair]] = {}
    conditions = {key.condition for key in study.groups if key.mixer == ours}
    for condition in sorted(conditions, key=repr):
        for setting, row in study.pairs(metric.key, ours, condition).items():
            if row:
                pairs[*setting, repr(condition)] = row
    if len({setting[-1] for setting in pairs}) < 2:
        return None
    return _outcome(metric, pairs, baselines(study, ours))


def _outcome(metric: Metric, pairs: Pairs, others: list[str]) -> Outcome:
    found = compare_all(pairs, others, higher=metric.higher)
    alone = compare_all(pairs, [NONE], higher=metric.higher)
    strongest = found[0] if found else None
    return Outcome(metric, strongest, tuple(found), alone[-1] if alone else None)


def p_text(p: float) -> str:
    """Return a p-value, with as many digits as show on which side of the level it is.

    Example:
        >>> p_text(0.00752), p_text(0.13103), p_text(1e-7)
        ('0.0075', '0.13', '< 0.0001')
        >>> p_text(0.0496), p_text(0.04999), p_text(0.05)
        ('0.0496', '0.04999', '0.05')
    """
    if p < 0.0001:
        return "< 0.0001"
    if p >= 0.995:
        return "1"
    texts = (f"{p:.{digits}g}" for digits in range(2, 18))
    return next(text for text in texts if (float(text) < LEVEL) == (p < LEVEL))


def comparison_table(outcome: Outcome) -> Table:
    """Return a row an opponent: gain, wins, significance."""
    rows = []
    alone = [] if outcome.against_none is None else [outcome.against_none]
    for found in [*outcome.comparisons, *alone]:
        holm = "" if found.p_holm is None or found in alone else p_text(found.p_holm)
        rows.append(
            (
                Cell(_opponent(found.opponent)),
                Cell(outcome.metric.gain(found.mean_gain), found.mean_gain),
                Cell(f"{found.wins} / {found.ties} / {found.losses}", float(found.wins)),
                Cell(p_text(found.test.p), found.test.p, best=found.test.p < LEVEL),
                Cell(holm, found.p_holm if holm else None),
                Cell(f"{found.test.effect:+.2f}".replace("-", "−"), found.test.effect),
            )
        )
    title = f"{outcome.metric.title} over settings"
    return Table(
        f"comparison-{outcome.metric.key}", title,
        ("against", "mean gain", "won / tied / lost", "p", "p (Holm)", "effect"), tuple(rows),
        notes=(
            "Positive gains are better, also for errors. p: one-sided Wilcoxon signed-rank test"
            " over settings, exact, ties respected. Effect: matched-pairs rank-biserial"
            " correlation, −1 to +1. Holm's correction is over the single baselines; no mixing"
            " is shown beside them and is not one. Bold: p below 0.05.",
        ),
    )  # fmt: skip


def _opponent(name: str) -> str:
    head, _, tail = name.partition(": ")
    return f"{head}: {mixer_name(tail)}" if tail else mixer_name(name)


def duel_table(study: Study, outcome: Outcome, draws: int = 2000) -> Table:
    """Return each setting against its best baseline, with intervals over the test images."""
    metric, ours = outcome.metric, focus(study)
    rows = []
    for duel in () if outcome.strongest is None else outcome.strongest.duels:
        mine, other = (
            study.key(duel.setting[0], duel.setting[1], m) for m in (ours, duel.opponent)
        )
        gains = study.image_gains(mine, other, metric.key)
        interval, value, images = "no predictions", None, ""
        if gains is not None:
            found = bootstrap(gains, draws=draws)
            interval = f"{metric.gain(found.low)} to {metric.gain(found.high)}"
            value, images = found.low, str(len(gains))
        result = "won" if duel.gain > 0 else "tied" if duel.gain == 0 else "lost"
        ids = study.compared_ids(mine, other, metric.key)
        rows.append(
            (
                Cell(study.data_name(duel.setting[0])), Cell(grader_name(duel.setting[1])),
                Cell(mixer_name(duel.opponent)),
                Cell(metric.gain(duel.gain), duel.gain, ids, best=duel.gain > 0),
                Cell(result), Cell(interval, value), Cell(images, float(images or 0)),
            )
        )  # fmt: skip
    return Table(
        f"duels-{metric.key}", f"{metric.title}: {mixer_name(ours)} less the best baseline",
        ("data set", "grader", "best baseline", "gain", "result", "95 % over images", "images"),
        tuple(rows), 2,
        ("Interval: percentile bootstrap over test images, both mixers on the same resamples, each"
         f" image's score averaged over {study.repeats}. The best baseline is chosen after seeing"
         " the results, so these gains are conservative.",),
    )  # fmt: skip


def heat_table(study: Study, metric: Metric) -> Table:
    """Return the gain of our mixer over every other in every setting, coloured."""
    ours = focus(study)
    others = [m for m in mixer_order({k.mixer for k in study.groups}) if m != ours]
    pairs = study.pairs(metric.key, ours)
    sign = 1 if metric.higher else -1
    gains = {
        (setting, other): sign * (pair.ours - pair.theirs)
        for setting, row in pairs.items()
        for other, pair in row.items()
    }
    sizes = sorted(abs(gain) for gain in gains.values())
    # The ninth tenth: one collapsed run must not bleach all other cells.
    most = sizes[int(0.9 * (len(sizes) - 1))] if sizes else 1.0
    rows = []
    for setting in pairs:
        cells = []
        for other in others:
            gain = gains.get((setting, other))
            mine, theirs = (study.key(setting[0], setting[1], m) for m in (ours, other))
            if gain is None:
                words = "no fold in common" if theirs in study.groups else "not run"
                cells.append(Cell(words, missing=True))
                continue
            ids = study.compared_ids(mine, theirs, metric.key)
            tone = max(-1.0, min(1.0, gain / most)) if most else 0.0
            cells.append(Cell(metric.gain(gain), gain, ids, tone=tone))
        labels = (Cell(study.data_name(setting[0])), Cell(grader_name(setting[1])))
        rows.append((*labels, *cells))
    return Table(
        f"heat-{metric.key}", f"{metric.title}: gain of {mixer_name(ours)} over each mixer",
        ("data set", "grader", *(mixer_name(m) for m in others)), tuple(rows), 2,
        ("Blue: ours is better; red: worse. Percentage points of accuracy, ranks of error saved.",),
    )  # fmt: skip


def seed_table(study: Study, metric: Metric) -> Table | None:
    """Return paired tests over the repeats of single settings, where there are enough."""
    ours = focus(study)
    rows = []
    for key in sorted(study.groups, key=lambda k: _order(study, k)):
        if key.mixer == ours or key.condition != study.base:
            continue
        mine = study.key(key.data, key.grader, ours)
        gains = study.seed_gains(mine, key, metric.key, higher=metric.higher)
        if len(gains) < FEW_SEEDS:
            continue
        flips, ranks = sign_flip_test(gains), signed_rank(gains)
        ids = study.paired_ids(mine, key, metric.key)
        wins = f"{(gains > 0).sum()} / {(gains == 0).sum()} / {(gains < 0).sum()}"
        rows.append(
            (
                Cell(study.data_name(key.data)), Cell(grader_name(key.grader)),
                Cell(mixer_name(key.mixer)), Cell(str(len(gains)), float(len(gains))),
                Cell(metric.gain(gains.mean()), float(gains.mean()), ids),
                Cell(wins, float((gains > 0).sum())),
                Cell(p_text(flips), flips, best=flips < LEVEL),
                Cell(p_text(ranks.p), ranks.p),
                Cell(f"{ranks.effect:+.2f}".replace("-", "−"), ranks.effect),
            )
        )  # fmt: skip
    if not rows:
        return None
    what, paired = study.repeats, "fold and seed" if study.has_folds else "seed"
    notes = [f"Paired by {paired}, one-sided; the permutation test is exact up to 20 {what}. These"
             " p-values are not corrected for the number of rows."]  # fmt: skip
    if study.has_folds:
        notes.append("Trainings of different folds share most of their images, so these p-values"
                     " are smaller than those of independent runs would be.")  # fmt: skip
    same = "folds and seeds" if study.has_folds else "seeds"
    return Table(
        f"seeds-{metric.key}", f"{metric.title}: {mixer_name(ours)} with the same {same}",
        ("data set", "grader", "against", what, "mean gain", "won / tied / lost",
         "p (permutation)", "p (Wilcoxon)", "effect"),
        tuple(rows), 2, tuple(notes),
    )  # fmt: skip


def _order(study: Study, key: Key) -> tuple[int, int, int]:
    data = study.data()
    graders = study.graders(key.data, key.condition)
    mixers = study.mixers()
    return data.index(key.data), graders.index(key.grader), mixers.index(key.mixer)


def statistics_tables(study: Study) -> list[Table]:
    """Return all of them, accuracy first."""
    tables: list[Table] = []
    outcomes = [judge(study, metric) for metric in METRICS]
    tables += [comparison_table(o) for o in outcomes if o.comparisons or o.against_none]
    everywhere = [judge_everywhere(study, metric) for metric in METRICS]
    for outcome in everywhere:
        if outcome is not None and outcome.comparisons:
            table = comparison_table(outcome)
            caption = f"{outcome.metric.title} over settings of all conditions"
            tables.append(replace(table, key=f"{table.key}-everywhere", caption=caption))
    tables += [duel_table(study, o) for o in outcomes if o.strongest is not None]
    tables += _present([seed_table(study, metric) for metric in METRICS])
    return tables


def _present(tables: Sequence[Table | None]) -> list[Table]:
    return [table for table in tables if table is not None]
