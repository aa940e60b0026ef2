"""Atomic writes: a file is either whole and in place, or absent; what was damaged since is named.

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

_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_WRITING = (*_FULL, errno.EROFS, errno.EISDIR, errno.ENOTEMPTY)
_FULL_WORDS = "No space left on device"


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
        raise cannot_write(path, error) from error
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        # Some writers, such as safetensors, put a private file of their own in its place.
        temporary.chmod(rights)
        os.replace(temporary, path)
    except DisMixError:
        raise
    except Exception as error:
        # What the block itself reads may fail in other ways; these are about writing here.
        if isinstance(error, OSError) and error.errno in _NO_WRITING:
            raise cannot_write(path, error) from error
        if disk_is_full(error):
            raise cannot_write(path, OSError(errno.ENOSPC, _FULL_WORDS)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def cannot_write(path: str | Path, error: Exception) -> DisMixError:
    """Return the line for a file that cannot be written.

    Example:
        >>> print(cannot_write("a.csv", OSError(28, "No space left on device")))
        a.csv: cannot write here (No space left on device); free some space, or choose another
        output path
    """
    reason = getattr(error, "strerror", None) or _FULL_WORDS
    room = getattr(error, "errno", None) in (None, errno.ENOSPC, errno.EDQUOT)
    free = "free some space, or " if room else ""
    return DisMixError(
        f"cannot write here ({reason})", file=path, cure=f"{free}choose another output path"
    )


def disk_is_full(error: BaseException | None) -> bool:
    """Tell whether an error, or what it came from, is that nothing more can be written.

    Example:
        >>> disk_is_full(OSError(28, "No space left on device")), disk_is_full(ValueError("28"))
        (True, False)
    """
    while error is not None:
        # Libraries in other languages tell of it in words only.
        if (isinstance(error, OSError) and error.errno in _FULL) or _FULL_WORDS in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


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


def read_json(path: str | Path, *needed: str, cure: str) -> dict[str, Any]:
    """Read what `write_json` wrote; a file that was damaged since is an error that names it.

    Args:
        path: The file.
        needed: Names that it must hold.
        cure: What to do about a damaged one.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DisMixError(f"cannot be read ({reason})", file=path, cure=cure) from error
    missing = [name for name in needed if not isinstance(content, dict) or name not in content]
    if missing or not isinstance(content, dict):
        problem = f"lacks '{missing[0]}'" if missing else "is not what was written there"
        raise DisMixError(problem, file=path, cure=cure)
    return content
