"""All records of a report, grouped by setting, with what was planned and not run."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dismix.bench.counting import Pair, Setting
from dismix.bench.paper import DATA, GRADERS, MIXERS, PAPER_MIXERS, data_key
from dismix.bench.report_conflicts import (
    drop_usual,
    tell_apart,
    usual_dealings,
    without_dealing,
)
from dismix.bench.report_data import (
    FOLDS,
    MAIN,
    Condition,
    Key,
    Record,
    Unit,
    data_order,
    grader_order,
    mixer_order,
    read_condition,
    read_fold,
    read_records,
)
from dismix.bench.report_pairs import Gains, compared, image_gains, pair_means
from dismix.errors import DisMixError
from dismix.registry import near_names

PLANNED = "planned.json"
"""Optional, beside ``records``: {"runs": [{"id", "kind", "factors", "blocked"}]} of all plans."""

Scores = dict[Setting, dict[str, float]]
Pairs = dict[Setting, dict[str, Pair]]


@dataclass
class Study:
    """What a report is made from.

    Attributes:
        records: All of them.
        groups: Finished grader runs of each setting, one a fold and seed, in their order.
        failed: Runs of each setting that failed and have no finished twin.
        older: Finished runs passed over because a newer one has the same factors, fold and seed.
        names: Data sets as the records call them.
        planned: Settings that a plan asks for, with their folds and seeds.
        left: Of these, those whose very run is not finished.
        blocked: Why planned runs cannot run, and how many.
    """

    records: list[Record]
    groups: dict[Key, list[Record]] = field(default_factory=dict)
    failed: dict[Key, list[Record]] = field(default_factory=dict)
    older: list[Record] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    planned: dict[Key, set[Unit]] = field(default_factory=dict)
    left: dict[Key, set[Unit]] = field(default_factory=dict)
    blocked: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for record in self.records:
            self.names.setdefault(record.data, str(record.content["factors"]["data"]))
        graders = [record for record in self.records if record.kind == "grader"]
        newest: dict[tuple[Key, Unit], Record] = {}
        for record in sorted(graders, key=lambda r: (r.date, r.id)):
            if record.status == "done":
                before = newest.get((record.key, record.unit))
                self.older += [] if before is None else [before]
                newest[record.key, record.unit] = record
        for (key, _), record in sorted(newest.items(), key=lambda item: item[0][1]):
            self.groups.setdefault(key, []).append(record)
        for record in graders:
            if record.status != "done" and (record.key, record.unit) not in newest:
                self.failed.setdefault(record.key, []).append(record)

    @property
    def keys(self) -> set[Key]:
        """All settings that were run, tried or planned."""
        return {*self.groups, *self.failed, *self.planned}

    @cached_property
    def has_folds(self) -> bool:
        """Whether runs are repeated over folds, not over seeds alone."""
        planned = any(fold for units in self.planned.values() for fold, _ in units)
        return planned or any(record.fold for record in self.records)

    @property
    def repeats(self) -> str:
        """What runs of one setting differ in, in a word."""
        return "runs" if self.has_folds else "seeds"

    @cached_property
    def base(self) -> Condition:
        """What the summary is about: the main table's condition, else the commonest one."""
        counts = Counter(key.condition for key in self.keys)
        if not counts or MAIN in counts:
            return MAIN
        return max(counts, key=lambda c: (counts[c], repr(c)))

    @property
    def is_main(self) -> bool:
        """Whether that is the paper's main condition, but for the policies that DisMix has."""
        return replace(self.base, policies=MAIN.policies) == MAIN

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
        """Return a metric of each run of a setting."""
        return [*self.by_unit(key, metric).values()]

    def by_unit(self, key: Key, metric: str) -> dict[Unit, float]:
        """Return a metric of each run of a setting by its fold and seed, in their order."""
        found = ((record.unit, record.metric(metric)) for record in self.groups.get(key, []))
        return {unit: value for unit, value in found if value is not None}

    def scores(self, metric: str, condition: Condition | None = None) -> Scores:
        """Return means by (data set, grader) and mixer, each over all repeats that it has."""
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

    def pairs(self, metric: str, ours: str, condition: Condition | None = None) -> Pairs:
        """Return what a mixer is compared by with each other one, by (data set, grader).

        Settings without runs of ours are left out, as are mixers that share no fold with it.
        """
        condition = condition or self.base
        found: Pairs = {}
        for (data, grader), row in self.scores(metric, condition).items():
            if ours not in row:
                continue
            keys = {mixer: Key(data, grader, mixer, condition) for mixer in row}
            sides = {mixer: self.groups[key] for mixer, key in keys.items()}
            met = {m: pair_means(sides[ours], sides[m], metric) for m in row if m != ours}
            found[data, grader] = {m: pair for m, pair in met.items() if pair is not None}
        return found

    def compared_ids(self, ours: Key, theirs: Key, metric: str) -> tuple[str, ...]:
        """Return the ids of the runs that a comparison of two settings rests on."""
        sides = compared(self.groups.get(ours, []), self.groups.get(theirs, []), metric)
        return tuple(record.id for side in sides for record in side)

    def image_gains(self, ours: Key, theirs: Key, metric: str) -> Gains | None:
        """Return what ours gains on each test image; see `dismix.bench.report_pairs`."""
        return image_gains(self.groups.get(ours, []), self.groups.get(theirs, []), metric)

    def seed_gains(self, ours: Key, theirs: Key, metric: str, *, higher: bool) -> Gains:
        """Return what ours gains with each fold and seed that both have."""
        sides = [self.by_unit(key, metric) for key in (ours, theirs)]
        shared = sorted(sides[0].keys() & sides[1].keys())
        sign = 1 if higher else -1
        return np.array([sign * (sides[0][s] - sides[1][s]) for s in shared], np.float64)

    def paired_ids(self, ours: Key, theirs: Key, metric: str) -> tuple[str, ...]:
        """Return the ids of the runs behind `seed_gains`."""
        shared = self.by_unit(ours, metric).keys() & self.by_unit(theirs, metric).keys()
        return tuple(r.id for k in (ours, theirs) for r in self.groups[k] if r.unit in shared)

    def missing(self) -> Iterator[tuple[Key, list[Unit]]]:
        """Yield planned settings with the folds and seeds that have no finished run."""
        for key, units in self.left.items():
            yield key, sorted(units)


def mixer_name(name: str) -> str:
    """Return a mixer's name for readers."""
    return MIXERS.get(name, name)


def grader_name(name: str) -> str:
    """Return a grader's name for readers."""
    return GRADERS.get(name, name.upper() if len(name) <= 4 else name)


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
    records = tell_apart(records)
    runs = [run for run in runs if run.get("kind", "grader") == "grader"]
    planned = [_planned_key(run) for run in runs]
    usual = usual_dealings(records, planned)
    p, policies = _common([*(r.key for r in records if r.kind == "grader"), *planned])
    records = [replace(r, condition=without_dealing(r.key, usual)) for r in records]
    # Generators mix nothing: what is usual among mixers is none of their settings.
    records = [
        r if r.kind == "generator" else replace(r, condition=_beside(r.key, p, policies))
        for r in records
    ]
    study = Study(drop_usual(records, wanted))
    known = {record.id: record for record in study.records}
    for run, key in zip(runs, planned, strict=True):
        key = replace(key, condition=without_dealing(key, usual))
        key = replace(key, condition=_beside(key, p, policies))
        _plan(study, run, key, known.get(str(run.get("id"))))
    return study


def _common(keys: Iterable[Key]) -> tuple[float, str]:
    """Return the one probability of all runs with mixing and the policies of all of DisMix.

    Where they have several, the usual ones.
    """
    mixed = [key for key in keys if key.mixer != "none"]
    chances = {key.condition.p for key in mixed}
    policies = {key.condition.policies for key in mixed if key.mixer == "dismix"}
    return (
        chances.pop() if len(chances) == 1 else MAIN.p,
        policies.pop() if len(policies) == 1 else MAIN.policies,
    )


def _beside(key: Key, p: float, policies: str) -> Condition:
    """Return a setting's condition; what has no say there is as where it has.

    Without mixing no probability has, and policies in no mixer but DisMix: runs without stand
    beside the one probability, other mixers beside the one set of policies there is.
    """
    condition = replace(key.condition, p=p) if key.mixer == "none" else key.condition
    return condition if key.mixer == "dismix" else replace(condition, policies=policies)


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


def _planned_key(run: Mapping[str, Any]) -> Key:
    """Return the setting of a planned run.

    Such runs are told apart by their known factors and folds alone; others are not guessed.
    """
    factors = run["factors"]
    mixer = str(factors.get("mixer") or "none")
    condition = read_condition(factors, mixer)
    dealt = tuple(pair for pair in condition.other if pair[0] == FOLDS)
    data, grader = data_key(str(factors["data"])), str(factors.get("grader") or "").lower()
    return Key(data, grader, mixer, replace(condition, other=dealt))


def _plan(study: Study, run: Mapping[str, Any], wanted: Key, record: Record | None) -> None:
    """Note a planned run: its setting, and whether its record is there and done."""
    factors = run["factors"]
    study.names.setdefault(wanted.data, str(factors["data"]))
    key = wanted if record is None else record.key
    if run.get("blocked") and record is None:
        study.blocked[str(run["blocked"])] += 1
    unit = (read_fold(factors)[0], int(factors.get("seed", 0)))
    study.planned.setdefault(key, set()).add(unit)
    if record is None or record.status != "done":
        study.left.setdefault(key, set()).add(unit)
