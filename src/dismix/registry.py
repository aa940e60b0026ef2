"""Small, listable registries: a name, what it makes, and one line about it."""

import difflib
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from dismix.errors import DisMixError

T = TypeVar("T")
#: More names than this, such as timm's thousand networks, are no hint.
MOST_LISTED = 120


def near_names(name: str, known: list[str]) -> str:
    """Return a hint listing close spellings, or all names when none is close and they are few.

    Example:
        >>> near_names("idird", ["idrid", "koa"])
        "did you mean 'idrid'?"
    """
    # By small letters on either side: columns of a table may be called in capitals.
    folded = {other.lower(): other for other in reversed(known)}
    close = difflib.get_close_matches(name.lower(), list(folded), n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(f"'{folded[c]}'" for c in close) + "?"
    if len(known) > MOST_LISTED:
        return f"none of the {len(known)} known names is close"
    return "choose one of " + ", ".join(known)


class Registry(Generic[T]):
    """Maps lower-case names to objects of one kind.

    Args:
        kind: What the entries are, for messages ("source", "mixer", "grader").

    Example:
        >>> shapes: Registry[int] = Registry("shape")
        >>> _ = shapes.register("square")(4)
        >>> shapes["square"], list(shapes)
        (4, ['square'])
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds an entry; a name that is taken is an error."""

        def add(entry: T) -> T:
            if name in self._entries:
                raise ValueError(f"{self.kind} '{name}' is registered twice")
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> T:
        try:
            return self._entries[name]
        except KeyError:
            raise DisMixError(
                f"unknown {self.kind} '{name}'", cure=near_names(name, sorted(self._entries))
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)
