"""`dismix bench report`: records in, report.md and report.html out; no GPU and no images needed."""

import os
from pathlib import Path
from urllib.parse import quote

from dismix import atomic
from dismix.bench.plan import plan_title
from dismix.bench.report_html import html_page
from dismix.bench.report_markdown import markdown_page
from dismix.bench.report_sections import make_sections
from dismix.bench.report_study import read_study
from dismix.bench.report_summary import summarise
from dismix.progress import Progress, steps_of

HTML, MARKDOWN = "report.html", "report.md"


def write_report(
    folder: Path,
    out: Path | None = None,
    *,
    plan: str | None = None,
    progress: Progress | None = None,
    title: str = "",
) -> Path:
    """Write the report of a benchmark folder, or of one plan's runs in it.

    Args:
        folder: Holds ``records/*.json``; pictures of ``figures/`` are shown where present.
        out: Folder for ``report.html`` and ``report.md``; the benchmark's own by default,
            ``reports/PLAN`` below it for one plan.
        plan: Name of the plan whose runs are told of; all runs when None.
        progress: Called after each step.
        title: Heading; by default the folder or the plan, and what the plan calls itself.

    Returns:
        The path of the HTML page.
    """
    folder = Path(folder)
    own = folder if plan is None else folder / "reports" / plan
    home = own if out is None else Path(out)
    tick = steps_of(progress, "report", 4)
    study = read_study(folder, plan)
    tick()
    summary = summarise(study)
    sections = make_sections(study, summary, folder)
    tick()
    records = quote(os.path.relpath(folder / "records", home).replace(os.sep, "/"))
    title = title or _heading(folder, plan)
    atomic.write_text(home / MARKDOWN, markdown_page(title, summary, sections, records, home))
    tick()
    atomic.write_text(home / HTML, html_page(title, summary, sections, records))
    tick()
    return home / HTML


def _heading(folder: Path, plan: str | None) -> str:
    planned = plan_title(folder, plan)
    # Called a plan: a study that is not finished has run less than its plan's title may say.
    beside = f" (plan: {planned})" if planned else ""
    return f"DisMix benchmark: {plan or folder.resolve().name}{beside}"
