"""Records as the report sees them: read, named alike, grouped by setting."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dismix.bench.paper import DATA, GRADERS, MIXERS, data_key
from dismix.errors import DisMixError

FORMAT = 1
_ABSENT = "not given"
#: The paper's simulations and its names for them, in per cent.
VARIABILITY = {"60/20": 30, "70/40": 50, "90/60": 70}
_KNOWN = {
    "data", "grader", "mixer", "seed", "p", "annotators", "scarcity", "variability", "policies",
    "labels", "ablation",
}  # fmt: skip


@dataclass(frozen=True)
class Condition:
    """What a run was done under; the defaults are those of the paper's main table.

    Attributes:
        scarcity: Share of the training images.
        variability: Of the simulated annotators, in the paper's per cent; real votes keep 30.
        labels: "votes" or "clean".
        p: Mixing probability.
        policies: Of DisMix.
        ablation: What the generator goes without.
        other: Any further factors, those that all runs share left out.
    """

    scarcity: float = 1.0
    variability: int = 30
    labels: str = "votes"
    p: float = 0.5
    policies: str = "combined"
    ablation: str = "full"
    other: tuple[tuple[str, str], ...] = ()


MAIN = Condition()


@dataclass(frozen=True)
class Predictions:
    """Decisions on the test images: names (N,), true grades (N,), decisions (N,)."""

    image: tuple[str, ...]
    grade: NDArray[np.int64]
    label: NDArray[np.int64]


@dataclass(frozen=True)
class Record:
    """One run; `data`, `grader` and `mixer` are keys, `content` is the rest of its file."""

    id: str
    kind: str
    status: str
    data: str
    grader: str
    mixer: str
    seed: int
    condition: Condition
    predictions: Predictions | None
    content: Mapping[str, Any]

    @property
    def key(self) -> "Key":
        """The setting it belongs to."""
        return Key(self.data, self.grader, self.mixer, self.condition)

    @property
    def date(self) -> str:
        """When it was made."""
        return str(self.content["provenance"].get("date", ""))

    def metric(self, name: str) -> float | None:
        """Return a number among its metrics, None if there is none."""
        value = self.content["metrics"].get(name)
        return float(value) if isinstance(value, int | float) else None

    def number(self, name: str) -> float | None:
        """Return a number beside its metrics: wall_s, images_seen, ..."""
        value = self.content.get(name)
        return float(value) if isinstance(value, int | float) else None


@dataclass(frozen=True)
class Key:
    """A setting: all runs with it differ in their seed alone."""

    data: str
    grader: str
    mixer: str
    condition: Condition = MAIN


def read_records(folder: Path) -> list[Record]:
    """Return the records of a benchmark folder, by id.

    Raises:
        DisMixError: No records, or one that cannot be understood.
    """
    paths = sorted((folder / "records").glob("*.json"))
    if not paths:
        raise DisMixError(
            "no records here", file=folder / "records", cure="`dismix bench run` makes them"
        )
    return drop_usual(tell_apart([_read(path) for path in paths]))


def _read(path: Path) -> Record:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = content["format"]
        if found != FORMAT:
            raise DisMixError(f"record of format {found}, not {FORMAT}", file=path)
        factors = content["factors"]
        content.setdefault("metrics", {})
        content["metrics"] = content["metrics"] or {}
        content["provenance"] = content.get("provenance") or {}
        mixer = str(factors.get("mixer") or "none")
        return Record(
            id=str(content["id"]),
            kind=str(content.get("kind", "grader")),
            status=str(content["status"]),
            data=data_key(str(factors["data"])),
            grader=str(factors.get("grader", "")).lower(),
            mixer=mixer,
            seed=int(factors.get("seed", content.get("seed", 0))),
            condition=read_condition(factors, mixer),
            predictions=_predictions(content.pop("predictions", None)),
            content=content,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DisMixError(
            f"not a record of a run ({type(error).__name__}: {error})", file=path,
            cure="remove it, and run the plan again",
        ) from error  # fmt: skip


def _predictions(given: Mapping[str, Any] | None) -> Predictions | None:
    if not given or not given.get("label") or not given.get("grade"):
        return None
    grade, label = (np.asarray(given[name], np.int64) for name in ("grade", "label"))
    names = given.get("image") or range(len(grade))
    return Predictions(tuple(str(name) for name in names), grade, label)


def read_condition(factors: Mapping[str, Any], mixer: str) -> Condition:
    """Return the condition that a record's factors tell of.

    Example:
        >>> read_condition({"annotators": "70/40", "p": 0.3}, "dismix").variability
        50
        >>> read_condition({"labels": "clean", "policies": "order_swap"}, "mixup").policies
        'combined'
    """
    variability = factors.get("variability")
    if variability is None:
        variability = VARIABILITY.get(str(factors.get("annotators", "")).split(" ")[0], 30)
    # "auto" and "own" are votes as the data have them.
    text = str(variability).rstrip(" %")
    percent = float(text) if text.replace(".", "", 1).isdigit() else 30.0
    percent = percent * 100 if 0 < percent <= 1 else percent
    clean = factors.get("labels") == "clean" or percent == 0
    policies = factors.get("policies") or "combined"
    policies = policies if isinstance(policies, str) else "+".join(map(str, policies))
    p = factors.get("p")
    other = {name: value for name, value in factors.items() if name not in _KNOWN}
    return Condition(
        scarcity=float(factors.get("scarcity") or 1.0),
        variability=30 if clean else round(percent),
        labels="clean" if clean else "votes",
        # Without mixing nothing depends on its settings.
        p=0.5 if p is None or mixer == "none" else float(p),
        policies=policies if mixer == "dismix" else "combined",
        ablation=str(factors.get("ablation") or "full"),
        other=tuple(sorted((name, str(value)) for name, value in other.items())),
    )


def tell_apart(records: list[Record]) -> list[Record]:
    """Add settings as factors where runs of equal factors and seed differ in them.

    A plan may be run twice with other settings (epochs, the way annotators are simulated); such
    runs must not be averaged. The settings that tell them apart become factors of all runs.
    """
    twins: dict[tuple[str, Key, int], list[Record]] = {}
    for record in records:
        if record.status == "done":
            twins.setdefault((record.kind, record.key, record.seed), []).append(record)
    paths: set[str] = set()
    flat = {r.id: flatten(r.content.get("config") or {}) for r in records}
    for group in twins.values():
        for one, two in pairwise(group):
            a, b = flat[one.id], flat[two.id]
            paths |= {path for path in a.keys() | b.keys() if a.get(path) != b.get(path)}
    if not paths:
        return records
    return [_with_other(r, {p: flat[r.id][p] for p in paths if p in flat[r.id]}) for r in records]


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the leaves of nested settings by their dotted path.

    Example:
        >>> flatten({"epochs": 3, "votes": {"mode": "per_vote"}})
        {'epochs': '3', 'votes.mode': 'per_vote'}
    """
    found: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            found |= flatten(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value if isinstance(value, str) else json.dumps(value)
    return found


def drop_usual(records: list[Record]) -> list[Record]:
    """Leave out further factors at their usual value, so that they mark what is unusual.

    Usual is what most runs of the same data set, grader and mixer have; where that is a draw,
    what most runs of the data set have.
    """
    counts: Counter[tuple[str, ...]] = Counter()
    names = sorted({name for r in records for name, _ in r.condition.other})
    for record in records:
        given = dict(record.condition.other)
        for name in names:
            value = given.get(name, _ABSENT)
            counts[record.data, name, value] += 1
            counts[record.data, record.grader, record.mixer, name, value] += 1
    values = {name: {v for key in counts if key[-2] == name for v in [key[-1]]} for name in names}

    def usual(record: Record, name: str) -> str:
        place = (record.data, record.grader, record.mixer, name)
        return min(
            values[name],
            key=lambda v: (-counts[*place, v], -counts[record.data, name, v], v == _ABSENT, v),
        )

    changed = []
    for record in records:
        given = dict.fromkeys(names, _ABSENT) | dict(record.condition.other)
        changed.append(
            _with_other(record, {n: v for n, v in given.items() if v != usual(record, n)}, new=True)
        )
    return changed


def _with_other(record: Record, other: Mapping[str, str], *, new: bool = False) -> Record:
    before = {} if new else dict(record.condition.other)
    pairs = tuple(sorted((before | dict(other)).items()))
    return replace(record, condition=replace(record.condition, other=pairs))


def order_of(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return names in the paper's order, unknown ones behind, by alphabet.

    Example:
        >>> order_of(["zeta", "koa", "alpha", "idrid"], ["idrid", "koa"])
        ['idrid', 'koa', 'alpha', 'zeta']
    """
    places = {name: place for place, name in enumerate(known)}
    return sorted(set(names), key=lambda name: (places.get(name, len(places)), name))


def data_order(names: Iterable[str]) -> list[str]:
    """Return keys of data sets in the paper's order."""
    return order_of(names, DATA)


def grader_order(names: Iterable[str]) -> list[str]:
    """Return names of graders in the paper's order."""
    return order_of(names, GRADERS)


def mixer_order(names: Iterable[str]) -> list[str]:
    """Return names of mixers in the paper's order, DisMix last."""
    found = order_of(names, MIXERS)
    return sorted(found, key=lambda name: name == "dismix")
