"""Runs with equal factors and other settings: told apart, never averaged.

A plan may be run again with other epochs, another recipe or another way of simulating
annotators. The factors of such runs are the same; what differs is in their configs. The
settings that differ become further factors, and what is usual among them is left out again, so
that the main table holds runs of one kind and the others are shown beside it. What all mixers
share, as epochs, is usual or not for all of them alike: one that was run with fewer epochs only
is not compared with the rest. Generators and timed runs are told apart among themselves.

Folds of one dealing are repeats of one setting. Runs on folds and runs on the data's own split,
or on folds of another dealing, are of different kinds, for all mixers alike.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from dismix.bench.report_data import FOLDS, MAIN, Condition, Key, Record

_ABSENT = "not given"
#: What follows from which fold is held out: no setting of its own.
_OF_A_FOLD = ("data.content", "data.counts.", "data.derivation.fold.", "generator.id",
              "generator.given")  # fmt: skip
#: The run's own seed. Seeds of votes, splits and generators are settings: folds have no digest
#: that would tell of them.
_REPEAT = "seed"
#: What follows from a generator's own seed, which a run that measures generators has for its own.
_OF_A_GENERATOR = ("generator.id", "generator.seed")
#: What the data are, and how they came to be that.
_CONTENT, _DERIVED = "data.content", "data.derivation."
#: What folds were dealt of.
_SOURCE = "data.source"
#: Settings that each mixer may have of its own.
_OWN = ("mixer", "generator", "grader.mix_from", "grader.mix_until")
Dealings = Mapping[tuple[str, str], str]
"""(data set, grader) -> number of folds that is usual there, "none" for the data's own split."""


def tell_apart(records: list[Record]) -> list[Record]:
    """Add settings as factors where finished runs of equal factors differ in them."""
    flat = _derived_alike({r.id: _settings(r) for r in records})
    shared = {name: _shared(settings) for name, settings in flat.items()}
    paths: dict[str, set[str]] = {}
    for kind in {record.kind for record in records}:
        done = [r for r in records if r.status == "done" and r.kind == kind]
        rivals, found = [r for r in done if shared[r.id]], paths.setdefault(kind, set())
        # Runs that some settings part are looked at again on each side of them: digests that
        # were passed over beside those settings may still differ there.
        while more := (
            _conflicts(done, flat, found, lambda r: r.key)
            | _conflicts(rivals, shared, found, _rivalry)
        ):
            found |= more
    return [
        _with_other(r, {p: v for p, v in flat[r.id].items() if p in paths[r.kind]}) for r in records
    ]


def _conflicts(
    records: Iterable[Record],
    settings: Mapping[str, Mapping[str, str]],
    known: Set[str],
    place: Callable[[Record], Any],
) -> set[str]:
    """Return what runs of one place differ in though they have the same known settings."""
    groups: dict[Any, list[Mapping[str, str]]] = {}
    for record in records:
        given = settings[record.id]
        values = tuple(given.get(path) for path in sorted(known))
        groups.setdefault((place(record), values), []).append(given)
    return {path for group in groups.values() for path in _differing(group)}


def _rivalry(record: Record) -> Any:
    """Return what runs that tables compare have in common, whatever mixes."""
    return record.data, record.grader, _without_own(record.condition)


def _without_own(condition: Condition) -> Condition:
    """Return a condition without what each mixer has of its own."""
    return replace(condition, p=MAIN.p, policies=MAIN.policies, ablation=MAIN.ablation)


def _is_shared(path: str) -> bool:
    return not any(path == own or path.startswith(f"{own}.") for own in _OWN)


def _shared(settings: Mapping[str, str]) -> dict[str, str]:
    return {path: value for path, value in settings.items() if _is_shared(path)}


def _settings(record: Record) -> dict[str, str]:
    found = flatten(record.content.get("config") or {})
    follows: tuple[str, ...] = _OF_A_FOLD if record.fold else ()
    follows += _OF_A_GENERATOR if record.kind == "generator" else ()
    return {path: value for path, value in found.items() if not path.startswith(follows)}


def _derived_alike(flat: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Return settings in which data of the same content came to be so in the same way.

    Images, votes and splits may come in a table or be made by a plan: runs on them are the same.
    """
    first: dict[str, dict[str, str]] = {}
    changed = {}
    for name in sorted(flat):
        derived = {path: v for path, v in flat[name].items() if path.startswith(_DERIVED)}
        if content := flat[name].get(_CONTENT):
            derived = first.setdefault(content, derived)
        rest = {path: v for path, v in flat[name].items() if not path.startswith(_DERIVED)}
        changed[name] = rest | derived
    return changed


def _differing(group: list[Mapping[str, str]]) -> set[str]:
    found = {
        path: {given.get(path) for given in group}
        for path in {path for given in group for path in given} - {_REPEAT}
    }
    # Older records do not tell.
    found.get(_SOURCE, set()).discard(None)
    found = {path: values for path, values in found.items() if len(values) > 1}
    # Digests follow from settings; they speak only where nothing else does.
    words = {path for path, values in found.items() if not any(map(_is_digest, values))}
    return words or {*found}


def _is_digest(value: str | None) -> bool:
    text = value or ""
    return len(text) >= 12 and all(c in "0123456789abcdef" for c in text)


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


def usual_dealings(records: Iterable[Record], planned: Iterable[Key]) -> Dealings:
    """Return into how many folds data are usually dealt: as planned now, else as most runs were.

    One number for all mixers of a data set and grader: else two of them would be compared on
    different test images.

    Args:
        records: All runs.
        planned: Settings of the runs that plans ask for.
    """
    found = _counted(record.key for record in records) | _counted(planned)
    return {
        place: max(counts, key=lambda dealt: (counts[dealt], dealt))
        for place, counts in found.items()
    }


def _counted(keys: Iterable[Key]) -> dict[tuple[str, str], Counter[str]]:
    counts: dict[tuple[str, str], Counter[str]] = {}
    for key in keys:
        counts.setdefault((key.data, key.grader), Counter())[_dealing(key.condition)] += 1
    return counts


def _dealing(condition: Condition) -> str:
    return dict(condition.other).get(FOLDS, "none")


def without_dealing(key: Key, usual: Dealings) -> Condition:
    """Return a setting's condition, its number of folds left out where it is the usual one."""
    others = {name: value for name, value in key.condition.other if name != FOLDS}
    dealt = _dealing(key.condition)
    if dealt != usual.get((key.data, key.grader), "none"):
        others[FOLDS] = dealt
    return replace(key.condition, other=tuple(sorted(others.items())))


def drop_usual(records: list[Record], wanted: Set[str] = frozenset()) -> list[Record]:
    """Leave out further factors at their usual value, so that they mark what is unusual.

    Usual is what most runs of the same kind, data set and grader have and, of settings that are
    a mixer's own, of the same mixer: of those that the plans ask for now, where there are any. In
    a draw the later one is usual. What follows from the data, such as their digest, is another
    for scarce or clean ones, so its usual value is that of runs of the same condition.

    Args:
        records: All runs.
        wanted: Ids of the runs that plans ask for.
    """
    names = sorted({name for r in records for name, _ in r.condition.other} - {FOLDS})
    if not names:
        return records
    usual = []
    for shared, follows in product((True, False), repeat=2):
        some = [n for n in names if (_is_shared(n), n.startswith(_OF_A_FOLD)) == (shared, follows)]
        place = partial(_place, shared=shared, follows=follows)
        usual.append((place, _usual_by(records, some, wanted, place)))
    changed = []
    for record in records:
        given = dict.fromkeys(names, _ABSENT) | dict(record.condition.other)
        common: dict[str, str] = {}
        for place, values in usual:
            common |= values[place(record)]
        odd = {name: value for name, value in given.items() if value != common.get(name)}
        changed.append(_with_other(record, odd, new=True))
    return changed


def _place(record: Record, *, shared: bool, follows: bool) -> tuple[Any, ...]:
    """Return among which runs a setting has its usual value.

    Args:
        record: A run.
        shared: It is a setting of all mixers alike.
        follows: It follows from the data.
    """
    where = (record.kind, record.data, record.grader, "" if shared else record.mixer)
    if not follows:
        return where
    plain = replace(record.condition, other=())
    return (*where, _without_own(plain) if shared else plain)


def _usual_by(
    records: list[Record], names: list[str], wanted: Set[str], place: Callable[[Record], Any]
) -> dict[Any, dict[str, str]]:
    """Return the usual values of some names at each place."""
    cells: dict[Any, list[Record]] = {}
    for record in records:
        cells.setdefault(place(record), []).append(record)
    return {where: _usual(cell, names, wanted) for where, cell in cells.items()}


def _usual(cell: list[Record], names: list[str], wanted: Set[str]) -> dict[str, str]:
    """Return the commonest values in a cell, all names together: values of one kind of run."""
    asked = [r for r in cell if r.id in wanted] or cell
    asked = [r for r in asked if FOLDS not in dict(r.condition.other)] or asked

    def values(record: Record) -> tuple[str, ...]:
        given = dict(record.condition.other)
        return tuple(given.get(name, _ABSENT) for name in names)

    counts = Counter(values(record) for record in asked)
    latest: dict[tuple[str, ...], str] = {}
    for record in asked:
        latest[values(record)] = max(latest.get(values(record), ""), record.date)
    best = max(counts, key=lambda found: (counts[found], latest[found], found))
    return dict(zip(names, best, strict=True))


def _with_other(record: Record, other: Mapping[str, str], *, new: bool = False) -> Record:
    before = {} if new else dict(record.condition.other)
    pairs = tuple(sorted((before | dict(other)).items()))
    return replace(record, condition=replace(record.condition, other=pairs))
