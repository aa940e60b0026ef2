"""What mixing costs and where graders err: budgets, overhead, boundary errors, generators."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dismix.bench.report_data import Record, data_order, grader_order, mixer_order
from dismix.bench.report_study import Study, grader_name, mixer_name
from dismix.bench.tables import ACCURACY, NOT_RUN, Cell, Table

BOUNDARY_GRADER = "cloc"
OVERHEAD = ("idrid", "gol")
"""Data set and grader of the paper's overhead figure."""


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
    """

    data: str
    grader: str
    mixer: str
    percent: float
    seconds: float | None
    generator_s: float | None
    accuracy: float | None
    ids: tuple[str, ...]


def overheads(study: Study) -> list[Overhead]:
    """Return the overhead of every mixer, from overhead records where there are any.

    Else the wall times of the graders' runs of the main table serve, which other work on the
    machine may have lengthened.
    """
    timed = [r for r in study.records if r.kind == "overhead" and r.status == "done"]
    if not timed:
        timed = [r for key, rs in study.groups.items() if key.condition == study.base for r in rs]
    groups: dict[tuple[str, str], dict[str, list[Record]]] = {}
    for record in timed:
        groups.setdefault((record.data, record.grader), {}).setdefault(record.mixer, []).append(
            record
        )
    found = []
    for data in data_order({d for d, _ in groups}):
        for grader in grader_order({g for d, g in groups if d == data}):
            found += _of_setting(study, data, grader, groups[data, grader])
    return found


def _of_setting(
    study: Study, data: str, grader: str, runs: Mapping[str, list[Record]]
) -> list[Overhead]:
    bare = _seconds(study.groups.get(study.key(data, grader, "none"), []))
    found = []
    for mixer in mixer_order(runs):
        seconds = _seconds(study.groups.get(study.key(data, grader, mixer), []))
        given = [r.metric("overhead_percent") for r in runs[mixer]]
        percents = [value for value in given if value is not None]
        if percents:
            percent = float(np.mean(percents))
        elif bare and seconds is not None:
            percent = 100 * (seconds / bare - 1)
        else:
            continue
        own = [s for r in runs[mixer] if (s := r.number("generator_s")) is not None]
        ids = tuple(r.id for r in runs[mixer])
        made = float(np.mean(own)) if own else None
        accuracy = _accuracy(study, data, grader, mixer)
        found.append(Overhead(data, grader, mixer, percent, seconds, made, accuracy, ids))
    if found and "none" not in runs:
        # Mixers are timed against their own bare steps; no mixing is then zero by definition.
        accuracy = _accuracy(study, data, grader, "none")
        found.insert(0, Overhead(data, grader, "none", 0.0, bare, None, accuracy, ()))
    return found


def _accuracy(study: Study, data: str, grader: str, mixer: str) -> float | None:
    values = study.values(study.key(data, grader, mixer), ACCURACY.key)
    return float(np.mean(values)) if values else None


def _seconds(records: list[Record]) -> float | None:
    """Return the median training time: one slow run must not decide."""
    found = [s for r in records if (s := r.number("wall_s")) is not None]
    return float(np.median(found)) if found else None


def overhead_table(study: Study) -> Table | None:
    """Return the overhead of every mixer."""
    found = overheads(study)
    if not found:
        return None
    rows = [
        (
            Cell(study.data_name(o.data)), Cell(grader_name(o.grader)), Cell(mixer_name(o.mixer)),
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
            per_grader = {(r.grader, r.number("images_seen")) for r in runs}
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
    """Return the (data set, grader) whose boundary errors are shown: CLOC, else the first run."""
    settings = []
    for data in study.data():
        run = [g for g in study.graders(data) if boundary_errors(study, data, g)]
        if run:
            settings.append((data, BOUNDARY_GRADER if BOUNDARY_GRADER in run else run[0]))
    return settings


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
            label = step.replace("|", " ↔ ")
            labels = (Cell(study.data_name(data)), Cell(grader_name(grader)), Cell(label))
            rows.append((*labels, *cells))
    if not rows:
        return None
    return Table(
        "boundary", "Neighbouring grades taken for each other (per cent of the images of both)",
        ("data set", "grader", "grades", *(mixer_name(m) for m in mixers)), tuple(rows), 3,
        ("Means over seeds; the least in bold. The paper shows these as bars without numbers.",),
    )  # fmt: skip


def step_order(step: str) -> tuple[int, str]:
    """Return the place of a step "k|k+1" among others.

    Example:
        >>> sorted(["10|11", "2|3"], key=step_order)
        ['2|3', '10|11']
    """
    head = step.partition("|")[0]
    return (int(head) if head.isdigit() else 0, step)
