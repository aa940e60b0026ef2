"""Atomic writes: a file is either whole and in place, or absent.

Everything the package writes goes through here, so a kill at any moment leaves no
half-written result behind that a later run could mistake for a finished one.
"""

import errno
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dismix.errors import DisMixError

_NO_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EISDIR, errno.ENOTEMPTY)


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; move it there when the block succeeds.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with replacing(f"{folder}/a.txt") as temporary:
        ...         _ = temporary.write_text("whole")
        ...     [p.name for p in Path(folder).iterdir()]
        ['a.txt']
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _made_beside(path)
        rights = temporary.stat().st_mode & 0o777
    except OSError as error:
        raise DisMixError(
            f"cannot write here ({error.strerror})", file=path, cure="choose another output path"
        ) from error
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        # Some writers, such as safetensors, put a private file of their own in its place.
        temporary.chmod(rights)
        os.replace(temporary, path)
    except OSError as error:
        # What the block itself reads may fail in other ways; these are about writing here.
        if error.errno in _NO_WRITING:
            raise DisMixError(
                f"cannot write here ({error.strerror})",
                file=path,
                cure="choose another output path",
            ) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _made_beside(path: Path) -> Path:
    """Make an empty file with the rights that an ordinary open() gives.

    Not by mkstemp, whose files are private: asking for the rights of others means to change the
    process's mask for a moment, under the eyes of all its threads.
    """
    while True:
        # The suffix is kept last: writers such as Pillow choose the format by it.
        name = f".{path.stem}.{secrets.token_hex(4)}.part{path.suffix}"
        try:
            os.close(os.open(path.parent / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666))
        except FileExistsError:
            continue
        return path.parent / name


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Write JSON atomically, indented, with a final newline."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
