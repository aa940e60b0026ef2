"""Text that is not UTF-8: say which encoding it has and how to change it, never guess silently.

A file name or a patient's name read in a wrong encoding is another name, so nothing is converted
here: spreadsheets on Windows write Windows-1252 ("CSV") and UTF-16 ("Unicode text") by habit.
"""

import codecs
from collections.abc import Iterable
from pathlib import Path

from dismix.errors import DisMixError

_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16",
}  # fmt: skip
#: Bytes that tell text of two bytes a letter from a picture or an archive.
_ENOUGH = 1000


def decode_text(content: bytes, path: Path) -> str:
    r"""Return UTF-8 text with line ends "\n" and without byte-order mark.

    Args:
        content: The file's bytes.
        path: The file, for messages.

    Raises:
        DisMixError: It is not UTF-8, naming the first line at fault and the likely encoding.

    Example:
        >>> decode_text(b"a;b\r\n1;2", Path("t.csv"))
        'a;b\n1;2'
    """
    # The marks of UTF-32 begin with those of UTF-16, and come first.
    marked = next((name for mark, name in _MARKS.items() if content.startswith(mark)), None)
    wide = marked or _unmarked_wide(content)
    if wide is not None:
        raise _refusal(f"is {wide} text, not UTF-8", wide, path, 1)
    if content.startswith(b"PK\x03\x04"):
        raise DisMixError(
            "is a spreadsheet or an archive, whatever its name ends in",
            file=path,
            cure="open it and save it as CSV UTF-8",
        )
    if b"\0" in content:
        raise DisMixError("is not a text table", file=path, cure="save it as CSV UTF-8")
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        return content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise _not_utf8(content, error.start, path) from error


def refuse_undecodable(names: Iterable[str]) -> None:
    r"""Raise for the first name of a file that is not UTF-8, which no table could hold.

    Args:
        names: As the system gives them: bytes that are no text are lone surrogates in them.

    Example:
        >>> refuse_undecodable(["caf\u00e9.png"])
    """
    for name in names:
        try:
            name.encode("utf-8")
        except UnicodeEncodeError as error:
            raise DisMixError(
                "the name is not UTF-8 text",
                # Spelled out, since it cannot be printed.
                file=ascii(name),
                cure="rename the file or its folder",
            ) from error


def _unmarked_wide(content: bytes) -> str | None:
    """Return the name of two-byte text without a mark: every other byte of plain letters is 0."""
    start = content[:_ENOUGH]
    odd, even = start[1::2].count(0), start[::2].count(0)
    half = len(start) // 2
    # Two letters prove nothing.
    if half < 4 or min(odd, even) > 0.1 * half or max(odd, even) < 0.7 * half:
        return None
    return "UTF-16LE" if odd > even else "UTF-16BE"


def _not_utf8(content: bytes, start: int, path: Path) -> DisMixError:
    before = content[:start].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    line, byte = before.count(b"\n") + 1, content[start]
    try:
        content.decode("cp1252")
    except UnicodeDecodeError:
        return DisMixError(
            f"is not UTF-8 text (byte 0x{byte:02X})", file=path, row=line,
            cure="save it as CSV UTF-8",
        )  # fmt: skip
    letter = bytes([byte]).decode("cp1252")
    problem = f"is not UTF-8 text but probably Windows-1252 (byte 0x{byte:02X} is '{letter}' there)"
    return _refusal(problem, "WINDOWS-1252", path, line)


def _refusal(problem: str, encoding: str, path: Path, line: int) -> DisMixError:
    return DisMixError(
        problem,
        file=path,
        row=line,
        cure=f"save it as CSV UTF-8, or `iconv -f {encoding} -t UTF-8 FILE > NEW`",
    )
