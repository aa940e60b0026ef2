"""Settings that are one of a few words, checked when a configuration is made."""

from typing import Any, Literal, get_args, get_origin, get_type_hints

from dismix.errors import DisMixError
from dismix.registry import near_names


def check_choices(config: Any) -> None:
    """Raise for a field of a dataclass whose value is not among its ``Literal`` words.

    Args:
        config: A dataclass instance; call this from ``__post_init__``.

    Raises:
        DisMixError: Names the field and offers near words.
    """
    for name, hint in get_type_hints(type(config)).items():
        if get_origin(hint) is Literal and getattr(config, name) not in get_args(hint):
            raise DisMixError(
                f"'{getattr(config, name)}' is not a choice",
                column=name,
                cure=near_names(str(getattr(config, name)), [*get_args(hint)]),
            )
