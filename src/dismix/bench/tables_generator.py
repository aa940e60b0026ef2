"""What generators separate: probes of their codes, beside the paper's."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dismix.bench.paper import DATA, find_number
from dismix.bench.report_data import MAIN, Record
from dismix.bench.report_study import Study
from dismix.bench.statistics import mean_sd
from dismix.bench.tables import FAILED, Cell, Table
from dismix.bench.tables_costs import seconds_text
from dismix.bench.tables_studies import condition_words

ABLATIONS = {
    "full": "DisMix", "no_reversal": "without GRL", "no_similarity": "without similarity loss",
    "one_codebook": "one codebook",
}  # fmt: skip
"""Our names of generator variants -> the paper's."""


def generator_table(study: Study) -> Table | None:
    """Return the probes of generators: can the rank be read from each code?"""
    made = [r for r in study.records if r.kind == "generator"]
    if not made:
        return None
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in made:
        groups.setdefault((record.data, record.condition.ablation, _where(record)), []).append(
            record
        )
    rows = [_probe_row(study, *place, records) for place, records in sorted(groups.items())]
    columns = ("data set", "generator", "condition", "z_o accuracy", "z_n accuracy", "z_o error")
    return Table(
        "generators", "Generators: what a linear probe reads from each code",
        (*columns, "z_n error", "PSNR (dB)", "LPIPS", "training"), tuple(rows), 3,
        ("Accuracy in per cent, error in ranks; small: the paper's. z_o should tell the rank, z_n"
         " should not: chance is the share of the most frequent rank.",),
    )  # fmt: skip


def _where(record: Record) -> str:
    return condition_words(replace(record.condition, ablation=MAIN.ablation))


def _probe_row(
    study: Study, data: str, ablation: str, where: str, records: list[Record]
) -> tuple[Cell, ...]:
    done = [r for r in records if r.status == "done"]
    ids = tuple(r.id for r in (done or records))
    labels = (Cell(study.data_name(data)), Cell(ABLATIONS.get(ablation, ablation)), Cell(where))
    cells = []
    for field, scale, digits in (("accuracy", 100, 1), ("mae", 1, 2)):
        for branch in ("z_o", "z_n"):
            values = [
                v
                for r in done
                if (v := probe_value(r.content["metrics"], branch, field)) is not None
            ]
            paper = _paper_probe(data, ablation, branch, field) if where == "as usual" else ""
            cells.append(_mean_cell(values, scale, digits, ids, paper, failed=not done))
    for name in ("psnr", "lpips"):
        found = [v for r in done if (v := r.metric(name)) is not None]
        cells.append(_mean_cell(found, 1, 2, ids, "", failed=False))
    # Not wall_s, which measuring is part of; generators that were given have none.
    own = [s for r in done if (s := r.number("generator_s")) is not None]
    time = Cell(seconds_text(float(np.mean(own))), float(np.mean(own))) if own else Cell("")
    return (*labels, *cells, time)


def _mean_cell(
    values: list[float],
    scale: float,
    digits: int,
    ids: tuple[str, ...],
    paper: str,
    *,
    failed: bool,
) -> Cell:
    if not values:
        return Cell(FAILED if failed else "", ids=ids if failed else (), paper=paper)
    mean, _ = mean_sd(values)
    return Cell(f"{scale * mean:.{digits}f}", mean, ids, paper)


def probe_value(metrics: Mapping[str, Any], branch: str, field: str) -> float | None:
    """Return a linear probe's number from a generator's record.

    Example:
        >>> probe_value({"z_o_linear_accuracy": 0.65}, "z_o", "accuracy")
        0.65
    """
    value = metrics.get(f"{branch}_linear_{field}")
    return float(value) if isinstance(value, int | float) else None


def _paper_probe(data: str, ablation: str, branch: str, field: str) -> str:
    if data not in DATA or ablation not in ABLATIONS:
        return ""
    place = {"z_o": "z_ordinal", "z_n": "z_non_ordinal"}[branch]
    words = f"linear probe on {place}"
    if ablation == "one_codebook":
        words = "linear probe on the single latent"
    number = find_number("probes", data, words, ABLATIONS[ablation], field)
    return "" if number is None else number.text()
