"""What is printed: readers that have gone, and letters that a terminal or a file does not have."""

import codecs
import io
import os
import sys
from typing import NoReturn

#: How letters of ours are written where there is no Unicode: a number must not lose its sign.
_PLAIN = {
    "\N{MINUS SIGN}": "-", "\N{EN DASH}": "-", "\N{HORIZONTAL ELLIPSIS}": "...",
    "\N{RIGHTWARDS ARROW}": "->", "\N{LEFTWARDS ARROW}": "<-", "\N{PLUS-MINUS SIGN}": "+-",
    "\N{MULTIPLICATION SIGN}": "x",
}  # fmt: skip


def write_any_letter() -> None:
    """Let every text be printed: a console or a file of Windows-1252 has no minus sign."""
    codecs.register_error("dismix", _plainly)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="dismix")


def _plainly(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letter = error.object[error.start]
    if "\udc80" <= letter <= "\udcff":
        # A byte of a file's name that is no letter here: it is named as it is.
        return bytes([ord(letter) - 0xDC00]), error.start + 1
    plain = _PLAIN.get(letter) or letter.encode("ascii", "backslashreplace").decode()
    return plain, error.start + 1


def leave_quietly() -> NoReturn:
    """Leave when the reader (head, less) has gone, without the interpreter complaining."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)
