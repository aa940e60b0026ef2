"""From a plan's factors to cells, and from a cell to the settings that hold in it."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from dismix.bench.plan import Plan
from dismix.bench.plan_checks import DATA, DEFAULTS, SECTIONS, known_factors
from dismix.data.annotators.simulate import PRESETS

Cell = dict[str, Any]


def cells(plan: Plan, data: Sequence[str]) -> list[Cell]:
    """Cross a plan's factors with data sets: {"data": name, factor: value, ...}.

    Seeds come outermost, so that a study cut short has some seeds of everything rather than
    all seeds of something.

    Example:
        >>> from dismix.bench.plan import make_plan
        >>> plan = make_plan({"factors": {"mixer": ["none", "mixup"], "seed": [0, 1]}}, "p")
        >>> [(c["mixer"], c["seed"]) for c in cells(plan, ["a"])]
        [('none', 0), ('mixup', 0), ('none', 1), ('mixup', 1)]
    """
    found: list[Cell] = []
    for block in plan.factors:
        values = {name: block.get(name, (DEFAULTS[name],)) for name in known_factors(plan.kind)}
        order = [name for name in block if name not in (DATA, "seed")]
        order += [name for name in values if name not in order and name != "seed"]
        wanted = [name for name in data if matches({DATA: name}, _only_data(block))]
        for chosen in itertools.product(wanted, *(values[name] for name in order)):
            for seed in values["seed"]:
                found.append({"data": chosen[0], **dict(zip(order, chosen[1:], strict=True)),
                              "seed": seed})  # fmt: skip
    kept = [cell for cell in found if not any(matches(cell, rule) for rule in plan.skip)]
    return sorted(kept, key=lambda cell: int(cell["seed"]))


def chosen_data(plan: Plan) -> tuple[str, ...] | None:
    """Return the data sets that a plan's blocks name as a factor; None where one takes all."""
    if any(DATA not in block for block in plan.factors):
        return None
    return tuple(dict.fromkeys(name for block in plan.factors for name in block[DATA]))


def _only_data(block: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    return {name: values for name, values in block.items() if name == DATA}


def matches(cell: Mapping[str, Any], when: Mapping[str, Sequence[Any]]) -> bool:
    """Tell whether a cell has one of the wanted values of every factor; data by any case."""
    return all(
        str(cell[name]).lower() in [str(v).lower() for v in values]
        if name == DATA
        else cell[name] in values
        for name, values in when.items()
    )


def sections(plan: Plan, cell: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the plan's sections with the overrides that hold in a cell."""
    found: dict[str, dict[str, Any]] = {name: _merged({}, getattr(plan, name)) for name in SECTIONS}
    for override in plan.overrides:
        if matches(cell, override["when"]):
            for name in SECTIONS:
                found[name] = _merged(found[name], override.get(name, {}))
    return found


def _merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for name, value in change.items():
        old = result.get(name)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[name] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return result


def factors(kind: str, cell: Mapping[str, Any], variability: Any) -> dict[str, Any]:
    """Return what tables pivot on: all factors, None where a factor has no say.

    A mixer's policies say nothing about Mixup and a probability nothing about no mixing, so
    cells that differ by those alone are one and the same run.

    Args:
        kind: Of the run.
        cell: From `cells`.
        variability: What "auto" came to: "own" or per cent.

    Example:
        >>> cell = {"data": "a", **DEFAULTS}
        >>> found = factors("grader", cell, 30)
        >>> found["p"], found["annotators"], found["policies"]
        (None, '60/20', None)
    """
    clean = cell["labels"] == "clean"
    shown: dict[str, Any] = {"data": cell["data"], "seed": cell["seed"], "labels": cell["labels"]}
    shown["scarcity"] = cell["scarcity"]
    if cell["fold"] != "none":
        shown["fold"] = cell["fold"]
    shown["variability"] = None if clean else variability
    shown["annotators"] = "none" if clean else annotators(variability)
    if kind == "generator":
        return (
            shown
            | dict.fromkeys(("grader", "mixer", "p", "policies"))
            | {"ablation": cell["ablation"]}
        )
    dismix = cell["mixer"] == "dismix"
    return shown | {
        "grader": cell["grader"],
        "mixer": cell["mixer"],
        "p": None if cell["mixer"] == "none" else cell["p"],
        "policies": cell["policies"] if dismix else None,
        "ablation": cell["ablation"] if dismix else None,
    }


def annotators(variability: Any) -> str:
    """Return the paper's words for a variability.

    Example:
        >>> annotators(70), annotators("own")
        ('90/60', 'own')
    """
    if variability == "own":
        return "own"
    up, down = PRESETS[str(variability)]
    return f"{100 * up:.0f}/{100 * down:.0f}"
