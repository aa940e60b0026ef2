"""What a plan may hold, checked with one-line errors that name file, field and near names."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dismix.errors import DisMixError
from dismix.registry import near_names

KINDS = ("grader", "generator", "overhead")
LABELS = ("votes", "clean")
VARIABILITIES: tuple[Any, ...] = ("auto", "own", 30, 50, 70)
#: Every factor and the value it has where a plan does not name it.
DEFAULTS: dict[str, Any] = {
    "grader": "cloc", "mixer": "none", "seed": 0, "p": 0.5, "variability": "auto",
    "scarcity": 1.0, "labels": "votes", "policies": "combined", "ablation": "full",
    "fold": "none",
}  # fmt: skip
_OF_GENERATORS = ("seed", "variability", "scarcity", "labels", "ablation", "fold")
#: The factor without a usual value: all data sets that there are.
DATA = "data"
#: Sections whose names are settings, with the names where they are fixed.
SECTIONS: dict[str, tuple[str, ...]] = {
    "settings": (),
    "mixers": (),
    "generator": ("arch", "recipe", "size", "weights", "seed", "settings"),
    "votes": ("annotators", "mode", "seed", "lower", "upper", "p_split"),
    "validation": ("share", "seed", "own"),
    "scarcity": ("at_least", "seed"),
}
#: Numbers in sections: whether they are whole, their bounds, and words for them.
_WHOLE = (int, 0, math.inf, "a whole number >= 0")
_NUMBERS: dict[str, tuple[type, float, float, str]] = {
    "generator.seed": _WHOLE, "votes.seed": _WHOLE, "validation.seed": _WHOLE,
    "scarcity.seed": _WHOLE, "scarcity.at_least": _WHOLE, "votes.lower": _WHOLE,
    "votes.upper": _WHOLE, "votes.annotators": (int, 1, math.inf, "a whole number >= 1"),
    "votes.p_split": (float, 0, 1, "a number from 0 to 1"),
    "validation.share": (float, 0, 1, "a number between 0 and 1"),
}  # fmt: skip
#: Settings of sections that are names.
_TEXTS = ("generator.arch", "generator.recipe", "votes.mode")
_COST = ("images_per_s", "generator_images_per_s", "hardware", "mixers")


def known_factors(kind: str) -> list[str]:
    """Return the factors that runs of a kind have.

    Example:
        >>> known_factors("generator")
        ['seed', 'variability', 'scarcity', 'labels', 'ablation', 'fold']
    """
    return [*_OF_GENERATORS] if kind == "generator" else [*DEFAULTS]


def check_content(content: Any, known: Sequence[str], file: str | Path) -> dict[str, Any]:
    """Return the content of a plan's file as fields of `Plan`, or raise at the first mistake.

    Args:
        content: What the file holds.
        known: Names of the fields.
        file: To name in messages.
    """
    if not isinstance(content, Mapping):
        raise DisMixError("is no plan", file=file, cure="write fields such as 'factors:'")
    _names(content, known, file, "plan")
    kind = content.get("kind", "grader")
    _one_of(kind, KINDS, file, "kind")
    found = dict(content)
    found["title"] = str(content.get("title") or "")
    if "preset" in content:
        found["preset"] = _text(content["preset"], file, "preset")
    found["data"] = tuple(str(name) for name in _list(content.get("data", []), file, "data"))
    found["phantoms"] = {
        name: _mapping(inner, file, f"phantoms.{name}")
        for name, inner in _mapping(content.get("phantoms"), file, "phantoms").items()
    }
    blocks = content.get("factors")
    blocks = blocks if isinstance(blocks, Sequence) and not isinstance(blocks, str) else [blocks]
    found["factors"] = tuple(_block(block, kind, file) for block in blocks or [None])
    for section in SECTIONS:
        found[section] = check_section(section, content.get(section), file)
    found["overrides"] = tuple(
        _override(item, kind, file)
        for item in _list(content.get("overrides", []), file, "overrides")
    )
    found["skip"] = tuple(
        _condition(item, kind, file) for item in _list(content.get("skip", []), file, "skip")
    )
    if not all(found["skip"]):
        raise DisMixError(
            "a rule without factors leaves out every run", file=file, column="skip",
            cure="name one, as in {mixer: none, p: 0.3}, or remove the rule",
        )  # fmt: skip
    found["cost"] = _mapping(content.get("cost"), file, "cost")
    _names(found["cost"], _COST, file, "cost")
    rates = {f"cost.{n}": v for n, v in found["cost"].items() if n.endswith("_per_s")}
    costs = _mapping(found["cost"].get("mixers"), file, "cost.mixers")
    for column, value in (rates | {f"cost.mixers.{n}": v for n, v in costs.items()}).items():
        if not _is(value, float) or value <= 0:
            raise DisMixError(
                f"{value!r} is not allowed", file=file, column=column, cure="give a number above 0"
            )
    return found


def check_section(section: str, content: Any, file: str | Path) -> dict[str, Any]:
    """Return a section's content with its names checked."""
    found = _mapping(content, file, section)
    if SECTIONS[section]:
        _names(found, SECTIONS[section], file, section)
    if section == "mixers":
        from dismix.mixing.registry import MIXERS

        for name in found:
            _one_of(name, [*MIXERS], file, "mixers")
        found = {name: _mapping(inner, file, f"mixers.{name}") for name, inner in found.items()}
        for name, inner in found.items():
            for factor in inner.keys() & {"p", "policies"}:
                raise DisMixError(
                    "is a factor, no option", file=file, column=f"mixers.{name}.{factor}",
                    cure=f"name it under factors, or --set {factor}=...",
                )  # fmt: skip
    if section == "generator" and "settings" in found:
        # A field that is written and left empty reads as None.
        found["settings"] = _mapping(found["settings"], file, "generator.settings")
    for name, value in found.items():
        if f"{section}.{name}" in _NUMBERS:
            found[name] = _bounded(value, f"{section}.{name}", file)
        if f"{section}.{name}" in _TEXTS:
            found[name] = _text(value, file, f"{section}.{name}")
    if section == "validation" and "own" in found:
        _one_of(found["own"], ("keep", "merge"), file, "validation.own")
    return found


def _bounded(value: Any, column: str, file: str | Path) -> Any:
    """Return a number of a section within its bounds."""
    kind, low, high, words = _NUMBERS[column]
    if not _is(value, kind) or not low <= value <= high:
        raise DisMixError(
            f"{value!r} is not allowed", file=file, column=column, cure=f"give {words}"
        )
    # Ids of runs are made of these values: 1 and 1.0 would be two runs.
    return int(value) if kind is int else value


def _is(value: Any, kind: type) -> bool:
    """Tell whether a value is a finite number, and whole where that is asked for."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and kind(value) == value


def _block(block: Any, kind: str, file: str | Path) -> dict[str, tuple[Any, ...]]:
    mapping = _mapping(block, file, "factors")
    if not mapping:
        raise DisMixError("has no factors", file=file, column="factors", cure="name one: seed: [0]")
    _names(mapping, [DATA, *known_factors(kind)], file, "factors")
    return {name: factor_values(name, values, file) for name, values in mapping.items()}


def factor_values(name: str, values: Any, file: str | Path) -> tuple[Any, ...]:
    """Return the checked values of a factor; a single one may stand alone."""
    listed = values if isinstance(values, list | tuple) else [values]
    if not listed:
        raise DisMixError("has no values", file=file, column=name, cure="give one at least")
    return tuple(_factor_value(name, value, file) for value in listed)


def _factor_value(name: str, value: Any, file: str | Path) -> Any:
    if name == "seed":
        return _number(value, int, value_ok=lambda v: v >= 0, file=file, column=name)
    if name == "p":
        return _number(value, float, value_ok=lambda v: 0 < v <= 1, file=file, column=name)
    if name == "scarcity":
        return _number(value, float, value_ok=lambda v: 0 < v <= 1, file=file, column=name)
    if name == "variability":
        return _one_of(value, VARIABILITIES, file, name)
    if name == "labels":
        return _one_of(value, LABELS, file, name)
    if name == "mixer":
        from dismix.mixing.registry import MIXERS

        return _one_of(value, ["none", *MIXERS], file, name)
    if name == "fold":
        return _fold(value, file)
    if name == "policies" and isinstance(value, list):
        value = "+".join(str(item) for item in value)
    return _text(value, file, name)


def _fold(value: Any, file: str | Path) -> str:
    """Return "2/5" for the second of five folds, or "none"."""
    number, slash, of = str(value).partition("/")
    right = slash and number.isdecimal() and of.isdecimal()
    if str(value) != "none" and not (right and int(of) >= 2 and 1 <= int(number) <= int(of)):
        raise DisMixError(
            f"'{value}' is no fold", file=file, column="fold", cure="write 2/5 for the second of 5"
        )
    # Ids and tables are made of these words: 02/5 would be another fold.
    return f"{int(number)}/{int(of)}" if slash else "none"


def _number(value: Any, kind: type, *, value_ok: Any, file: str | Path, column: str) -> Any:
    if not _is(value, kind) or not value_ok(value):
        words = "whole numbers >= 0" if kind is int else "numbers above 0 and up to 1"
        raise DisMixError(
            f"{value!r} is not allowed", file=file, column=column, cure=f"give {words}"
        )
    return kind(value)


def _override(item: Any, kind: str, file: str | Path) -> dict[str, Any]:
    mapping = _mapping(item, file, "overrides")
    _names(mapping, ["when", *SECTIONS], file, "overrides")
    if "when" not in mapping:
        raise DisMixError(
            "does not say when it holds", file=file, column="overrides",
            cure="add when: {data: NAME}",
        )  # fmt: skip
    found: dict[str, Any] = {"when": _condition(mapping["when"], kind, file)}
    sections = [name for name in mapping if name != "when"]
    return found | {name: check_section(name, mapping[name], file) for name in sections}


def _condition(item: Any, kind: str, file: str | Path) -> dict[str, tuple[Any, ...]]:
    mapping = _mapping(item, file, "when")
    _names(mapping, [DATA, *known_factors(kind)], file, "when")
    return {name: factor_values(name, values, file) for name, values in mapping.items()}


def _names(given: Mapping[str, Any], known: Sequence[str], file: str | Path, where: str) -> None:
    for name in given:
        if name not in known:
            raise DisMixError(
                f"unknown field '{name}' in {where}",
                file=file,
                column=str(name),
                cure=near_names(str(name), [*known]),
            )


def _one_of(value: Any, known: Sequence[Any], file: str | Path, column: str) -> Any:
    if value not in known or isinstance(value, bool):
        raise DisMixError(
            f"'{value}' is not a choice",
            file=file,
            column=column,
            cure=near_names(str(value), [str(choice) for choice in known]),
        )
    # Ids of runs are made of it: 30.0 is 30.
    return known[known.index(value)]


def _text(value: Any, file: str | Path, column: str) -> str:
    """Return a name; it may read like a number."""
    if not isinstance(value, str | int | float) or isinstance(value, bool) or value == "":
        raise DisMixError(f"{value!r} is no name", file=file, column=column, cure="give one")
    return str(value)


def _mapping(value: Any, file: str | Path, column: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise DisMixError(
            f"{value!r} is no mapping", file=file, column=column, cure="write NAME: VALUE below it"
        )
    return {str(name): inner for name, inner in value.items()}


def _list(value: Any, file: str | Path, column: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise DisMixError(f"{value!r} is no list", file=file, column=column, cure="write [A, B, C]")
    return [*value]
