"""README and docs: every Python block runs, every console block gives the output it shows.

To refresh the shown outputs after a deliberate change:
`DISMIX_WRITE_DOCS=1 pytest tests/test_docs.py`.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from dismix.cli import main
from tests.conftest import SHARED

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.S | re.M)
CHECKER = doctest.OutputChecker()
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A folder with the small files that the pages talk about."""
    if (SHARED / "data").is_dir():
        (tmp_path / "data").symlink_to(SHARED / "data")
    rows = []
    for i in range(30):
        Image.new("L", (32, 32), 8 * i).save(tmp_path / f"img{i:02d}.png")
        votes = {"dr_ann": i % 3, "dr_bob": (i % 3) if i % 4 else ""}
        rows.append({"file": f"img{i:02d}.png", "patient": f"p{i // 2}", **votes})
    pd.DataFrame(rows).to_csv(tmp_path / "clinic.csv", index=False)
    (tmp_path / "typo.csv").write_text("image,grade\nimg00.png,0\nimg01.png,1\nimg02.png,o\n")
    for name in ("0_healthy", "1_early", "2_late"):
        (tmp_path / "graded" / name).mkdir(parents=True)
        for i in range(4):
            Image.new("L", (32, 32), 60 * i).save(tmp_path / "graded" / name / f"{i}.png")
    return tmp_path


def run(command: str, folder: Path) -> str:
    """Run a shell line in the present folder; our own commands in this process, for speed."""
    words = shlex.split(command)
    if words[0] != "dismix" or set(words) & set("|><&;"):
        result = subprocess.run(
            command, shell=True, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return result.stdout
    sys.argv = words
    text = io.StringIO()
    leaving = contextlib.suppress(SystemExit)
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text), leaving:
        main()
    lines = text.getvalue().replace(str(folder) + "/", "").split("\n")
    return "\n".join(line.rstrip() for line in lines)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_blocks_run(page, workplace, monkeypatch):
    blocks = [code for language, code in BLOCK.findall(page.read_text()) if language == "python"]
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("DISMIX_CACHE", str(workplace / "cache"))
    for code in blocks:
        exec(compile(code, str(page), "exec"), {})
    assert blocks or page.name not in ("README.md", "data.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_console_blocks_show_real_output(page, workplace, monkeypatch):
    text, wrong = page.read_text(), []
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("DISMIX_CACHE", str(workplace / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "argv", [])
    for language, block in BLOCK.findall(text):
        if language != "console":
            continue
        parts = re.split(r"^\$ (.*)\n", block, flags=re.M)
        new = parts[0]
        for command, shown in zip(parts[1::2], parts[2::2], strict=True):
            if re.search(r"data/|idrid/", command) and not (workplace / "data").exists():
                new += f"$ {command}\n{shown}"
                continue
            real = run(command, workplace)
            if not CHECKER.check_output(shown or "\n", real or "\n", FLAGS):
                wrong.append(f"$ {command}\nshown:\n{shown}\nreal:\n{real}")
                shown = real
            new += f"$ {command}\n{shown}"
        text = text.replace(f"```console\n{block}```", f"```console\n{new}```")
    if wrong and os.environ.get("DISMIX_WRITE_DOCS"):
        page.write_text(text)
        wrong = []
    assert not wrong, "\n".join(wrong)


def test_pages_link_to_files_that_exist():
    for page in [*PAGES, *ROOT.glob("*.md"), *ROOT.glob("*/README.md")]:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to missing {target}"
