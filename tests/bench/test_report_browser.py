"""The page in a real browser: sorting, links to runs, no errors, no overflow on a phone.

The report is put into a frame of a phone's width, worked on by a script, and what that found is
read from the page that the browser prints.
"""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path

import pytest
from tests.bench.synthetic import Lab, torn_study

from dismix.bench.report import write_report

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome", "chrome")
     if (found := shutil.which(name))),
    None,
)  # fmt: skip

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")

SCRIPT = """
const frame = document.getElementById("frame"), found = {};
frame.addEventListener("load", () => {
  try {
    const page = frame.contentDocument, view = frame.contentWindow;
    found.errors = view.errors;
    found.width = view.innerWidth;
    found.scroll = page.documentElement.scrollWidth;
    const inBox = (e) => e.closest(".scroll, nav, .picture, .chart");
    found.beyond = [...page.body.querySelectorAll("*")]
      .filter((e) => !inBox(e) && e.getBoundingClientRect().right > view.innerWidth + 1)
      .map((e) => e.tagName);
    const table = page.getElementById("t-main-accuracy");
    const heads = [...table.tHead.rows[0].cells];
    const head = heads.find((h) => h.textContent === "Mixup");
    const column = () => [...table.tBodies[0].rows].map((r) => r.cells[head.cellIndex].textContent);
    const button = head.querySelector("button");
    found.orders = [[head.ariaSort, column()]];
    for (let i = 0; i < 3; i++) { button.click(); found.orders.push([head.ariaSort, column()]); }
    found.focusable = button.tabIndex;
    heads[1].querySelector("button").click();
    found.graders = [...table.tBodies[0].rows].map((r) => r.cells[1].textContent);
    const link = table.querySelector("td a[data-ids]");
    found.wanted = link.dataset.ids.split(" ").length;
    found.boxBefore = page.getElementById("runs-box").open;
    // A frame's anchors would lead to the page around it.
    link.addEventListener("click", (event) => event.preventDefault());
    link.click();
    found.boxAfter = page.getElementById("runs-box").open;
    const runs = [...page.querySelectorAll("#t-runs tbody tr")];
    const rows = () => runs.filter((r) => !r.hidden).length;
    found.shown = rows();
    found.told = page.getElementById("chosen").textContent;
    page.querySelector("#chosen button").click();
    found.all = rows();
    found.font = Math.min(...[...page.querySelectorAll("td, th, p, li, small, sup")]
      .map((e) => parseFloat(view.getComputedStyle(e).fontSize)));
  } catch (error) { found.failure = String(error); }
  document.getElementById("found").textContent = JSON.stringify(found);
}, { once: true });
"""
WATCH = (
    "<script>var errors = []; addEventListener('error', (e) => errors.push(e.message));</script>"
)


def look(folder: Path, width: int) -> dict:
    """Open a report in a frame of a width and return what the script found."""
    page = (folder / "report.html").read_text(encoding="utf-8")
    page = page.replace("<head>", f"<head>{WATCH}", 1)
    outer = (
        f'<!doctype html><meta charset="utf-8"><pre id="found"></pre><iframe id="frame"'
        f' width="{width}" height="844" style="border:0"></iframe><script>{SCRIPT}'
        f'frame.srcdoc = document.getElementById("page").textContent;</script>'
    ).replace("<iframe", f'<div id="page" hidden>{escape(page)}</div><iframe', 1)
    harness = folder / "harness.html"
    harness.write_text(outer, encoding="utf-8")
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=4000",
        "--window-size=1400,900", "--dump-dom", harness.as_uri(),
    ]  # fmt: skip
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    match = re.search(r'<pre id="found">(.*?)</pre>', shown, re.DOTALL)
    assert match is not None, "the browser printed no page"
    assert match[1], "the script found nothing"
    found = json.loads(unescape(match[1]))
    assert "failure" not in found, found["failure"]
    return found


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("page"))
    for data in ("idrid", "koa"):
        for grader in ("poe", "gol", "cloc"):
            for mixer in ("none", "mixup", "cutmix", "guidedmixup", "dismix"):
                for seed in range(2):
                    if (grader, mixer) != ("gol", "mixup"):
                        lab.grader(data, grader, mixer, seed)
    write_report(lab.folder)
    return lab.folder


def test_phone(study):
    found = look(study, 390)
    assert found["errors"] == []
    assert found["width"] == 390
    assert found["scroll"] <= 390
    assert found["beyond"] == []
    assert found["font"] >= 9

    def numbers(cells):
        return [float(cell.split()[0]) for cell in cells if "not run" not in cell]

    (_, before), (up, rising), (down, falling), (none, after) = found["orders"]
    assert (up, down, none) == ("ascending", "descending", "none")
    assert numbers(before) != sorted(numbers(before))
    assert numbers(rising) == sorted(numbers(before))
    assert numbers(falling) == sorted(numbers(before), reverse=True)
    # What was not run stays last in both directions.
    assert all("not run" in cell for column in (rising, falling) for cell in column[-2:])
    assert after == before
    assert found["graders"] == sorted(found["graders"])
    assert found["focusable"] == 0
    assert (found["boxBefore"], found["boxAfter"]) == (False, True)
    assert found["shown"] == found["wanted"] == 2
    assert found["told"].startswith("2 runs behind")
    assert found["all"] == len(list((study / "records").glob("*.json")))


def test_desktop_with_odd_names(tmp_path):
    torn_study(tmp_path)
    write_report(tmp_path)
    found = look(tmp_path, 1280)
    assert found["errors"] == []
    assert found["scroll"] <= 1280
    assert found["beyond"] == []
