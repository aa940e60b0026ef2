"""Settings that are one of a few words or lie within bounds, checked when they are made."""

import dataclasses
import math
from typing import Any, Literal, get_args, get_origin, get_type_hints

from dismix.errors import DisMixError
from dismix.registry import near_names


def bounded(
    default: Any,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> Any:
    """Return a dataclass field whose numbers `check_settings` holds within bounds.

    Args:
        default: A number, None, or a tuple of numbers.
        least: Smallest value allowed.
        most: Largest value allowed.
        above: Values must be larger.
        below: Values must be smaller.
    """
    limits = {"least": least, "most": most, "above": above, "below": below}
    return dataclasses.field(
        default=default, metadata={k: v for k, v in limits.items() if v is not None}
    )


def check_settings(config: Any) -> None:
    """Raise for a field of a dataclass that is no ``Literal`` choice or out of its bounds.

    Args:
        config: A dataclass instance; call this from ``__post_init__``.

    Raises:
        DisMixError: Names the field, and offers near words or says the bounds.

    Example:
        >>> @dataclasses.dataclass
        ... class Config:
        ...     share: float = bounded(0.5, above=0, below=1)
        >>> check_settings(Config(2.0))
        Traceback (most recent call last):
        dismix.errors.DisMixError: setting 'share': 2.0 is out of bounds; give numbers > 0 and < 1
    """
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise DisMixError(
                f"'{value}' is not a choice",
                column=field.name,
                cure=near_names(str(value), [*get_args(hint)]),
            )
        if field.metadata and value is not None and not _inside(value, field.metadata):
            raise DisMixError(
                f"{value} is out of bounds",
                column=field.name,
                cure=f"give numbers {_words(field.metadata)}",
            )


def _inside(value: Any, limits: Any) -> bool:
    numbers = value if isinstance(value, tuple) else (value,)
    return bool(numbers) and all(
        math.isfinite(number)
        and number >= limits.get("least", -math.inf)
        and number <= limits.get("most", math.inf)
        and number > limits.get("above", -math.inf)
        and number < limits.get("below", math.inf)
        for number in numbers
    )


def _words(limits: Any) -> str:
    signs = {"least": ">=", "above": ">", "most": "<=", "below": "<"}
    return " and ".join(f"{signs[kind]} {limits[kind]:g}" for kind in signs if kind in limits)
