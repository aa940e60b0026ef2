"""Pages are self-contained and say nothing unescaped."""

import re

from PIL import Image

from dismix.show.page import Page


def test_page_is_self_contained_and_escaped(tmp_path):
    page = Page("<b>Title</b>", "a & b")
    page.heading("Section")
    page.text("x < y")
    page.note("careful")
    page.pre("$ command")
    page.table(["grade", "n"], [["mild & co", 3]])
    page.picture(Image.new("RGB", (4, 4)), 'a "quoted" caption')
    page.write(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "&lt;b&gt;Title&lt;/b&gt;" in text
    assert "mild &amp; co" in text
    assert 'alt="a &quot;quoted&quot; caption"' in text
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "<script" not in text
