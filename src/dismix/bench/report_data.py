"""Records as the report sees them: read, named alike, grouped by setting."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dismix.bench.paper import DATA, GRADERS, MIXERS, data_key
from dismix.errors import DisMixError

FORMAT = 1
#: The paper's simulations and its names for them, in per cent.
VARIABILITY = {"60/20": 30, "70/40": 50, "90/60": 70}
_KNOWN = {
    "data", "grader", "mixer", "seed", "p", "annotators", "scarcity", "variability", "policies",
    "labels", "ablation",
}  # fmt: skip
#: Further factor: into how many folds the data were dealt. Which fold is part of the repeat.
FOLDS = "folds"
Unit = tuple[int, int]
"""Fold, from 1 (0 where none), and seed: what pairs runs of two settings."""


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
        other: Any further factors, see `dismix.bench.report_conflicts`.
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
    """One run; `data`, `grader` and `mixer` are keys, `content` is the rest of its file.

    `fold` is the fold that was held out, from 1; 0 where nothing was dealt into folds.
    """

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
    fold: int = 0

    @property
    def unit(self) -> Unit:
        """Which repeat of its setting it is."""
        return self.fold, self.seed

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
    """A setting: all runs with it differ in their fold and seed alone."""

    data: str
    grader: str
    mixer: str
    condition: Condition = MAIN


def read_records(folder: Path, wanted: Collection[str] | None = None) -> list[Record]:
    """Return the records of a benchmark folder, by id.

    Args:
        folder: Holds ``records``.
        wanted: Ids to read; all when None.

    Raises:
        DisMixError: No records, or one that cannot be understood.
    """
    # Hidden files are halves of records that somebody is writing, or was when killed.
    found = (path for path in (folder / "records").glob("*.json") if path.name[0] != ".")
    paths = sorted(path for path in found if wanted is None or path.stem in wanted)
    if not paths:
        raise DisMixError(
            "no records here", file=folder / "records", cure="`dismix bench run` makes them"
        )
    return [_read(path) for path in paths]


def _read(path: Path) -> Record:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = content["format"]
        if found != FORMAT:
            raise DisMixError(f"record of format {found}, not {FORMAT}", file=path)
        factors = content["factors"]
        if content["id"] != path.stem:
            # As `dismix.bench.folder` has it: a copy under another name would count twice.
            raise ValueError(f"it is of {content['id']}")
        content |= {name: dict(content.get(name) or {}) for name in ("metrics", "provenance")}
        mixer = str(factors.get("mixer") or "none")
        return Record(
            id=str(content["id"]),
            kind=str(content.get("kind", "grader")),
            status=str(content["status"]),
            data=data_key(str(factors["data"])),
            grader=str(factors.get("grader") or "").lower(),
            mixer=mixer,
            seed=int(factors.get("seed", content.get("seed", 0))),
            condition=read_condition(factors, mixer),
            predictions=_predictions(content.pop("predictions", None)),
            content=content,
            fold=read_fold(factors)[0],
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
    if not len(names) == len(grade) == len(label):
        raise ValueError(f"{len(label)} decisions on {len(names)} images")
    return Predictions(tuple(str(name) for name in names), grade, label)


def read_fold(factors: Mapping[str, Any]) -> tuple[int, str]:
    """Return the number of the fold that was held out, and of how many; (0, "") for none.

    Example:
        >>> read_fold({"fold": "2/5"}), read_fold({})
        ((2, '5'), (0, ''))
    """
    number, _, of = str(factors.get("fold", "")).partition("/")
    return (int(number), of) if number.isdecimal() and of.isdecimal() else (0, "")


def unit_words(unit: Unit) -> str:
    """Return which repeat is meant.

    Example:
        >>> unit_words((0, 3)), unit_words((2, 0))
        ('3', 'fold 2 seed 0')
    """
    return f"fold {unit[0]} seed {unit[1]}" if unit[0] else str(unit[1])


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
    if dealt := read_fold(factors)[1]:
        # Which fold tells repeats apart; of how many, kinds of runs.
        del other["fold"]
        other[FOLDS] = dealt
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
