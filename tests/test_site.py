"""The documentation site: built strictly, complete, and without other people's servers."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import dismix
from dismix import mixing

ROOT = Path(__file__).parents[1]
pytest.importorskip("mkdocs")
pytest.importorskip("material")
pytest.importorskip("mkdocstrings_handlers.python")


class Links(HTMLParser):
    """What a page points to, what it loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") != "canonical":
            self.loaded.append(given.get("href", ""))
        if "src" in given:
            self.loaded.append(given["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # Not quiet: that would silence the warnings which strictness counts.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    # A proxy that is not there: a build that asks the network fails instead of passing by luck.
    nowhere = {f"{kind}_proxy": "http://127.0.0.1:9" for kind in ("http", "https", "all")}
    environment = {**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "WARNING" not in result.stderr + result.stdout
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Links]:
    return {
        page.relative_to(site).as_posix(): Links(page.read_text()) for page in site.rglob("*.html")
    }


def test_nothing_is_loaded_from_elsewhere(pages, site):
    for name, page in pages.items():
        away = [target for target in page.loaded if urlsplit(target).netloc]
        assert not away, f"{name} loads {away}"
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style.read_text()), style


def test_every_link_leads_somewhere(pages, site):
    for name, page in pages.items():
        # The page of missing pages is shown at any depth.
        for target in [*page.links, *page.loaded] if name != "404.html" else []:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or not target:
                continue
            path = (site / name).parent / unquote(parts.path) if parts.path else site / name
            path = path / "index.html" if path.is_dir() else path
            assert path.is_file(), f"{name} links to missing {target}"
            there = pages.get(path.resolve().relative_to(site.resolve()).as_posix())
            anchor = unquote(parts.fragment)
            assert there is None or not anchor or anchor in there.anchors, f"{name}: {target}"


def test_public_names_are_in_the_reference(pages):
    anchors = {a.rsplit(".", 1)[-1] for page in pages.values() for a in page.anchors if "." in a}
    names = {*dismix.__all__, *mixing._HOMES} - {"MIXERS", "BASELINES"}
    assert names <= anchors, names - anchors


def test_all_pages_are_in_the_menu(site, pages):
    menu = {unquote(urlsplit(link).path) for link in pages["index.html"].links}
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").as_posix()
        name = name.replace("README.md", "index.md").removesuffix("md") + "html"
        assert name in menu, f"{name} is not in the menu of mkdocs.yml"
