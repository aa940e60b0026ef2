"""The sections of a report, in the order of reading."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dismix.bench.figures import FIGURES, FORMAT
from dismix.bench.report_charts import boundary_bars, feature_panels, overhead_scatter
from dismix.bench.report_data import MAIN, Record
from dismix.bench.report_gains import gains_charts, gains_table
from dismix.bench.report_study import Study, grader_name, mixer_name
from dismix.bench.report_summary import Summary
from dismix.bench.report_without import read_left_out, tables_without, warnings
from dismix.bench.tables import METRICS, Cell, Table
from dismix.bench.tables_costs import boundary_table, budget_table, overhead_table, seconds_text
from dismix.bench.tables_generator import generator_table
from dismix.bench.tables_statistics import focus, heat_table, statistics_tables
from dismix.bench.tables_studies import STUDIES, condition_words, other_tables
from dismix.errors import DisMixError


@dataclass(frozen=True)
class Picture:
    """A picture file with its caption."""

    path: Path
    caption: str


@dataclass(frozen=True)
class Section:
    """A section.

    Attributes:
        key: For anchors.
        title: Heading.
        lead: What it shows.
        tables: Tables.
        chart: HTML above the tables; Markdown goes without.
        pictures: Files to show.
        lines: A list of statements.
        folded: Closed until asked for.
    """

    key: str
    title: str
    lead: str = ""
    tables: tuple[Table, ...] = ()
    chart: str = ""
    pictures: tuple[Picture, ...] = ()
    lines: tuple[str, ...] = ()
    folded: bool = False


def make_sections(study: Study, summary: Summary, folder: Path) -> list[Section]:
    """Return all sections behind the summary."""
    main, *others = STUDIES
    words = condition_words(study.base)
    lead = main.lead if study.is_main else f"Every run: {words}."
    if study.is_main and study.base != MAIN:
        lead += f" DisMix has {words}."
    found = [Section("main", main.title, lead, tuple(main.tables(study)))]
    found += _significance(study)
    for spec in others:
        if spec.was_run(study) and not spec.is_main_table(study):
            found.append(Section(spec.key, spec.title, spec.lead, tuple(spec.tables(study))))
    left = read_left_out(folder)
    if left is not None and (tables := tables_without(study, left)):
        lines = warnings(study, left)
        found.append(Section("without", left.title, left.why, tuple(tables), lines=lines))
    if odd := other_tables(study):
        lead = "Settings that the paper does not have, beside the usual ones."
        found.append(Section("other", "Other settings", lead, tuple(odd)))
    found += _costs(study)
    found += list(_pictures(folder))
    found.append(Section("missing", "Not run", lines=summary.not_run))
    found.append(_runs(study))
    return found


def _significance(study: Study) -> Iterable[Section]:
    ours = focus(study)
    chart = "".join(gains_charts(study, metric) for metric in METRICS) if ours else ""
    if chart:
        lead = (
            f"What {mixer_name(ours)} gains on each of the others with the same {study.repeats}:"
            " means, with one standard error to each side. A hollow dot is one run and has none;"
            " what is grey is less than its error."
        )
        if study.has_folds:
            lead += " Folds share training images, so errors look smaller than they are."
        yield Section("gains", "Gains at a glance", lead, (gains_table(study),), chart)
    if tables := statistics_tables(study):
        lead = f"{mixer_name(ours)} against the others over the settings of the main table."
        yield Section("significance", "Significance", lead, tuple(tables))
    heat = [heat_table(study, metric) for metric in METRICS] if ours else []
    heat = [table for table in heat if table.rows and len(table.columns) > 2]
    if heat:
        lead = f"What {mixer_name(ours)} gains over each of the others."
        yield Section("heat", "Heat maps", lead, tuple(heat))


def _costs(study: Study) -> Iterable[Section]:
    boundary = boundary_table(study)
    if boundary is not None:
        lead = "How often images of two neighbouring grades are taken for the other one."
        yield Section("boundary", "Boundary errors", lead, (boundary,), boundary_bars(study))
    overhead = overhead_table(study)
    if overhead is not None:
        lead = "Accuracy against what mixing adds to the time of training."
        yield Section("overhead", "Overhead", lead, (overhead,), overhead_scatter(study))
    generators = generator_table(study)
    if generators is not None:
        lead = "Generators and what their two codes tell of the rank."
        yield Section("generators", "Generators", lead, (generators,))
    lead = "Images seen and time, over all graders of the main table."
    yield Section("budgets", "Budgets", lead, (budget_table(study),))


def _pictures(folder: Path) -> Iterable[Section]:
    """Yield the figures that were drawn when the images were at hand."""
    told: set[Path] = set()
    # The paper's first figure comes first.
    drawn = (folder / FIGURES).glob("*.json")
    for path in sorted(drawn, key=lambda p: (not p.stem.startswith("feature_map"), p.stem)):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise ValueError(f"format {content['format']}, not {FORMAT}")
            files = [path.parent / name for name in content.get("files", [])]
            chart = feature_panels(content) if content["kind"] == "feature_map" else ""
            title, lead = str(content["title"]), str(content["caption"])
        except (KeyError, TypeError, ValueError) as error:
            raise DisMixError(
                f"not a figure of a report ({error})", file=path, cure="remove it or draw it again"
            ) from error
        told |= set(files)
        here = tuple(Picture(file, title) for file in files if file.is_file())
        yield Section(f"figure-{path.stem}", title, lead, chart=chart, pictures=here)
    for path in sorted((folder / FIGURES).glob("*.png")):
        if path not in told:
            title = path.stem.replace("_", " ")
            yield Section(f"figure-{path.stem}", title, pictures=(Picture(path, title),))


def _runs(study: Study) -> Section:
    rows = tuple(_run_row(study, record) for record in study.records)
    repeat = ("fold", "seed") if study.has_folds else ("seed",)
    columns = ("run", "status", "plan", "kind", "data set", "grader", "mixer", "condition", *repeat)
    table = Table(
        "runs", "All runs",
        (*columns, "accuracy", "MAE", "time", "images seen", "commit", "hardware", "date"),
        rows, 1, ("Each links to its record: settings, versions, predictions of all test images.",),
    )  # fmt: skip
    return Section("runs", "All runs", tables=(table,), folded=True)


def _run_row(study: Study, record: Record) -> tuple[Cell, ...]:
    made = record.content["provenance"]
    cells = [
        Cell(record.id, record.id, (record.id,), link=f"{record.id}.json"),
        Cell(record.status, missing=record.status != "done", note=_last_line(record)),
        Cell(str(record.content.get("plan", ""))), Cell(record.kind),
        Cell(study.data_name(record.data)),
        Cell(grader_name(record.grader) if record.grader else ""),
        Cell(mixer_name(record.mixer) if record.kind != "generator" else ""),
        Cell(condition_words(record.condition)),
    ]  # fmt: skip
    if study.has_folds:
        fold = record.content["factors"].get("fold", "")
        cells.append(Cell(str(fold), float(record.fold)))
    cells.append(Cell(str(record.seed), float(record.seed)))
    for metric in METRICS:
        value = record.metric(metric.key)
        cells.append(Cell("" if value is None else metric.text(value), value))
    wall, seen = record.number("wall_s"), record.number("images_seen")
    cells.append(Cell("" if wall is None else seconds_text(wall), wall))
    cells.append(Cell("" if seen is None else f"{seen:,.0f}", seen))
    return (*cells, *(Cell(str(made.get(name, ""))) for name in ("commit", "hardware", "date")))


def _last_line(record: Record) -> str:
    lines = str(record.content.get("error") or "").strip().splitlines()
    return lines[-1] if lines else ""
