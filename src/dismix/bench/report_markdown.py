"""A report as Markdown, for reading where the records lie."""

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from dismix.bench.report_sections import Section
from dismix.bench.report_summary import Summary
from dismix.bench.tables import Cell, Table


def markdown_page(
    title: str, summary: Summary, sections: Sequence[Section], records: str, home: Path
) -> str:
    """Return the page.

    Args:
        title: Of the page.
        summary: Opens it.
        sections: Follow; charts are left out, their numbers are in tables.
        records: Address of the records' folder as seen from the page.
        home: Folder that the page will lie in.
    """
    lines = [f"# {plain(title)}", ""]
    for heading, sentences in summary.paragraphs:
        lines += [f"## {heading}", "", *(f"- {plain(s)}" for s in sentences), ""]
    for section in sections:
        lines += [f"## {plain(section.title)}", ""]
        lines += [plain(section.lead), ""] if section.lead else []
        for picture in section.pictures:
            place = quote(os.path.relpath(picture.path, home).replace(os.sep, "/"))
            lines += [f"![{plain(picture.caption)}]({place})", ""]
        for table in section.tables:
            lines += [f"**{plain(table.caption)}**", "", *markdown_table(table, records), ""]
            lines += [*(plain(note) for note in table.notes), ""]
        lines += [*(f"- {plain(line)}" for line in section.lines), ""]
    lines.append("For research on augmentation, not for diagnosis.")
    text = "\n".join(lines)
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text + "\n"


def plain(text: str) -> str:
    r"""Return text that Markdown leaves alone: no HTML, links, emphasis or table bars.

    Example:
        >>> plain("a|b <i> *x*")
        'a\\|b &lt;i&gt; \\*x\\*'
    """
    text = (
        text.replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    )
    for sign in "|*[]`":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def markdown_table(table: Table, records: str) -> list[str]:
    """Return the lines of a table; numbers link to the first of their records."""
    right = [place >= table.labels for place in range(len(table.columns))]
    lines = ["| " + " | ".join(plain(name) or " " for name in table.columns) + " |"]
    lines.append("|" + "|".join(" ---: " if r else " --- " for r in right) + "|")
    lines += ["| " + " | ".join(_cell(c, records) for c in row) + " |" for row in table.rows]
    return lines


def _cell(cell: Cell, records: str) -> str:
    text = plain(cell.text)
    if cell.ids and text:
        told = plain(" ".join(cell.ids[:12])).replace('"', "'")
        text = f'[{text}]({records}/{quote(cell.ids[0])}.json "{told}")'
    text = f"**{text}**" if cell.best else text
    text += f" ({plain(cell.mark)})" if cell.mark else ""
    return text + (f"<br><sub>paper {plain(cell.paper)}</sub>" if cell.paper else "")
