"""A report as one HTML page that needs nothing but itself (and the records it links to)."""

import base64
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from urllib.parse import quote

from dismix.bench.report_sections import Picture, Section
from dismix.bench.report_summary import Summary
from dismix.bench.tables import Cell, Table


def html_page(title: str, summary: Summary, sections: Sequence[Section], records: str) -> str:
    """Return the page.

    Args:
        title: Of the page.
        summary: Opens it.
        sections: Follow.
        records: Address of the records' folder as seen from the page.
    """
    links = "".join(f'<a href="#{escape(s.key)}">{escape(s.title)}</a>' for s in sections)
    body = "".join(_section(section, records) for section in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{_part('css')}</style></head>"
        f"<body><header><h1>{escape(title)}</h1>{_summary(summary)}</header>"
        f'<nav aria-label="Sections">{links}</nav><main>{body}</main>'
        "<footer>For research on augmentation, not for diagnosis. Interpolated ranks are training"
        f" targets, not clinical grades.</footer><script>{_part('js')}</script></body></html>\n"
    )


def _part(kind: str) -> str:
    return (files("dismix.bench") / f"report_page.{kind}").read_text(encoding="utf-8")


def _summary(summary: Summary) -> str:
    tiles = "".join(
        f'<div class="tile"><b>{escape(t.figure)}</b><span>{escape(t.title)}</span>'
        f"<small>{escape(t.more)}</small></div>"
        for t in summary.tiles
    )
    parts = [f'<div class="tiles">{tiles}</div><div class="summary">']
    for heading, sentences in summary.paragraphs:
        told = "".join(f"<li>{escape(s)}</li>" for s in sentences)
        parts.append(f"<section><h2>{escape(heading)}</h2><ul>{told}</ul></section>")
    return "".join([*parts, "</div>"])


def _section(section: Section, records: str) -> str:
    lead = f'<p class="lead">{escape(section.lead)}</p>' if section.lead else ""
    lines = "".join(f"<li>{escape(line)}</li>" for line in section.lines)
    body = (
        _tables(section.tables, records, section.chart)
        + "".join(_picture(picture) for picture in section.pictures)
        + (f"<ul>{lines}</ul>" if lines else "")
    )
    if section.folded:
        count = sum(len(table.rows) for table in section.tables)
        body = (
            f'<details id="{section.key}-box"><summary>show {count:,}</summary>'
            f'<p id="chosen" hidden></p>{body}</details>'
        )
    head = f"<h2>{escape(section.title)}</h2>{lead}"
    return f'<section id="{escape(section.key)}">{head}{body}</section>'


def _picture(picture: Picture) -> str:
    data = base64.b64encode(picture.path.read_bytes()).decode()
    kind = "jpeg" if picture.path.suffix.lower() in (".jpg", ".jpeg") else "png"
    words = escape(picture.caption)
    return (
        f'<figure class="picture" tabindex="0"><img alt="{words}"'
        f' src="data:image/{kind};base64,{data}"></figure>'
    )


def _tables(tables: Sequence[Table], records: str, chart: str) -> str:
    """Return a chart and tables side by side where there is room, their notes once, below."""
    if not tables and not chart:
        return ""
    ordered = sorted(tables, key=lambda table: table.folded)
    boxes = "".join(html_table(table, records) for table in ordered)
    notes = dict.fromkeys(note for table in tables for note in table.notes)
    told = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f'<div class="tables">{chart}{boxes}</div><div class="notes">{told}</div>'


def html_table(table: Table, records: str) -> str:
    """Return a table in a box of its own that scrolls, with headings that sort."""
    head = "".join(
        f'<th scope="col" aria-sort="none"{_head_class(table, place)}>'
        f'<button type="button">{escape(name)}</button></th>'
        for place, name in enumerate(table.columns)
    )
    rows = "".join(_row(table, row, records) for row in table.rows)
    # Two label columns stay in view where a table scrolls; a third would leave no room.
    kind = f"labels{min(2, table.labels)}"
    words = escape(table.caption)
    # A folded table is told by its fold.
    caption = "" if table.folded else f"<caption><span>{words}</span></caption>"
    made = (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{words}">'
        f'<table id="t-{escape(table.key)}" class="{kind}">{caption}'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    return f"<details><summary>{words}</summary>{made}</details>" if table.folded else made


def _head_class(table: Table, place: int) -> str:
    """Return how a heading stands: as the cells below it."""
    words = all(isinstance(row[place].value, str | None) for row in table.rows)
    kinds = ["ours"] * (place == table.ours)
    kinds += ["words"] * (words and not any(row[place].missing for row in table.rows))
    return f' class="{" ".join(kinds)}"' if kinds else ""


def _row(table: Table, row: Sequence[Cell], records: str) -> str:
    # A run's own row is what numbers point at.
    anchor = f' id="r-{escape(row[0].ids[0])}"' if row[0].link else ""
    cells = [
        _cell(cell, records, head=place < table.labels, ours=place == table.ours)
        for place, cell in enumerate(row)
    ]
    return f"<tr{anchor}>{''.join(cells)}</tr>"


def _cell(cell: Cell, records: str, *, head: bool, ours: bool) -> str:
    kinds = ["num"] if isinstance(cell.value, float) else []
    kinds += ["ours"] if ours else []
    kinds += ["best"] if cell.best else []
    kinds += ["missing"] if cell.missing else []
    style = ""
    if cell.tone is not None:
        kinds.append("up" if cell.tone >= 0 else "down")
        style = f' style="--t:{abs(cell.tone):.3f}"'
    value = "" if cell.value is None else f' data-v="{escape(str(cell.value))}"'
    kind = f' class="{" ".join(kinds)}"' if kinds else ""
    name = "th" if head else "td"
    scope = ' scope="row"' if head else ""
    return f"<{name}{scope}{kind}{style}{value}>{_inner(cell, records)}</{name}>"


def _inner(cell: Cell, records: str) -> str:
    number, _, deviation = cell.text.partition(" ± ")
    text = escape(number) + (f"<span>&nbsp;±&nbsp;{escape(deviation)}</span>" if deviation else "")
    if cell.link:
        text = f'<a href="{escape(records)}/{quote(cell.link)}"><code>{text}</code></a>'
    elif cell.ids:
        told = "; ".join(part for part in (cell.note, _ids(cell.ids)) if part)
        text = (
            f'<a href="#r-{escape(cell.ids[0])}" data-ids="{escape(" ".join(cell.ids))}"'
            f' title="{escape(told)}">{text}</a>'
        )
    elif cell.note:
        text = f'<span title="{escape(cell.note)}">{text}</span>'
    mark = f"<sup>{escape(cell.mark)}</sup>" if cell.mark else ""
    paper = f"<small>{escape(cell.paper)}</small>" if cell.paper else ""
    return f"{text}{mark}{paper}"


def _ids(ids: Sequence[str]) -> str:
    listed = ", ".join(ids[:4]) + (f" and {len(ids) - 4} more" if len(ids) > 4 else "")
    return f"record{'s' * (len(ids) > 1)} {listed}"
