"""Tables of a report: cells that know their runs, and the grid that most tables are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dismix.bench.paper import PaperNumber, find_number
from dismix.bench.report_data import MAIN, Condition, Key, unit_words
from dismix.bench.report_study import Study, grader_name
from dismix.bench.statistics import mean_sd

OURS = "dismix"
NOT_RUN = "not run"
FAILED = "failed"


_BOLD = "best in bold."


@dataclass(frozen=True)
class Metric:
    """How a metric is shown.

    Attributes:
        key: As in the records.
        title: For readers.
        unit: In words.
        higher: Whether more is better.
        scale: Factor from records to the report.
        digits: Decimals.
    """

    key: str
    title: str
    unit: str
    higher: bool
    scale: float
    digits: int

    def text(self, value: float) -> str:
        """Return a value of a record as text."""
        return f"{self.scale * value:.{self.digits}f}"

    def gain(self, value: float) -> str:
        """Return a difference as text, with its sign.

        Example:
            >>> ACCURACY.gain(0.0123)
            '+1.23'
        """
        text = f"{self.scale * value:+.{self.digits}f}"
        return text[1:] if float(text) == 0 else text.replace("-", "−")


ACCURACY = Metric("accuracy", "Accuracy", "per cent, more is better", True, 100, 2)
MAE = Metric("mae", "Mean absolute error", "ranks, less is better", False, 1, 3)
METRICS = (ACCURACY, MAE)


@dataclass(frozen=True)
class Cell:
    """What stands in a place of a table.

    Attributes:
        text: Our number or words.
        value: To sort by; None sorts last.
        ids: Records it was computed from.
        paper: The paper's number, shown beside.
        note: Said on pointing at it.
        mark: Small text behind the number: how many repeats, where that is unusual.
        best: Stands out.
        tone: Colour of a heat map, -1 (bad) to 1 (good).
        missing: Not run or failed.
        link: Address, where it is neither a number nor a record.
    """

    text: str
    value: float | str | None = None
    ids: tuple[str, ...] = ()
    paper: str = ""
    note: str = ""
    mark: str = ""
    best: bool = False
    tone: float | None = None
    missing: bool = False
    link: str = ""


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        key: For anchors.
        caption: Above it.
        columns: Headings.
        rows: Cells, as many as columns.
        labels: Leading columns that name the row.
        notes: Below it.
        folded: Closed until asked for.
        ours: Column that stands out, -1 for none.
    """

    key: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    labels: int = 1
    notes: tuple[str, ...] = ()
    folded: bool = False
    ours: int = -1


@dataclass(frozen=True)
class Column:
    """A column of a grid: its heading, mixer, changes of the condition and the paper's words.

    The paper's words may name changes of the row in braces.
    """

    title: str
    mixer: str
    change: Mapping[str, Any] = field(default_factory=dict)
    paper: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a grid: a data set and a grader, further labels, changes of the condition."""

    data: str
    grader: str
    change: Mapping[str, Any] = field(default_factory=dict)
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grid:
    """Most tables: (data set x grader) rows, columns of mixers or policies.

    Attributes:
        key: For anchors.
        title: For readers.
        rows: Rows.
        columns: Columns.
        base: Condition that rows and columns change.
        paper: The paper's table.
        paper_suffix: Behind the metric's name in the paper's table.
        headings: Of the label columns.
        heat: Colour the numbers of each data set from worst to best.
    """

    key: str
    title: str
    rows: Sequence[Row]
    columns: Sequence[Column]
    base: Condition = MAIN
    paper: str = ""
    paper_suffix: str = ""
    headings: tuple[str, ...] = ("data set", "grader")
    heat: bool = False

    def key_of(self, row: Row, column: Column) -> Key:
        """Return the setting of a place."""
        changes = {**row.change, **column.change}
        condition = replace(self.base, **changes)
        if column.mixer == "none":
            condition = replace(condition, p=self.base.p, policies=self.base.policies)
        return Key(row.data, row.grader, column.mixer, condition)


def draw_grid(study: Study, grid: Grid, metric: Metric) -> list[Table]:
    """Fill a grid with means over repeats, the paper's numbers beside them.

    Rows without any run make a table of their own, so that what was run is seen at a glance; those
    that the paper has not run either are left out.
    """
    tried = {*study.groups, *study.failed}
    run = [row for row in grid.rows if any(grid.key_of(row, c) in tried for c in grid.columns)]
    rest = [row for row in grid.rows if row not in run]
    if grid.paper:
        rest = [
            row for row in rest if any(_paper_number(grid, row, c, metric) for c in grid.columns)
        ]
    tables = [_draw(study, grid, run, metric)] if run else []
    if rest:
        names = ", ".join(dict.fromkeys(study.data_name(row.data) for row in rest))
        beside = " (the paper's numbers)" if grid.paper else ""
        table = _draw(study, grid, rest, metric)
        caption = f"{metric.title}: {len(rest)} settings not run: {names}{beside}"
        notes = tuple(note for note in table.notes if _BOLD not in note)
        key = f"{table.key}-not-run"
        tables.append(replace(table, key=key, caption=caption, notes=notes, folded=bool(run)))
    return tables


def _draw(study: Study, grid: Grid, wanted: Sequence[Row], metric: Metric) -> Table:
    seeds = usual_seeds(study, grid, metric)
    rows = []
    for row in wanted:
        cells = [number_cell(study, grid, row, column, metric, seeds) for column in grid.columns]
        labels = [Cell(study.data_name(row.data)), Cell(grader_name(row.grader))]
        rows.append((*labels, *(Cell(text) for text in row.more), *mark_best(cells, metric)))
    rows = _heated(rows, metric) if grid.heat else rows
    others = any(cell.mark.startswith("n=") for row_cells in rows for cell in row_cells)
    notes = [f"{_over_seeds(seeds, others, folds=study.has_folds)}; {_BOLD}"]
    if any(cell.paper for row_cells in rows for cell in row_cells):
        notes.append("Small: the paper's number.")
    columns = (*grid.headings, *(column.title for column in grid.columns))
    caption = f"{grid.title}: {metric.title.lower()} ({metric.unit})"
    mixers = [column.mixer for column in grid.columns]
    single = mixers.count(OURS) == 1 and len(mixers) > 1
    ours = len(grid.headings) + mixers.index(OURS) if single else -1
    return Table(
        f"{grid.key}-{metric.key}", caption, columns, tuple(rows), len(grid.headings),
        tuple(notes), ours=ours,
    )  # fmt: skip


def _over_seeds(seeds: int, others: bool, *, folds: bool) -> str:
    """Say what the numbers are, and what n means where it is written beside some of them."""
    one, many = ("run", "runs (folds × seeds)") if folds else ("seed", "seeds")
    if seeds == 1:
        return f"One {one} each" + (
            f" (n: mean ± standard deviation of n {one}s)" if others else ""
        )
    beside = f" (n: over n {one}s instead of {seeds})" if others else ""
    return f"Means over {seeds} {many} ± standard deviation{beside}"


def _heated(rows: list[tuple[Cell, ...]], metric: Metric) -> list[tuple[Cell, ...]]:
    """Colour numbers by where they lie between the worst and the best of their data set."""
    heated = []
    for row in rows:
        beside = [c.value for r in rows if r[0] == row[0] for c in r if isinstance(c.value, float)]
        span = (max(beside) - min(beside)) if beside else 0.0
        cells = []
        for cell in row:
            if isinstance(cell.value, float) and span:
                share = (cell.value - min(beside)) / span
                cell = replace(cell, tone=share if metric.higher else 1 - share)
            cells.append(cell)
        heated.append(tuple(cells))
    return heated


def usual_seeds(study: Study, grid: Grid, metric: Metric) -> int:
    """Return the commonest number of repeats in a grid, the larger of equals."""
    counts = [
        len(study.values(grid.key_of(row, column), metric.key))
        for row in grid.rows
        for column in grid.columns
    ]
    counts = [count for count in counts if count]
    return max(counts, key=lambda n: (counts.count(n), n)) if counts else 0


def number_cell(
    study: Study, grid: Grid, row: Row, column: Column, metric: Metric, seeds: int
) -> Cell:
    """Return the cell of one setting: a mean, "failed" or "not run"."""
    key = grid.key_of(row, column)
    number = _paper_number(grid, row, column, metric)
    paper = "" if number is None else number.text()
    records = study.groups.get(key, [])
    values = study.values(key, metric.key)
    failed = study.failed.get(key, [])
    if not values:
        if failed:
            error = str(failed[0].content.get("error") or "").strip().splitlines()
            return Cell(
                FAILED, ids=tuple(r.id for r in failed), paper=paper, missing=True,
                note=error[-1] if error else "",
            )  # fmt: skip
        return Cell(NOT_RUN, paper=paper, missing=True)
    mean, sd = mean_sd(values)
    text = metric.text(mean) + ("" if sd is None else f" ± {metric.text(sd)}")
    mark = "" if len(values) == seeds else f"n={len(values)}"
    if failed:
        mark = f"{mark}, {len(failed)} failed".removeprefix(", ")
    every = study.by_unit(key, metric.key).items()
    each = ", ".join(f"{unit_words(unit)}: {metric.text(value)}" for unit, value in every)
    ids = tuple(r.id for r in records)
    by = "run" if study.has_folds else "seed"
    return Cell(text, mean, ids, paper, f"by {by} {each}", mark)


def _paper_number(grid: Grid, row: Row, column: Column, metric: Metric) -> PaperNumber | None:
    if not grid.paper or not column.paper:
        return None
    words = column.paper.format(**row.change)
    return find_number(grid.paper, row.data, row.grader, words, metric.key + grid.paper_suffix)


def mark_best(cells: Sequence[Cell], metric: Metric) -> list[Cell]:
    """Mark the best numbers of a row; nothing is best of one."""
    values = [cell.value for cell in cells if isinstance(cell.value, float)]
    if len(values) < 2:
        return list(cells)
    best = max(values) if metric.higher else min(values)
    return [
        replace(c, best=isinstance(c.value, float) and abs(c.value - best) < 1e-9) for c in cells
    ]
