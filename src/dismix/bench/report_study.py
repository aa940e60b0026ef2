"""All records of a report, grouped by setting, with what was planned and not run."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dismix.bench.counting import Setting
from dismix.bench.paper import DATA, GRADERS, MIXERS, PAPER_MIXERS, data_key
from dismix.bench.report_conflicts import drop_usual, tell_apart
from dismix.bench.report_data import (
    MAIN,
    Condition,
    Key,
    Record,
    data_order,
    grader_order,
    mixer_order,
    read_condition,
    read_records,
)
from dismix.errors import DisMixError
from dismix.registry import near_names

PLANNED = "planned.json"
"""Optional, beside ``records``: {"runs": [{"id", "kind", "factors", "blocked"}]} of all plans."""

Scores = dict[Setting, dict[str, float]]
Gains = NDArray[np.float64]


@dataclass
class Study:
    """What a report is made from.

    Attributes:
        records: All of them.
        groups: Finished grader runs of each setting, one a seed, by seed.
        failed: Runs of each setting that failed and have no finished twin.
        older: Finished runs passed over because a newer one has the same factors and seed.
        names: Data sets as the records call them.
        planned: Settings that a plan asks for, with their seeds.
        blocked: Why planned runs cannot run, and how many.
    """

    records: list[Record]
    groups: dict[Key, list[Record]] = field(default_factory=dict)
    failed: dict[Key, list[Record]] = field(default_factory=dict)
    older: list[Record] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    planned: dict[Key, set[int]] = field(default_factory=dict)
    blocked: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for record in self.records:
            self.names.setdefault(record.data, str(record.content["factors"]["data"]))
        graders = [record for record in self.records if record.kind == "grader"]
        newest: dict[tuple[Key, int], Record] = {}
        for record in sorted(graders, key=lambda r: (r.date, r.id)):
            if record.status == "done":
                before = newest.get((record.key, record.seed))
                self.older += [] if before is None else [before]
                newest[record.key, record.seed] = record
        for (key, _), record in sorted(newest.items(), key=lambda item: item[0][1]):
            self.groups.setdefault(key, []).append(record)
        for record in graders:
            if record.status != "done" and (record.key, record.seed) not in newest:
                self.failed.setdefault(record.key, []).append(record)

    @property
    def keys(self) -> set[Key]:
        """All settings that were run, tried or planned."""
        return {*self.groups, *self.failed, *self.planned}

    @cached_property
    def base(self) -> Condition:
        """What the summary is about: the main table's condition, else the commonest one."""
        counts = Counter(key.condition for key in self.keys)
        if not counts or MAIN in counts:
            return MAIN
        return max(counts, key=lambda c: (counts[c], repr(c)))

    def key(self, data: str, grader: str, mixer: str) -> Key:
        """Return a setting under the base condition."""
        return Key(data, grader, mixer, self.base)

    @property
    def beside_paper(self) -> bool:
        """Whether any data set is one of the paper's."""
        return any(key.data in DATA for key in self.keys)

    def data(self) -> list[str]:
        """Return the data sets to show: the paper's, if any of them was run, and our own."""
        wanted = set(DATA) if self.beside_paper else set()
        return data_order(wanted | {key.data for key in self.keys})

    def graders(self, data: str, condition: Condition | None = None) -> list[str]:
        """Return the graders to show for a data set."""
        condition = condition or self.base
        found = {k.grader for k in self.keys if k.data == data and k.condition == condition}
        return grader_order(found | (set(GRADERS) if data in DATA else set()))

    def mixers(self) -> list[str]:
        """Return the mixers to show."""
        wanted = {"none", *PAPER_MIXERS} if self.beside_paper else set()
        return mixer_order(wanted | {key.mixer for key in self.keys})

    def data_name(self, data: str) -> str:
        """Return a data set's name: the paper's, else as the records have it."""
        return DATA.get(data) or self.names.get(data, data)

    def values(self, key: Key, metric: str) -> list[float]:
        """Return a metric of each seed of a setting."""
        found = (record.metric(metric) for record in self.groups.get(key, []))
        return [value for value in found if value is not None]

    def scores(self, metric: str, condition: Condition | None = None) -> Scores:
        """Return means over seeds by (data set, grader) and mixer."""
        condition = condition or self.base
        found: Scores = {}
        for data in self.data():
            for grader in self.graders(data, condition):
                row = {}
                for mixer in self.mixers():
                    values = self.values(Key(data, grader, mixer, condition), metric)
                    if values:
                        row[mixer] = float(np.mean(values))
                if row:
                    found[data, grader] = row
        return found

    def image_gains(self, ours: Key, theirs: Key, metric: str) -> Gains | None:
        """Return what ours gains on each test image (N,), both averaged over their seeds.

        Images that only one of them graded are left out; None when there are no predictions.
        """
        mean = [_by_image(self.groups.get(key, []), metric) for key in (ours, theirs)]
        shared = [image for image in mean[0] if image in mean[1]]
        if not shared:
            return None
        return np.array([mean[0][image] - mean[1][image] for image in shared])

    def seed_gains(self, ours: Key, theirs: Key, metric: str, *, higher: bool) -> Gains:
        """Return what ours gains with each seed that both have."""
        sides = []
        for key in (ours, theirs):
            pairs = ((r.seed, r.metric(metric)) for r in self.groups.get(key, []))
            sides.append({seed: value for seed, value in pairs if value is not None})
        shared = sorted(sides[0].keys() & sides[1].keys())
        sign = 1 if higher else -1
        return np.array([sign * (sides[0][s] - sides[1][s]) for s in shared], np.float64)

    def missing(self) -> Iterator[tuple[Key, list[int]]]:
        """Yield planned settings with the seeds that have no finished run."""
        for key, seeds in self.planned.items():
            left = seeds - {record.seed for record in self.groups.get(key, [])}
            if left:
                yield key, sorted(left)


def mixer_name(name: str) -> str:
    """Return a mixer's name for readers."""
    return MIXERS.get(name, name)


def grader_name(name: str) -> str:
    """Return a grader's name for readers."""
    return GRADERS.get(name, name.upper() if len(name) <= 4 else name)


def _by_image(records: list[Record], metric: str) -> dict[str, float]:
    """Return each image's mean score over seeds; more is better for both metrics."""
    sums: dict[str, list[float]] = {}
    for record in records:
        if record.predictions is None:
            continue
        found = record.predictions
        wrong = np.abs(found.label - found.grade)
        scores = (wrong == 0).astype(float) if metric == "accuracy" else -wrong.astype(float)
        for image, score in zip(found.image, scores.tolist(), strict=True):
            sums.setdefault(image, []).append(score)
    return {image: float(np.mean(scores)) for image, scores in sums.items()}


def read_study(folder: Path, plan: str | None = None) -> Study:
    """Read a benchmark folder.

    Args:
        folder: Holds ``records``, and ``planned.json`` where plans were run.
        plan: Name of a plan that was run here; its runs alone are read.

    Raises:
        DisMixError: Nothing there, or files that cannot be understood.
    """
    runs = _planned(_plan_file(folder, plan))
    wanted = {str(run.get("id")) for run in runs}
    records = read_records(folder, None if plan is None else wanted)
    study = Study(drop_usual(tell_apart(records), wanted))
    for run in runs:
        _plan(study, run)
    return study


def _plan_file(folder: Path, plan: str | None) -> Path:
    if plan is None:
        return folder / PLANNED
    path = folder / "plans" / f"{plan}.json"
    if not path.is_file():
        known = sorted(found.stem for found in path.parent.glob("*.json"))
        raise DisMixError(
            f"no plan '{plan}' was run here", file=folder,
            cure=near_names(plan, known) if known else f"`dismix bench run {plan}` first",
        )  # fmt: skip
    return path


def _planned(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    try:
        runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
        return [dict(run) for run in runs]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DisMixError(
            f"not a list of planned runs ({error})", file=path,
            cure="remove it; `dismix bench run` writes it again",
        ) from error  # fmt: skip


def _plan(study: Study, run: Mapping[str, Any]) -> None:
    if run.get("kind", "grader") != "grader":
        return
    factors = run["factors"]
    mixer = str(factors.get("mixer") or "none")
    data = data_key(str(factors["data"]))
    study.names.setdefault(data, str(factors["data"]))
    # A plan's runs are told apart by their known factors alone; further ones are not guessed.
    known = {r.id: r.key for r in study.records}
    condition = replace(read_condition(factors, mixer), other=())
    grader = str(factors.get("grader", "")).lower()
    key = known.get(str(run.get("id"))) or Key(data, grader, mixer, condition)
    if run.get("blocked") and str(run.get("id")) not in known:
        study.blocked[str(run["blocked"])] += 1
    study.planned.setdefault(key, set()).add(int(factors.get("seed", 0)))
