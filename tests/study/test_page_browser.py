"""The page of a study in a real browser: nothing runs over the edge of a phone."""

import json
import re
import shutil
import subprocess
from html import escape, unescape

import pytest

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome", "chrome")
     if (found := shutil.which(name))),
    None,
)  # fmt: skip

SCRIPT = """
const frame = document.getElementById("frame");
frame.addEventListener("load", () => {
  const page = frame.contentDocument, view = frame.contentWindow;
  const every = [...page.body.querySelectorAll("*")];
  const found = {
    scroll: page.documentElement.scrollWidth,
    beyond: every.filter((e) => !e.closest(".scroll")
      && e.getBoundingClientRect().right > view.innerWidth + 1).map((e) => e.tagName),
    font: Math.min(...[...page.querySelectorAll("td, th, p, li, small, figcaption")]
      .map((e) => parseFloat(view.getComputedStyle(e).fontSize))),
    broken: [...page.images].filter((i) => i.complete && !i.naturalWidth).length,
    pictures: page.images.length,
  };
  document.getElementById("found").textContent = JSON.stringify(found);
}, { once: true });
frame.srcdoc = document.getElementById("page").textContent;
"""


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
@pytest.mark.parametrize("width", [390, 1200])
def test_it_fits_a_phone_and_a_desk(finished, tmp_path, width):
    _, out, _ = finished
    page = (out / "study.html").read_text()
    outer = (
        f'<!doctype html><meta charset="utf-8"><pre id="found"></pre><iframe id="frame"'
        f' width="{width}" height="844" style="border:0"></iframe>'
        f'<pre id="page" hidden>{escape(page)}</pre><script>{SCRIPT}</script>'
    )
    (tmp_path / "outer.html").write_text(outer)
    shown = subprocess.run(
        [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=4000",
         f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,900", "--dump-dom",
         (tmp_path / "outer.html").as_uri()],
        capture_output=True, text=True, check=False, timeout=60,
    ).stdout  # fmt: skip
    match = re.search(r'<pre id="found">(.*?)</pre>', shown, re.S)
    assert match is not None
    found = json.loads(unescape(match[1]))
    assert found["beyond"] == []
    assert found["scroll"] <= width
    assert found["font"] >= 11
    assert found["broken"] == 0
    assert found["pictures"] > 30
