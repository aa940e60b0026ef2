"""Where a study stands: done, failed and missing runs by factor, and the time left."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from dismix.bench.durations import expected_seconds, in_words
from dismix.bench.folder import BenchFolder
from dismix.bench.specs import RunSpec, Study

COLUMNS = ("done", "failed", "missing", "blocked")


def study_status(
    study: Study, folder: BenchFolder, cost: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Count a study's runs.

    Args:
        study: From `dismix.bench.resolve.resolve`.
        folder: Where its records are.
        cost: The plan's, for estimates.

    Returns:
        {"total": counts, "factors": {factor: {value: counts}}, "seconds_left",
        "generator_seconds_left", "failures": {id: last line}, "blocked": {reason: runs}};
        counts by `COLUMNS`.
    """
    states = {run.id: run_state(run, folder) for run in study.runs}
    total = dict.fromkeys(COLUMNS, 0)
    factors: dict[str, dict[str, dict[str, int]]] = {}
    for run in study.runs:
        total[states[run.id]] += 1
        for name, value in run.factors.items():
            # None: the factor has no say in this run.
            if value is None:
                continue
            row = factors.setdefault(name, {}).setdefault(str(value), dict.fromkeys(COLUMNS, 0))
            row[states[run.id]] += 1
    missing = [run for run in study.runs if states[run.id] == "missing"]
    seconds, build = expected_seconds(study, folder, cost or {}, missing)
    failed = [run.id for run in study.runs if states[run.id] == "failed"]
    return {
        "total": total,
        # A factor with one value tells nothing that the total does not.
        "factors": {name: rows for name, rows in factors.items() if len(rows) > 1},
        "seconds_left": seconds, "generator_seconds_left": build,
        "failures": {name: _last_line(folder, name) for name in failed},
        "blocked": dict(Counter(r.blocked for r in study.runs if states[r.id] == "blocked")),
        "absent": [*study.absent],
    }  # fmt: skip


def run_state(run: RunSpec, folder: BenchFolder) -> str:
    """Return how a run stands, one of `COLUMNS`."""
    status = folder.status(run.id)
    return "blocked" if status == "missing" and run.blocked is not None else status


def _last_line(folder: BenchFolder, name: str) -> str:
    error = str((folder.record(name) or {}).get("error") or "").strip()
    return error.splitlines()[-1] if error else ""


def status_text(found: Mapping[str, Any]) -> str:
    """Return the table that `dismix bench status` prints.

    Args:
        found: From `study_status`.
    """
    rows = [("", *COLUMNS), ("all", *(str(found["total"][c]) for c in COLUMNS))]
    for name, values in found["factors"].items():
        rows += [
            (f"{name} {value}", *(str(counts[c]) for c in COLUMNS))
            for value, counts in values.items()
        ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    shown = [i for i, c in enumerate(("", *COLUMNS)) if c != "blocked" or found["total"][c]]
    lines = [
        "  ".join(
            row[i].ljust(widths[i]) if i == 0 else row[i].rjust(widths[i]) for i in shown
        ).rstrip()
        for row in rows
    ]
    if found["seconds_left"]:
        lines.append(
            f"about {in_words(found['seconds_left'])} of runs left"
            + (
                f", and {in_words(found['generator_seconds_left'])} of generators"
                if found["generator_seconds_left"]
                else ""
            )
        )
    lines += [f"failed {name}: {line}" for name, line in found["failures"].items()]
    lines += [f"{count} blocked: {reason}" for reason, count in found["blocked"].items()]
    if found["absent"]:
        lines.append(f"not given: {', '.join(found['absent'])} (--data NAME=MANIFEST)")
    return "\n".join(lines)
