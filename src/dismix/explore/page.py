"""The page: Gradio components wired to a `Desk`; nothing is computed here."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dismix.explore import cards, views
from dismix.explore.codebook import Book
from dismix.explore.desk import TABS, TOWARDS, Desk
from dismix.explore.session import Session
from dismix.explore.subject import NOTICE, rank_title
from dismix.explore.uploads import MAX_BYTES, MAX_PIXELS

#: Pictures in the lists to choose from; the gallery has all.
LISTED = 200
#: Answers come in the reply itself: through Gradio's queue one in twenty never reached the page
#: when two moves followed each other closely.
DIRECT: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
ROLES = {
    "start": ("1 · Your picture", views.NEED_START),
    "partner": ("2 · Partner", views.NEED_PARTNER),
}
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


def build_page(session: Session, files: Path) -> Any:
    """Lay out the page of a session.

    Args:
        session: An open run.
        files: Folder that uploads arrive in.
    """
    desk = Desk(session, files)
    keys = session.library.browse(most=LISTED)
    held = [k for k in keys if not k.startswith("train/")]
    several = held or keys
    first = several[len(several) // 2] if several else None
    partner = None if first is None else session.partner_for(first)
    title = f"DisMix explorer · {session.run.name if session.run else ''}"
    # Else Gradio tells its makers about every start.
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    import gradio as gr

    with gr.Blocks(
        title=title, analytics_enabled=False, delete_cache=(600, 1200), fill_width=True
    ) as page:
        gr.HTML(_header(session), js_on_load=None, elem_classes="dx-title")
        chosen = {"start": gr.State(first), "partner": gr.State(partner)}
        chosen["seed"], chosen["tab"] = gr.State(1), gr.State("mix")
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=300):
                controls = _sidebar(gr, desk, keys, chosen)
            with gr.Column(scale=7, min_width=620), gr.Tabs():
                shown = _views(gr, desk, chosen, controls)
                if keys:
                    controls["picked"] = _gallery(gr, desk)
                    _codebook(gr, desk)
                with gr.Tab("Legend", id="legend"):
                    gr.HTML(_LEGEND, js_on_load=None)
        _wire(gr, desk, chosen, controls, shown)
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


def _sidebar(gr: Any, desk: Desk, keys: list[str], chosen: dict[str, Any]) -> dict[str, Any]:
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
            with gr.Row(elem_classes="dx-buttons"):
                if keys:
                    c[f"{role}_random"] = gr.Button(
                        "Another" if role == "start" else "Another, next grade",
                        size="sm", min_width=60, elem_id=f"{role}-random",
                    )  # fmt: skip
                c[f"{role}_file"] = gr.UploadButton(
                    "Upload …",
                    size="sm",
                    min_width=60,
                    elem_id=f"{role}-file",
                )
            c[f"{role}_said"] = gr.HTML("", js_on_load=None, elem_id=f"{role}-said")
    gr.HTML(
        f'<p class="dx-note">Uploads: {limits}, JPEG, PNG, WebP, TIFF, BMP or DICOM. They stay in '
        "this computer's memory.</p>", js_on_load=None,
    )  # fmt: skip
    return c


def _views(gr: Any, desk: Desk, chosen: dict[str, Any], controls: dict[str, Any]) -> list[Any]:
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


def _wire(gr: Any, desk: Desk, chosen: dict[str, Any], c: dict[str, Any], shown: list[Any]) -> None:
    start, partner, seed, tab = (chosen[k] for k in ("start", "partner", "seed", "tab"))
    inputs = [tab, start, partner, c["towards"], c["rank"], c["severity"], c["appearance"],
              c["share"]]  # fmt: skip
    quiet = {**DIRECT, "trigger_mode": "always_last"}

    def render(*values: Any) -> list[Any]:
        return [gr.skip() if view is None else view for view in desk.render(*values)]

    def take(path: str | None) -> tuple[Any, str]:
        key, said = desk.take(path)
        return gr.skip() if key is None else key, said

    sliders = [c[name] for name in ("severity", "appearance", "share")]
    moves = [*(slider.input for slider in sliders), c["towards"].input, c["rank"].input]
    gr.on(moves, render, inputs, shown, **quiet)
    # Arrow keys and drags may outrun the answers: what was let go of is shown for sure.
    gr.on([slider.release for slider in sliders], render, inputs, shown, **DIRECT)
    c["towards"].input(
        lambda towards: gr.update(visible=towards == TOWARDS[1]), c["towards"], c["rank"], **quiet
    )
    for name in TABS:
        c[f"{name}_tab"].select(lambda name=name: name, None, tab, **DIRECT).then(
            render, inputs, shown, **DIRECT
        )
    roles = [start, partner]

    def sides(*keys: str | None) -> list[str]:
        return [desk.side(key, *ROLES[role]) for role, key in zip(ROLES, keys, strict=True)]

    def follow(event: Any) -> None:
        """Show what an event chose."""
        places = [c[f"{role}_card"] for role in ROLES]
        event.then(sides, roles, places, **DIRECT).then(render, inputs, shown, **DIRECT)

    for role, another in (("start", desk.another), ("partner", desk.partner)):
        state, field = chosen[role], c[f"{role}_file"]
        follow(field.upload(take, field, [state, c[f"{role}_said"]], **DIRECT))
        if f"{role}_list" in c:
            follow(c[f"{role}_list"].input(lambda key: key, c[f"{role}_list"], state, **DIRECT))
            follow(c[f"{role}_random"].click(another, [start, seed], [state, seed], **DIRECT))
    if "picked" in c:
        follow(c["picked"](roles))


def _gallery(gr: Any, desk: Desk) -> Callable[[list[Any]], Any]:
    """Lay out the gallery; returns what wires its clicks to the two chosen pictures."""
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

    def turn(split: str, rank: int, page: float | None) -> Any:
        return desk.shelf(split, None if rank < 0 else rank, page or 1)

    def pick(event: Any, role: str, keys: list[str]) -> tuple[Any, Any]:
        key = keys[int(event.index)]
        return (key, gr.skip()) if role == "start" else (gr.skip(), key)

    # Gradio looks at annotations to know what to hand over.
    pick.__annotations__["event"] = gr.SelectData
    gr.on(
        [tab.select, split.input, rank.input, page.change], turn, [split, rank, page],
        [sheet, listed, said], **DIRECT,
    )  # fmt: skip
    return lambda roles: sheet.select(pick, [role, listed], roles, **DIRECT)


def _codebook(gr: Any, desk: Desk) -> None:
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

    def read(book: Book) -> tuple[str, str, Any]:
        both, images, codes = desk.codes(book)
        return both, images, gr.update(choices=codes, value=codes[0][1] if codes else None)

    slow = {**DIRECT, "show_progress": "full", "show_progress_on": maps}
    gr.on([tab.select, book.input], read, book, [maps, images, code], **slow)
    code.input(desk.code, [book, code], images, **DIRECT)
