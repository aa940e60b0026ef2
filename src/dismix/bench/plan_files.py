"""Files of plans, YAML or JSON: each name once, and mistakes told with their row."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dismix.errors import DisMixError


def read_content(path: Path) -> Any:
    """Return what a plan's file holds, by its ending JSON or else YAML.

    Raises:
        DisMixError: Naming the row of what cannot be read, or of a name that is there twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise DisMixError(
            "is no UTF-8 text", file=path, row=line, cure="save it as UTF-8 in an editor"
        ) from error
    if path.suffix == ".json":
        try:
            return json.loads(text, object_pairs_hook=lambda pairs: _mapping(pairs, path))
        except ValueError as error:
            raise DisMixError(f"is no JSON ({error})", file=path, cure="repair it") from error
    try:
        import yaml
    except ImportError as error:
        raise DisMixError(
            "reading YAML needs PyYAML",
            file=path,
            cure="pip install pyyaml, or write the plan as JSON (`dismix bench plan NAME --json`)",
        ) from error
    try:
        return yaml.load(text, _loader(yaml.SafeLoader, path))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "unreadable"
        raise DisMixError(
            f"is no YAML ({problem})",
            file=path,
            row=None if mark is None else mark.line + 1,
            cure="check colons, brackets and indentation",
        ) from error


def _mapping(pairs: Sequence[tuple[str, Any]], path: Path) -> dict[str, Any]:
    """Return a mapping of a JSON file."""
    _require_once([(name, None) for name, _ in pairs], path)
    return dict(pairs)


def _require_once(names: Sequence[tuple[Any, int | None]], path: Path) -> None:
    """Refuse names (with their rows) that are there twice: the second would hide the first."""
    seen = []
    for name, row in names:
        if name in seen:
            raise DisMixError(
                f"'{name}' is there twice", file=path, row=row, cure="join them into one"
            )
        seen.append(name)


def _loader(base: Any, path: Path) -> Any:
    """Return a YAML loader that tells of names that are there twice."""

    class Loader(base):  # type: ignore[misc]
        # As the file has it: later a mapping may hold what `<<` brings in, beside its own names.
        def compose_mapping_node(self, anchor: Any) -> Any:
            node = super().compose_mapping_node(anchor)
            _require_once([(key.value, key.start_mark.line + 1) for key, _ in node.value], path)
            return node

    return Loader
