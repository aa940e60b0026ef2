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
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer
from PIL import Image

from dismix.cli import main
from dismix.cli.app import app
from tests.conftest import SHARED

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.S | re.M)
#: The quick start's commands do a newcomer's work; the tests need less of it.
SHORTER = {
    "phantom -o knees -q": "phantom -o knees --train 60 --val 20 --test 20 -q",
    "--epochs 34": "--set epochs=1 --set guide_steps=1 --cpu",
    "--size 64 --epochs 20 -q": "--size 64 --epochs 1 --batch-size 20 --cpu -q",
    "--epochs 20 --mix": "--epochs 1 --batch-size 20 --cpu --mix",
}
#: What trainings say that were made so short.
SHORT_SAYS = "note: all images were given one and the same grade"
#: Pages that train the same small generator share it: command -> (run folder, output).
TRAINED: dict[str, tuple[Path, str]] = {}
CHECKER = doctest.OutputChecker()
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


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
    _make_mistakes(tmp_path)
    for name in ("0_healthy", "1_early", "2_late"):
        (tmp_path / "graded" / name).mkdir(parents=True)
        for i in range(4):
            Image.new("L", (32, 32), 60 * i).save(tmp_path / "graded" / name / f"{i}.png")
    return tmp_path


def _make_mistakes(folder: Path) -> None:
    """Write the files of the troubleshooting page."""
    tables = {
        "names": "image,grade\nimg00.png,mild\nimg01.png,severe\n",
        "from_one": "image,grade\nimg00.png,1\nimg01.png,5\n",
        "absent": "image,grade\ngone.png,0\nimg01.png,1\n",
        "twice": "image,grade\nimg00.png,0\nimg00.png,1\n",
        "waiting": "image,dr_ann,dr_bob\nimg00.png,0,1\nimg01.png,,\nimg02.png,1,\n",
        "cut": "image,grade\ncut.png,0\nimg01.png,1\n",
        "trainonly": "image,grade\n" + "".join(f"img{i:02d}.png,{i % 5}\n" for i in range(30)),
    }
    for name, text in tables.items():
        (folder / f"{name}.csv").write_text(text)
    (folder / "windows.csv").write_bytes("image,grade\nmüller.png,0\n".encode("cp1252"))
    (folder / "unicode.csv").write_bytes("image,grade\nimg00.png,0\n".encode("utf-16"))
    (folder / "grades.xlsx").write_bytes(b"PK\x03\x04")
    Image.effect_noise((64, 64), 60).save(folder / "cut.png")
    (folder / "cut.png").write_bytes((folder / "cut.png").read_bytes()[:1500])


def run(command: str, folder: Path) -> str:
    """Run a shell line in the present folder; our own commands in this process, for speed."""
    given = command
    for long, short in SHORTER.items():
        command = command.replace(long, short)
    words = shlex.split(command)
    if words[0] != "dismix" or set(words) & set("|><&;"):
        result = subprocess.run(
            command, shell=True, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return result.stdout
    if command in TRAINED:
        fresh = shutil.ignore_patterns("latents")
        shutil.copytree(TRAINED[command][0], words[words.index("-o") + 1], ignore=fresh)
        return TRAINED[command][1]
    sys.argv = words
    text = io.StringIO()
    leaving = contextlib.suppress(SystemExit)
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text), leaving:
        main()
    lines = text.getvalue().replace(str(folder) + "/", "").split("\n")
    lines = [line for line in lines if command == given or not line.startswith(SHORT_SAYS)]
    output = "\n".join(line.rstrip() for line in lines)
    if command.startswith("dismix generator train knees -o runs/knees --arch tiny --set epochs=1"):
        TRAINED[command] = folder / "runs" / "knees", output
    return output


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_python_blocks_run(page, workplace, monkeypatch):
    blocks = [code for language, code in BLOCK.findall(page.read_text()) if language == "python"]
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("DISMIX_CACHE", str(workplace / "cache"))
    for code in blocks:
        exec(compile(code, str(page), "exec"), {})
    assert blocks or page not in (ROOT / "README.md", ROOT / "docs" / "data.md")


@pytest.mark.parametrize("page", PAGES, ids=_name)
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


def _commands() -> dict[tuple[str, ...], set[str]]:
    """Return every command with the options it takes."""
    found: dict[tuple[str, ...], set[str]] = {}

    def walk(command: Any, path: tuple[str, ...]) -> None:
        members = getattr(command, "commands", {})
        for name, member in members.items():
            walk(member, (*path, name))
        if not members:
            options = [o for p in command.params for o in (*p.opts, *p.secondary_opts)]
            found[path] = {*options, "-h", "--help"}

    walk(typer.main.get_command(app), ())
    return found


def _shown_commands(text: str) -> list[list[str]]:
    """Return the words of every `dismix ...` in the page's code that is not Python."""
    blocks = [code for language, code in BLOCK.findall(text) if language != "python"]
    blocks += re.findall(r"^```\n(.*?)^```$", text, re.S | re.M)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`(dismix [a-z][^`]*)`", text)
    starts = re.compile(r"^(?:\$ )?(?:.*-m )?(dismix [a-z].*)$")
    return [m[1].split("#")[0].split() for line in lines if (m := starts.match(line))]


MISTAKES = {"train", "impotr"}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_commands_on_the_pages_exist(page):
    known = _commands()
    for words in _shown_commands(page.read_text()):
        path = next((p for n in (3, 2, 1) if (p := tuple(words[1 : 1 + n])) in known), None)
        group = any(p[: len(words) - 1] == tuple(words[1:]) for p in known)
        assert path or group or MISTAKES & set(words[1:3]), f"no such command: {' '.join(words)}"
        options = {w.split("=")[0] for w in words if re.match(r"--?[a-z]", w)}
        assert options <= known.get(path, options), f"{' '.join(words)}: {options - known[path]}"


def test_every_command_is_on_a_page():
    text = "\n".join(page.read_text() for page in PAGES)
    absent = [" ".join(path) for path in _commands() if f"dismix {' '.join(path)}" not in text]
    # The guide to a command may come after it.
    written = {page.stem for page in PAGES}
    assert [name for name in absent if name != "study" or "study" in written] == []


def test_pages_link_to_files_that_exist():
    for page in [*PAGES, *ROOT.glob("*.md"), *ROOT.glob("*/README.md")]:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to missing {target}"
