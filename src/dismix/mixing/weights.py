"""Weights of an objective as the command line and plans give them: by name."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from dismix.errors import DisMixError
from dismix.registry import near_names

W = TypeVar("W")


def weights_of(kind: type[W], given: W | Mapping[str, Any] | None) -> W:
    """Return weights of a kind (a dataclass): as given, of a mapping, or the authors'.

    Example:
        >>> from dismix.mixing.puzzlemix import PuzzleWeights
        >>> weights_of(PuzzleWeights, {"beta": 2.0}).beta
        2.0
    """
    if not isinstance(given, Mapping):
        return kind() if given is None else given
    known = [field.name for field in dataclasses.fields(cast(Any, kind))]
    for name in given:
        if name not in known:
            raise DisMixError(f"unknown weight '{name}'", cure=near_names(str(name), known))
    return kind(**given)
