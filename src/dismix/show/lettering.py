"""Letters for text in pictures: a font that has them all, else what can be written of it.

Pillow's own font has little more than ASCII; other letters would be empty boxes.
"""

import unicodedata
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from PIL import ImageFont

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
#: Fonts of systems with the scripts that matplotlib's (Latin, Greek, Cyrillic, Arabic) lacks.
_SYSTEM = (
    "NotoSansCJK-Regular.ttc", "NotoSans-Regular.ttf", "Arial Unicode.ttf", "PingFang.ttc",
    "msyh.ttc", "YuGothM.ttc", "malgun.ttf", "Nirmala.ttc", "segoeui.ttf",
)  # fmt: skip
#: No font has it: what is drawn for it stands for any letter that is missing.
_NO_LETTER = "\U0010ffff"


def lettering(text: str, size: int) -> tuple[str, Font]:
    """Return a text as it can be written, and the font to write it in.

    Where no font has all its letters, the others are left out: captions keep their numbers.

    Args:
        text: One line.
        size: Of the letters, in pixels.

    Example:
        >>> lettering("2  sévère", 15)[0]
        '2  sévère'
        >>> lettering("2  🦴", 15)[0]
        '2'
    """
    fonts = [_font("", size), *(_font(file, size) for file in _font_files())]
    found = [font for font in fonts if font is not None]
    for font in found:
        if all(_has(font, letter) for letter in text):
            return text, font
    # Taken apart: a letter may be there without its accent, a digit in its plain form.
    plain = unicodedata.normalize("NFKD", text)
    font = max(found, key=lambda font: sum(_has(font, letter) for letter in plain))
    return "".join(c for c in plain if _has(font, c)).strip() or "?", font


@lru_cache
def _font_files() -> tuple[str, ...]:
    """Return matplotlib's font, found without loading matplotlib, and names of system fonts."""
    spec = find_spec("matplotlib")
    roots = (spec.submodule_search_locations or []) if spec is not None else []
    own = [Path(root) / "mpl-data/fonts/ttf/DejaVuSans.ttf" for root in roots]
    return (*(str(file) for file in own if file.is_file()), *_SYSTEM)


@lru_cache
def _font(place: str, size: int) -> Font | None:
    try:
        return ImageFont.truetype(place, size) if place else ImageFont.load_default(size)
    except OSError:
        return None


@lru_cache(maxsize=4096)
def _has(font: Font, letter: str) -> bool:
    """Return whether a font has a letter: what it draws is not what it draws for none."""
    if letter.isspace():
        return True
    drawn, missing = (font.getmask(c) for c in (letter, _NO_LETTER))
    return (drawn.size, bytes(drawn)) != (missing.size, bytes(missing))
