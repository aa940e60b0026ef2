"""One name, two spellings: an accented letter is one sign (NFC) or a letter and an accent (NFD).

Both look alike. File systems of macOS take one for the other, those of Linux do not, so a table
that was written on a Mac may name no file here, letter for letter.
"""

import re
import unicodedata
from pathlib import Path


def alike(name: str) -> str:
    """Return a name as it is compared with others: one spelling of its accents, any case.

    Example:
        >>> alike("Le\u0301ger") == alike("l\u00e9ger")
        True
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def same_name(name: str) -> str:
    """Return the name of a person as it is compared with others: any case, 7.0 for 7.

    Example:
        >>> same_name("P07") == same_name("p07"), same_name("7.0") == same_name("7")
        (True, True)
        >>> same_name("1.10") == same_name("1.1")
        False
    """
    number = re.fullmatch(r"([0-9]+)\.0", name.strip())
    return number[1] if number else alike(name.strip())


def as_on_disk(path: Path) -> Path:
    """Return the path of a file in the spelling that it has on disk, or as it is.

    Args:
        path: Any; nothing is looked up for one that exists, or that has ASCII letters only.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, unicodedata.normalize("NFD", "genoux_é.png"))
        ...     file.touch()
        ...     as_on_disk(Path(folder, unicodedata.normalize("NFC", "genoux_é.png"))) == file
        True
    """
    if str(path).isascii():
        return path
    try:
        return _found(path)
    except OSError:
        # Too long, or not to be looked at: whoever opens it says so.
        return path


def _found(path: Path) -> Path:
    if path.exists():
        return path
    found = Path(path.anchor)
    # Part by part: a folder and the files in it may come from two systems.
    for part in path.parts[1 if path.anchor else 0 :]:
        forms = (part, *(unicodedata.normalize(form, part) for form in ("NFC", "NFD")))
        spelled = next((found / form for form in forms if (found / form).exists()), None)
        if spelled is None:
            return path
        found = spelled
    return found
