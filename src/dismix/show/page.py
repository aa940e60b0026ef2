"""Self-contained HTML pages: text, tables and pictures in one file, no scripts or links out."""

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from dismix import atomic

STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 1180px;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.7rem; margin-bottom: .2rem } h2 { margin-top: 2.2rem; font-size: 1.25rem }
figure { margin: 0 0 1rem } figcaption { color: #667 }
p.lead { color: #667; margin-top: 0 } img { max-width: 100%; border-radius: 4px }
pre { background: #8881; padding: .7rem 1rem; overflow-x: auto; border-radius: 4px }
table { border-collapse: collapse; margin: .8rem 0; display: block; overflow-x: auto }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #8884 }
th:first-child, td:first-child { text-align: left }
p.note { border-left: 3px solid #c93; padding-left: .8rem }
@media print { body { margin: 0; max-width: none } h2 { break-after: avoid }
  img { break-inside: avoid } }
"""


class Page:
    """An HTML page built from top to bottom.

    Example:
        >>> page = Page("Report", "what it is")
        >>> page.heading("Counts")
        >>> page.table(["grade", "images"], [["0", 12]])
        >>> "<td>12</td>" in page.html()
        True
    """

    def __init__(self, title: str, lead: str = "") -> None:
        self.title = title
        self._parts = [f"<h1>{html.escape(title)}</h1>"]
        if lead:
            self._parts.append(f'<p class="lead">{html.escape(lead)}</p>')

    def heading(self, text: str) -> None:
        """Add a section heading."""
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self._parts.append(f"<p>{html.escape(text)}</p>")

    def note(self, text: str) -> None:
        """Add a paragraph that stands out."""
        self._parts.append(f'<p class="note">{html.escape(text)}</p>')

    def pre(self, text: str) -> None:
        """Add text as it is: a command, an output."""
        self._parts.append(f"<pre>{html.escape(text)}</pre>")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Add a table; numbers are right-aligned, the first column is not."""
        head = "".join(f"<th>{html.escape(h)}</th>" for h in header)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>"
            for row in rows
        )
        self._parts.append(f"<table><tr>{head}</tr>{body}</table>")

    def picture(self, picture: Image.Image, caption: str) -> None:
        """Add a picture, embedded; the caption is also its alternative text."""
        buffer = io.BytesIO()
        picture.save(buffer, "PNG", optimize=True)
        data = base64.b64encode(buffer.getvalue()).decode()
        self._parts.append(
            f'<figure><img alt="{html.escape(caption)}" src="data:image/png;base64,{data}">'
            f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        )

    def html(self) -> str:
        """Return the whole page."""
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{html.escape(self.title)}</title><style>{STYLE}</style></head>"
            f"<body>{''.join(self._parts)}</body></html>\n"
        )

    def write(self, path: str | Path) -> None:
        """Write the page atomically."""
        atomic.write_text(path, self.html())
