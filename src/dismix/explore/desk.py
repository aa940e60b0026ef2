"""What people do on the page, turned into views; mistakes become boxes, not tracebacks."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dismix.background import background
from dismix.errors import DisMixError
from dismix.explore import cards, views
from dismix.explore.codebook import Book, CodeMaps, map_codes
from dismix.explore.pictures import as_image
from dismix.explore.session import Session
from dismix.explore.uploads import MAX_BYTES

#: Pictures on a page of the gallery.
SHOWN = 48
TOWARDS = ("a partner picture", "a grade")
TABS = ("mix", "strip", "swap", "policies")


class Desk:
    """Turns what people do on the page into views; mistakes become boxes, not tracebacks.

    Args:
        session: An open run.
        files: Folder that uploads arrive in; nothing else is read.
    """

    def __init__(self, session: Session, files: Path) -> None:
        self.session, self.files = session, files.resolve()
        self._maps: CodeMaps | None = None

    def render(
        self, tab: str, start: str | None, partner: str | None, towards: str, rank: int | None,
        severity: float, appearance: float, share: float,
    ) -> list[str | None]:  # fmt: skip
        """Return the HTML of the four views, None for those that are not in sight."""
        asked = rank if towards == TOWARDS[1] else None
        try:
            made = self._view(tab, start, partner, asked, severity, appearance, share)
        except DisMixError as error:
            made = cards.notice(str(error), "error")
        return [made if name == tab else None for name in TABS]

    def _view(
        self, tab: str, start: str | None, partner: str | None, rank: int | None,
        severity: float, appearance: float, share: float,
    ) -> str:  # fmt: skip
        session = self.session
        if tab == "mix":
            shares = severity / 100, appearance / 100
            return _alone(views.mix_view, session, start, partner, rank, *shares)
        if tab == "strip":
            return _alone(views.strip_view, session, start, partner)
        if tab == "swap":
            return _alone(views.swap_view, session, start, partner)
        return _alone(views.policies_view, session, start, partner, share / 100)

    def side(self, key: str | None, head: str, empty: str) -> str:
        """Return the card of a chosen picture under a heading."""
        try:
            return cards.heading(head) + _alone(views.side_card, self.session, key, empty)
        except DisMixError as error:
            return cards.notice(str(error), "error")

    def take(self, path: str | None) -> tuple[str | None, str]:
        """Take in an upload: its key, None where it was refused, and a message."""
        if path is None:
            return None, ""
        try:
            file = Path(path).resolve()
            if not file.is_relative_to(self.files):
                raise DisMixError("the file is not an upload", cure="upload it")
            data = file.read_bytes() if file.stat().st_size <= MAX_BYTES else bytes(MAX_BYTES + 1)
            # Only the small decoded picture is kept, in memory.
            file.unlink(missing_ok=True)
            subject = self.session.upload(data)
        except (DisMixError, OSError) as error:
            text = (
                str(error) if isinstance(error, DisMixError) else "the upload was lost; try again"
            )
            return None, cards.notice(text[:1].upper() + text[1:], "error")
        return subject.key, cards.notice("Your picture was read; it stays in memory only.")

    def another(self, start: str | None, seed: int) -> tuple[str | None, int]:
        """Return a random image of the run's data and the next seed."""
        keys = self.session.library.keys
        if not keys:
            return start, seed
        return keys[int(np.random.default_rng(seed).integers(len(keys)))], seed + 1

    def partner(self, start: str | None, seed: int) -> tuple[str | None, int]:
        """Return a partner of a neighbouring grade and the next seed; None without a picture."""
        try:
            found = None if start is None else self.session.partner_for(start, seed)
        except DisMixError:
            # An upload that is no longer kept; its own card says so.
            found = None
        return found, seed + 1

    def shelf(
        self, split: str, rank: int | None, page: float
    ) -> tuple[list[tuple[Image.Image, str]], list[str], str]:
        """Return a page of the gallery: pictures with captions, their keys, a line about them."""
        library = self.session.library
        known = split if split in library.shelves else None
        keys = library.browse(known, rank)
        pages = max(1, -(-len(keys) // SHOWN))
        number = min(max(1, int(page)), pages)
        here = keys[(number - 1) * SHOWN : number * SHOWN]
        shown = []
        for key in here:
            subject = self.session.subject(key)
            title = views.choice_title(subject, self.session.ranks).split(views.DASH)[0]
            shown.append((as_image(subject.pixels).convert("RGB"), title))
        return shown, here, f"{len(keys)} images, page {number} of {pages}"

    def maps(self) -> CodeMaps:
        """Return the codebook page's data, measured on first use."""
        if self._maps is None:
            self._maps = map_codes(self.session)
        return self._maps

    def codes(self, book: Book) -> tuple[str, str, list[tuple[str, int]]]:
        """Return both maps, the images of the most used code, and codes to choose from."""
        try:
            maps = self.maps()
        except DisMixError as error:
            return cards.notice(str(error), "error"), "", []
        book = book if book in maps.books else "nonordinal"
        top = maps.books[book].top(60)
        names = [(f"{c} ({maps.books[book].counts[c]} times)", c) for c in top]
        return (
            views.codebook_view(self.session, maps),
            views.code_view(self.session, maps, book, top[0]),
            names,
        )

    def code(self, book: Book, code: int | None) -> str:
        """Return the images that use a code."""
        if code is None or self._maps is None:
            return ""
        try:
            return views.code_view(self.session, self._maps, book, int(code))
        except DisMixError as error:
            # Of the other book, chosen before the list followed.
            return cards.notice(str(error), "error")


def _alone(view: Callable[..., str], *given: Any) -> str:
    """Draw a view, one at a time: more would only wait for each other's cores.

    Always in the same thread: the server has many, and a GPU plans its work by thread.
    """
    return background().submit(partial(view, *given)).result()
