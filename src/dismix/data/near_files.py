"""Files that are nearly called as a table says: in another letter case, or with another ending.

Windows takes names in any case, so tables that were written there may name no file elsewhere.
"""

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path


def names_by_stem(folder: Path) -> dict[str, str]:
    """Return the names of what a folder holds, by their stems in small letters; the first wins."""
    try:
        found = sorted(os.listdir(folder), reverse=True)
    except OSError:
        return {}
    return {Path(name).stem.casefold(): name for name in found}


def near_files(paths: Sequence[Path]) -> list[str | None]:
    """Return for each missing file the name in its folder that is called nearly so, or None.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Path(folder, "A1.PNG").touch()
        ...     near_files([Path(folder, "a1.png"), Path(folder, "b.png")])
        ['A1.PNG', None]
    """
    listed = lru_cache(maxsize=None)(names_by_stem)
    return [listed(path.parent).get(path.stem.casefold()) for path in paths]
