"""What mixing costs and where graders err: budgets, overhead, boundary errors, generators."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dismix.bench.report_data import Key, Record, data_order, grader_order, mixer_order
from dismix.bench.report_study import Study, grader_name, mixer_name
from dismix.bench.tables import ACCURACY, NOT_RUN, Cell, Table
from dismix.bench.tables_studies import condition_words

OVERHEAD = ("idrid", "gol")
"""Data set and grader of the paper's overhead figure."""

#: Further factors that the time of a step depends on.
_OF_A_STEP = ("grader.batch_size", "grader.size", "grader.backbone", "grader.augment",
              "grader.hparams.", "mixer.options.", "generator.config.")  # fmt: skip


@dataclass(frozen=True)
class Overhead:
    """What a mixer adds to a training.

    Attributes:
        data: Data set.
        grader: Grader.
        mixer: Mixer.
        percent: Training time beyond that without mixing, in per cent.
        seconds: Of one training in the main table, median; None where not run.
        generator_s: Of its generator, once for all trainings; None where it has none.
        accuracy: Mean test accuracy, None where not known.
        ids: Records.
        where: What is unusual about its condition, "" for nothing.
    """

    data: str
    grader: str
    mixer: str
    percent: float
    seconds: float | None
    generator_s: float | None
    accuracy: float | None
    ids: tuple[str, ...]
    where: str = ""


def overheads(study: Study) -> list[Overhead]:
    """Return the overhead of every mixer and condition, from overhead records if there are any.

    Else the wall times of the graders' runs of the main table serve, but for those that ran side
    by side: how long each of them took says more about the others than about its mixer.
    """
    timed = [r for r in study.records if r.kind == "overhead" and r.status == "done"]
    if not timed:
        timed = [r for r in _usual(study) if not _side_by_side(r)]
    groups: dict[tuple[str, str], dict[Key, list[Record]]] = {}
    for record in timed:
        runs = groups.setdefault((record.data, record.grader), {})
        runs.setdefault(_mixed(study, record), []).append(record)
    found = []
    for data in data_order({d for d, _ in groups}):
        for grader in grader_order({g for d, g in groups if d == data}):
            found += _of_setting(study, data, grader, groups[data, grader])
    return found


def _mixed(study: Study, record: Record) -> Key:
    """Return the setting that a timed run tells of: the usual one but for how it mixes.

    Mixing more often costs more, so runs of another p are not averaged, nor those of larger
    batches or networks; images and epochs say nothing about the extra time of a step.
    """
    key, given = study.key(record.data, record.grader, record.mixer), record.condition
    if record.mixer == "none":
        return key
    step = {name: value for name, value in given.other if name.startswith(_OF_A_STEP)}
    other = tuple(sorted({**dict(key.condition.other), **step}.items()))
    condition = replace(
        key.condition, p=given.p, policies=given.policies, ablation=given.ablation, other=other
    )
    return replace(key, condition=condition)


def _of_setting(
    study: Study, data: str, grader: str, runs: Mapping[Key, list[Record]]
) -> list[Overhead]:
    bare = _seconds(study.groups.get(study.key(data, grader, "none"), []))
    mixers, found = mixer_order({key.mixer for key in runs}), []

    def place(key: Key) -> tuple[int, bool, str]:
        usual = key.condition == study.base
        return mixers.index(key.mixer), not usual, condition_words(key.condition)

    for key in sorted(runs, key=place):
        seconds = _seconds(study.groups.get(key, []))
        given = [r.metric("overhead_percent") for r in runs[key]]
        percents = [value for value in given if value is not None]
        if percents:
            percent = float(np.mean(percents))
        elif bare and seconds is not None:
            percent = 100 * (seconds / bare - 1)
        else:
            continue
        own = [s for r in runs[key] if (s := r.number("generator_s")) is not None]
        ids = tuple(r.id for r in runs[key])
        made = float(np.mean(own)) if own else None
        where = "" if key.condition == study.base else condition_words(key.condition)
        accuracy = _accuracy(study, key)
        found.append(
            Overhead(data, grader, key.mixer, percent, seconds, made, accuracy, ids, where)
        )
    if found and "none" not in mixers:
        # Mixers are timed against their own bare steps; no mixing is then zero by definition.
        accuracy = _accuracy(study, study.key(data, grader, "none"))
        found.insert(0, Overhead(data, grader, "none", 0.0, bare, None, accuracy, ()))
    return found


def _accuracy(study: Study, key: Key) -> float | None:
    values = study.values(key, ACCURACY.key)
    return float(np.mean(values)) if values else None


def _seconds(records: list[Record]) -> float | None:
    """Return the median time of runs that ran alone: one slow run must not decide."""
    alone = (r for r in records if not _side_by_side(r))
    found = [s for r in alone if (s := r.number("wall_s")) is not None]
    return float(np.median(found)) if found else None


def _usual(study: Study) -> list[Record]:
    """Return the graders' runs of the main table."""
    return [r for key, rs in study.groups.items() if key.condition == study.base for r in rs]


def _side_by_side(record: Record) -> bool:
    """Return whether others ran beside it; older records do not tell, and count as alone."""
    return (record.number("at_once") or 1) > 1


def overhead_table(study: Study) -> Table | None:
    """Return the overhead of every mixer."""
    found = overheads(study)
    if not found:
        return None
    rows = [
        (
            Cell(study.data_name(o.data)), Cell(grader_name(o.grader)),
            Cell(mixer_name(o.mixer) + (f", {o.where}" if o.where else "")),
            Cell(percent_text(o.percent), o.percent, o.ids),
            Cell("" if o.seconds is None else seconds_text(o.seconds), o.seconds),
            Cell("" if o.generator_s is None else seconds_text(o.generator_s), o.generator_s),
            Cell("" if o.accuracy is None else ACCURACY.text(o.accuracy), o.accuracy),
        )
        for o in found
    ]  # fmt: skip
    measured = any(r.kind == "overhead" and r.status == "done" for r in study.records)
    note = (
        "Measured by runs of their own."
        if measured
        else "From the wall times of the runs above; nothing was measured apart."
    )
    if any(_side_by_side(r) for r in _usual(study)):
        note += " Training times of runs that ran side by side are left out."
    if any(r.kind == "overhead" and _side_by_side(r) for r in study.records):
        note += " Some of those that measure ran side by side, which lengthens both sides."
    columns = ("data set", "grader", "mixer", "extra time", "training", "generator, once")
    return Table(
        "overhead", "Training time beyond that without mixing",
        (*columns, "accuracy (%)"), tuple(rows), 3, (note,),
    )  # fmt: skip


def percent_text(percent: float) -> str:
    """Return extra time.

    Example:
        >>> percent_text(27.3), percent_text(-4), percent_text(0.2)
        ('+27 %', '−4 %', '0 %')
    """
    whole = round(percent)
    return f"{whole:+d} %".replace("-", "−") if whole else "0 %"


def seconds_text(seconds: float) -> str:
    """Return a duration.

    Example:
        >>> seconds_text(31.24), seconds_text(402), seconds_text(9000)
        ('31 s', '6.7 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def budget_table(study: Study) -> Table:
    """Return images seen and seconds of every mixer, over the graders of the main table."""
    rows, unequal = [], False
    for data in study.data():
        seen_by = {}
        for mixer in study.mixers():
            keys = [k for k in study.groups if k.condition == study.base]
            runs = [r for k in keys if (k.data, k.mixer) == (data, mixer) for r in study.groups[k]]
            if not runs:
                continue
            seen = [n for r in runs if (n := r.number("images_seen")) is not None]
            per_grader = {((r.grader, r.fold), r.number("images_seen")) for r in runs}
            seen_by[mixer] = per_grader
            rows.append(_budget_row(study, data, mixer, runs, seen))
        graders = {g for found in seen_by.values() for g, _ in found}
        unequal |= any(
            len({n for found in seen_by.values() for g2, n in found if g2 == g}) > 1
            for g in graders
        )
    note = (
        "Some graders saw different numbers of images with different mixers."
        if unequal
        else "Every grader saw the same number of images with every mixer."
    )
    if any(_side_by_side(r) for r in _usual(study)):
        note += " Some ran side by side, and took longer than alone."
    columns = ("data set", "mixer", "runs", "images seen a run", "training", "all trainings")
    return Table(
        "budgets", "Budgets", (*columns, "generator, once", "peak memory"), tuple(rows), 2, (note,)
    )


def _budget_row(
    study: Study, data: str, mixer: str, runs: list[Record], seen: list[float]
) -> tuple[Cell, ...]:
    wall = [s for r in runs if (s := r.number("wall_s")) is not None]
    made = [s for r in runs if (s := r.number("generator_s")) is not None]
    peak = [s for r in runs if (s := r.number("peak_memory_mib")) is not None]
    ids = tuple(r.id for r in runs)
    return (
        Cell(study.data_name(data)), Cell(mixer_name(mixer)),
        Cell(str(len(runs)), float(len(runs)), ids),
        Cell(f"{np.mean(seen):,.0f}" if seen else "", float(np.mean(seen)) if seen else None),
        Cell(seconds_text(float(np.mean(wall))), float(np.mean(wall))) if wall else Cell(""),
        Cell(seconds_text(sum(wall)), sum(wall)) if wall else Cell(""),
        Cell(seconds_text(max(made)), max(made)) if made else Cell(""),
        Cell(f"{max(peak) / 1024:.1f} GiB", max(peak)) if peak else Cell(""),
    )  # fmt: skip


def boundary_errors(study: Study, data: str, grader: str) -> dict[str, dict[str, float]]:
    """Return, by mixer and step "k|k+1", the share of both grades taken for the other."""
    found: dict[str, dict[str, float]] = {}
    for mixer in study.mixers():
        steps: dict[str, list[float]] = {}
        for record in study.groups.get(study.key(data, grader, mixer), []):
            for step, value in (record.content["metrics"].get("boundary_errors") or {}).items():
                if value is not None:
                    steps.setdefault(step, []).append(float(value))
        if steps:
            found[mixer] = {step: float(np.mean(values)) for step, values in steps.items()}
    return found


def boundary_settings(study: Study) -> list[tuple[str, str]]:
    """Return every (data set, grader) whose boundary errors are known."""
    return [
        (data, grader)
        for data in study.data()
        for grader in study.graders(data)
        if boundary_errors(study, data, grader)
    ]


def boundary_table(study: Study) -> Table | None:
    """Return a row a step between neighbouring grades, a column a mixer."""
    rows = []
    mixers = [m for m in study.mixers() if any(k.mixer == m for k in study.groups)]
    for data, grader in boundary_settings(study):
        found = boundary_errors(study, data, grader)
        for step in sorted({step for steps in found.values() for step in steps}, key=step_order):
            values = {m: found[m][step] for m in mixers if step in found.get(m, {})}
            cells = []
            for mixer in mixers:
                ids = tuple(r.id for r in study.groups.get(study.key(data, grader, mixer), []))
                if mixer not in values:
                    cells.append(Cell(NOT_RUN, missing=True))
                    continue
                best = len(values) > 1 and values[mixer] == min(values.values())
                cells.append(Cell(f"{100 * values[mixer]:.1f}", values[mixer], ids, best=best))
            label = step_name(study, data, step)
            labels = (Cell(study.data_name(data)), Cell(grader_name(grader)), Cell(label))
            rows.append((*labels, *cells))
    if not rows:
        return None
    return Table(
        "boundary", "Neighbouring grades taken for each other (per cent of the images of both)",
        ("data set", "grader", "grades", *(mixer_name(m) for m in mixers)), tuple(rows), 3,
        (f"Means over {study.repeats}; the least in bold. The paper shows these as bars without"
         " numbers.",),
    )  # fmt: skip


def step_name(study: Study, data: str, step: str) -> str:
    """Return a step "k|k+1" by the names that the records of a data set give to the grades.

    Args:
        study: With its records.
        data: Key of the data set.
        step: Positions of two neighbouring grades.
    """
    low, _, high = step.partition("|")
    for record in (r for key, rs in study.groups.items() if key.data == data for r in rs):
        # Records of before names were kept have positions only.
        known = (record.content.get("config") or {}).get("data")
        names = known.get("ranks") if isinstance(known, dict) else None
        if names and low.isdigit() and high.isdigit() and int(high) < len(names):
            return f"{names[int(low)]} ↔ {names[int(high)]}"
    return f"{low} ↔ {high}"


def step_order(step: str) -> tuple[int, str]:
    """Return the place of a step "k|k+1" among others.

    Example:
        >>> sorted(["10|11", "2|3"], key=step_order)
        ['2|3', '10|11']
    """
    head = step.partition("|")[0]
    return (int(head) if head.isdigit() else 0, step)
