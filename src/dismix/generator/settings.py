"""A recipe with some of its settings changed, as the command line and ablations name them."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

from dismix.errors import DisMixError
from dismix.generator.config import GeneratorConfig
from dismix.generator.recipe import Recipe
from dismix.generator.terms import TERMS
from dismix.registry import near_names

#: Structure that is settled elsewhere.
SETTLED = {
    "num_ranks": "the manifest's ranks are taken",
    "in_channels": "the manifest says whether images are grey",
    "image_size": "use --size",
    "arch": "use --arch",
}


def with_settings(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """Return a recipe with fields, term weights or structure replaced.

    Args:
        recipe: Where to start.
        settings: Names are fields of `Recipe`, terms (their weight), or fields of
            `GeneratorConfig`; values may be text, as the command line gives them.

    Example:
        >>> from dismix.generator.recipe import PAPER
        >>> changed = with_settings(PAPER, {"lr": "3e-4", "similarity": 0, "projections": "two"})
        >>> changed.lr, changed.weight("similarity"), changed.structure["projections"]
        (0.0003, 0.0, 'two')
    """
    own = {f.name: f for f in dataclasses.fields(Recipe)}
    made = get_type_hints(GeneratorConfig)
    changes: dict[str, Any] = {}
    weights, structure = dict(recipe.weights), dict(recipe.structure)
    for name, value in settings.items():
        if name in SETTLED:
            raise DisMixError("cannot be set", column=name, cure=SETTLED[name])
        if name in TERMS:
            weights[name] = _number(name, value)
        elif name in made:
            structure[name] = _typed(value, made[name])
        elif name in own and name not in ("weights", "structure"):
            changes[name] = _like(name, getattr(recipe, name), value)
        else:
            internal = ("weights", "structure", *SETTLED)
            known = [n for n in (*own, *TERMS, *made) if n not in internal]
            raise DisMixError(f"unknown setting '{name}'", cure=near_names(name, known))
    return dataclasses.replace(recipe, weights=weights, structure=structure, **changes)


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise DisMixError(f"'{value}' is not a number", column=name, cure="give a number")
    return number


def _like(name: str, old: Any, value: Any) -> Any:
    """Return a value as the type of the field it replaces."""
    if isinstance(old, bool):
        if str(value).lower() in ("true", "1", "yes", "on"):
            return True
        if str(value).lower() in ("false", "0", "no", "off"):
            return False
        raise DisMixError(
            f"'{value}' is neither true nor false", column=name, cure="give true or false"
        )
    if isinstance(old, int):
        number = _number(name, value)
        if number != int(number):
            raise DisMixError(
                f"'{value}' is not a whole number", column=name, cure="give a whole number"
            )
        return int(number)
    return _number(name, value) if isinstance(old, float) else str(value)


def _typed(value: Any, hint: Any) -> Any:
    """Return text from the command line as what the field of type ``hint`` takes."""
    if not isinstance(value, str) or value in get_args(hint):
        return value
    named: dict[str, Any] = {"true": True, "false": False}
    if type(None) in get_args(hint):
        named["none"] = None
    if value.lower() in named:
        return named[value.lower()]
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
