"""The page: Gradio components wired to `views`; nothing is computed here."""

import os
from pathlib import Path
from typing import Any

# Before Gradio is imported: it would else tell its makers about every start.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

import gradio as gr

from dismix.errors import DisMixError
from dismix.explore import cards, views
from dismix.explore.codebook import Book, CodeMaps, map_codes
from dismix.explore.pictures import as_image
from dismix.explore.session import Session
from dismix.explore.subject import NOTICE, rank_title
from dismix.explore.uploads import MAX_BYTES, MAX_PIXELS, SUFFIXES

LISTED, SHOWN = 200, 48
TOWARDS = ("a partner picture", "a grade")
ROLES = {
    "start": ("1 · Your picture", views.NEED_START),
    "partner": ("2 · Partner", views.NEED_PARTNER),
}
TABS = ("mix", "strip", "swap", "policies")
_LEGEND = """
<dl class="dx-legend">
<dt>Severity (ordinal code)</dt>
<dd>What the grade is about. Mixing it changes the grade that a model is taught.</dd>
<dt>Appearance (non-ordinal code)</dt>
<dd>Everything else: shape, exposure, position, device. Mixing it leaves the grade.</dd>
<dt>Rebuilt</dt>
<dd>Your picture encoded and decoded with nothing mixed. What is lost here is lost in every made
picture; differences are taken against it, so that they show mixing alone.</dd>
<dt>Training label</dt>
<dd>The grade a model would be taught for a made picture. Between two grades it is a training
target, never a clinical grade.</dd>
<dt>Generator's own reading</dt>
<dd>What the generator takes an ungraded picture for. It steers, it does not diagnose.</dd>
<dt>Grader's opinion</dt>
<dd>What a separately trained model says (--grader). It too is a research model.</dd>
<dt>Colours</dt>
<dd>Low grades blue, high grades red. In difference maps red is brighter, blue darker.</dd>
</dl>
"""


class Desk:
    """Turns what people do on the page into views; mistakes become boxes, not tracebacks.

    Args:
        session: An open run.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._maps: CodeMaps | None = None

    def render(
        self, tab: str, start: str | None, partner: str | None, towards: str, rank: int | None,
        severity: float, appearance: float, share: float,
    ) -> list[Any]:  # fmt: skip
        """Return the HTML of the four views; those not in sight are left alone."""
        asked = rank if towards == TOWARDS[1] else None
        session = self.session
        try:
            if tab == "mix":
                made = views.mix_view(
                    session, start, partner, asked, severity / 100, appearance / 100
                )
            elif tab == "strip":
                made = views.strip_view(session, start, partner)
            elif tab == "swap":
                made = views.swap_view(session, start, partner)
            else:
                made = views.policies_view(session, start, partner, share / 100)
        except DisMixError as error:
            made = cards.notice(str(error), "error")
        return [made if name == tab else gr.skip() for name in TABS]

    def side(self, key: str | None, head: str, empty: str) -> str:
        """Return the card of a chosen picture under a heading."""
        try:
            return cards.heading(head) + views.side_card(self.session, key, empty)
        except DisMixError as error:
            return cards.notice(str(error), "error")

    def take(self, path: str | None) -> tuple[Any, str]:
        """Take in an upload: its key and a message."""
        if path is None:
            return gr.skip(), ""
        try:
            file = Path(path)
            data = file.read_bytes() if file.stat().st_size <= MAX_BYTES else bytes(MAX_BYTES + 1)
            # Only the small decoded picture is kept, in memory.
            file.unlink(missing_ok=True)
            subject = self.session.upload(data)
        except DisMixError as error:
            text = str(error)
            return gr.skip(), cards.notice(text[:1].upper() + text[1:], "error")
        return subject.key, cards.notice("Your picture was read; it stays in memory only.")

    def another(self, start: str | None, seed: int) -> tuple[str | None, int]:
        """Return a random image of the run's data and the next seed."""
        keys = self.session.library.keys
        if not keys:
            return start, seed
        import numpy as np

        return keys[int(np.random.default_rng(seed).integers(len(keys)))], seed + 1

    def partner(self, start: str | None, seed: int) -> tuple[str | None, int]:
        """Return a partner of a neighbouring grade and the next seed."""
        return (None if start is None else self.session.partner_for(start, seed)), seed + 1

    def shelf(self, split: str, rank: int | None, page: float) -> tuple[Any, list[str], str]:
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

    def codes(self, book: Book) -> tuple[str, str, Any]:
        """Return both maps, the images of the most used code, and a choice of codes."""
        try:
            maps = self.maps()
        except DisMixError as error:
            return cards.notice(str(error), "error"), "", gr.skip()
        book = book if book in maps.books else "nonordinal"
        top = maps.books[book].top(60)
        names = [(f"{c} ({maps.books[book].counts[c]} times)", c) for c in top]
        return (
            views.codebook_view(self.session, maps),
            views.code_view(self.session, maps, book, top[0]),
            gr.update(choices=names, value=top[0]),
        )

    def code(self, book: Book, code: int | None) -> str:
        """Return the images that use a code."""
        if code is None or self._maps is None:
            return ""
        return views.code_view(self.session, self._maps, book, int(code))


def build_page(session: Session) -> Any:
    """Lay out the page of a session.

    Args:
        session: An open run.
    """
    desk = Desk(session)
    keys = session.library.browse(most=LISTED)
    held = [k for k in keys if not k.startswith("train/")]
    several = held or keys
    first = several[len(several) // 2] if several else None
    partner = None if first is None else session.partner_for(first)
    title = f"DisMix explorer · {session.run.name if session.run else ''}"
    with gr.Blocks(
        title=title, analytics_enabled=False, delete_cache=(600, 1200), fill_width=True
    ) as page:
        gr.HTML(_header(session), js_on_load=None, elem_classes="dx-title")
        chosen = {"start": gr.State(first), "partner": gr.State(partner)}
        chosen["seed"], chosen["tab"] = gr.State(1), gr.State("mix")
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=300):
                controls = _sidebar(desk, keys, chosen)
            with gr.Column(scale=7, min_width=620), gr.Tabs():
                shown = _views(desk, chosen, controls)
                if keys:
                    _gallery(desk, chosen)
                    _codebook(desk)
                with gr.Tab("Legend", id="legend"):
                    gr.HTML(_LEGEND, js_on_load=None)
        _wire(desk, chosen, controls, shown)
    return page


def _header(session: Session) -> str:
    library = session.library
    count = len(library.keys)
    about = f"{count} images · " if count else ""
    text = (
        f"<h1>DisMix explorer</h1><p>Run <b>{cards.safe(session.run.name if session.run else '')}"
        f"</b> · {about}{session.num_ranks} grades, {cards.safe(session.ranks[0])} to "
        f"{cards.safe(session.ranks[-1])}. Choose a picture, move its severity and its appearance,"
        " and see what a model would be fed in training.</p>"
    )
    text += cards.notice(
        f"{NOTICE} Made pictures show nobody, and their grades are training targets.", "warn"
    )
    return text + (cards.notice(library.note) if library.note else "")


def _sidebar(desk: Desk, keys: list[str], chosen: dict[str, Any]) -> dict[str, Any]:
    session = desk.session
    c: dict[str, Any] = {}
    names = [(views.choice_title(session.subject(k), session.ranks), k) for k in keys]
    limits = f"at most {MAX_BYTES // 2**20} MiB and {MAX_PIXELS // 10**6} megapixels"
    for role, head, words in (
        ("start", *ROLES["start"]),
        ("partner", *ROLES["partner"]),
    ):
        with gr.Column(elem_classes="dx-chooser"):
            c[f"{role}_card"] = gr.HTML(
                desk.side(chosen[role].value, head, words), js_on_load=None,
                elem_classes="dx-side", elem_id=f"{role}-card",
            )  # fmt: skip
            if keys:
                c[f"{role}_list"] = gr.Dropdown(
                    names, value=None, label="From the run's data", elem_id=f"{role}-list"
                )
            with gr.Row():
                if keys:
                    c[f"{role}_random"] = gr.Button(
                        "Another" if role == "start" else "Another of the next grade",
                        size="sm", elem_id=f"{role}-random",
                    )  # fmt: skip
                c[f"{role}_file"] = gr.UploadButton(
                    "Upload …", file_types=[*SUFFIXES], size="sm", elem_id=f"{role}-file"
                )
            c[f"{role}_said"] = gr.HTML("", js_on_load=None, elem_id=f"{role}-said")
    gr.HTML(
        f'<p class="dx-note">Uploads: {limits}, JPEG, PNG, WebP, TIFF, BMP or DICOM. They stay in '
        "this computer's memory.</p>", js_on_load=None,
    )  # fmt: skip
    return c


def _views(desk: Desk, chosen: dict[str, Any], controls: dict[str, Any]) -> list[Any]:
    session, c = desk.session, controls
    can_ask, top = session.can_ask, session.num_ranks - 1
    grades = [(rank_title(r, session.ranks), r) for r in range(top + 1)]
    shown = []
    first = [chosen["start"].value, chosen["partner"].value, TOWARDS[0], top, 50, 0, 50]
    for name, title in zip(TABS, ("Mix", "Film strip", "Swap severity", "Four policies"),
                           strict=True):  # fmt: skip
        with gr.Tab(title, id=name) as tab:
            if name == "mix":
                with gr.Row(equal_height=True):
                    c["severity"] = gr.Slider(
                        0,
                        100,
                        50,
                        step=1,
                        label="Severity (% of the way to the partner or grade)",
                        elem_id="severity",
                    )
                    c["appearance"] = gr.Slider(
                        0, 100, 0, step=1, label="Appearance (% of the way to the partner)",
                        elem_id="appearance",
                    )  # fmt: skip
                with gr.Row(visible=can_ask):
                    c["towards"] = gr.Radio(
                        TOWARDS, value=TOWARDS[0], label="Severity moves towards", elem_id="towards"
                    )
                    c["rank"] = gr.Dropdown(
                        grades, value=top, label="Grade to move towards", elem_id="rank",
                        visible=False,
                    )  # fmt: skip
            if name == "policies":
                c["share"] = gr.Slider(
                    1, 99, 50, step=1, label="Share of the partner (%)", elem_id="share"
                )
            start = desk.render(name, *first)[TABS.index(name)] if name == "mix" else ""
            shown.append(gr.HTML(start, js_on_load=None, elem_id=f"{name}-view"))
        c[f"{name}_tab"] = tab
    return shown


def _wire(desk: Desk, chosen: dict[str, Any], c: dict[str, Any], shown: list[Any]) -> None:
    start, partner, seed, tab = (chosen[k] for k in ("start", "partner", "seed", "tab"))
    inputs = [tab, start, partner, c["towards"], c["rank"], c["severity"], c["appearance"],
              c["share"]]  # fmt: skip
    quiet: dict[str, Any] = {
        "show_progress": "hidden", "api_visibility": "private", "trigger_mode": "always_last",
        "concurrency_limit": 1, "concurrency_id": "generator",
    }  # fmt: skip
    moves = [c[name].input for name in ("severity", "appearance", "towards", "rank", "share")]
    gr.on([*moves, start.change, partner.change], desk.render, inputs, shown, **quiet)
    c["towards"].input(
        lambda towards: gr.update(visible=towards == TOWARDS[1]), c["towards"], c["rank"], **quiet
    )
    for name in TABS:
        c[f"{name}_tab"].select(lambda name=name: name, None, tab, **quiet).then(
            desk.render, inputs, shown, **quiet
        )
    for role, another in (("start", desk.another), ("partner", desk.partner)):
        state = chosen[role]
        state.change(
            lambda key, role=role: desk.side(key, *ROLES[role]), state, c[f"{role}_card"], **quiet
        )
        field = c[f"{role}_file"]
        field.upload(desk.take, field, [state, c[f"{role}_said"]], **quiet)
        if f"{role}_list" in c:
            c[f"{role}_list"].input(lambda key: key, c[f"{role}_list"], state, **quiet)
            c[f"{role}_random"].click(another, [start, seed], [state, seed], **quiet)


def _gallery(desk: Desk, chosen: dict[str, Any]) -> None:
    session = desk.session
    everything = "all"
    with gr.Tab("Gallery", id="gallery") as tab:
        with gr.Row():
            split = gr.Dropdown(
                [everything, *session.library.shelves], value=everything, label="Split"
            )
            rank = gr.Dropdown(
                [("all grades", -1)]
                + [(rank_title(r, session.ranks), r) for r in range(session.num_ranks)],
                value=-1, label="Grade", elem_id="gallery-rank",
            )  # fmt: skip
            page = gr.Number(1, label="Page", precision=0, minimum=1)
            role = gr.Radio(
                [("your picture", "start"), ("partner", "partner")], value="start",
                label="A click chooses it as", elem_id="gallery-role",
            )  # fmt: skip
        said = gr.Markdown("")
        listed = gr.State([])
        sheet = gr.Gallery(
            columns=10, height="auto", allow_preview=False, object_fit="contain", show_label=False,
            format="png", elem_id="gallery", interactive=False, buttons=[],
        )  # fmt: skip
    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}

    def turn(split: str, rank: int, page: float | None) -> tuple[Any, list[str], str]:
        return desk.shelf(split, None if rank < 0 else rank, page or 1)

    def pick(event: gr.SelectData, role: str, keys: list[str]) -> tuple[Any, Any]:
        key = keys[int(event.index)]
        return (key, gr.skip()) if role == "start" else (gr.skip(), key)

    gr.on(
        [tab.select, split.input, rank.input, page.change], turn, [split, rank, page],
        [sheet, listed, said], **quiet,
    )  # fmt: skip
    sheet.select(pick, [role, listed], [chosen["start"], chosen["partner"]], **quiet)


def _codebook(desk: Desk) -> None:
    books = [("severity codes", "ordinal"), ("appearance codes", "nonordinal")]
    if desk.session.model.quantize_ordinal is None:
        books = books[1:]
    with gr.Tab("Codebook", id="codebook") as tab:
        maps = gr.HTML(
            cards.notice("Reading the codes of some hundred images, once; a few seconds."),
            js_on_load=None, elem_id="codebook-view",
        )  # fmt: skip
        with gr.Row():
            book = gr.Radio(books, value=books[0][1], label="Images that use a code of the")
            code = gr.Dropdown([], label="Code, most used first", elem_id="code")
        images = gr.HTML("", js_on_load=None, elem_id="code-view")
    slow: dict[str, Any] = {"api_visibility": "private", "show_progress_on": maps}
    gr.on([tab.select, book.input], desk.codes, book, [maps, images, code], **slow)
    code.input(desk.code, [book, code], images, show_progress="hidden", api_visibility="private")
