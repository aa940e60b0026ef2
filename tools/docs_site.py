"""What mkdocs does not do by itself; see `hooks` in mkdocs.yml.

The pages in docs/ link to files of the repository (benchmarks, results, examples), so that they
read well in a checkout. On the site those files become pages below repository/, pictures are
copied, and what is neither stays as text.
"""

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

# Below mkdocs' own logger, so that `--strict` counts what it says.
LOG = logging.getLogger("mkdocs.plugins.docs_site")
ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md",
    "results/README.md", "results/tried.md", "results/earlier.md", "results/generator/README.md",
    "results/mixing/README.md", "results/graders/README.md",
    *sorted(f"examples/{path.name}" for path in (ROOT / "examples").glob("*.py")),
)  # fmt: skip
LINK = re.compile(
    r"(!?)\[((?:[^\]\[]|\[[^\]]*\])*)\]\((?!https?:|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)"
)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the repository's files as pages, and the pictures they show."""
    for name in PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        for mark, _, target, _ in LINK.findall(text):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            if mark and (ROOT / path).is_file():
                picture = str(ROOT / path)
                files.append(File.generated(config, f"repository/{path}", abs_src_path=picture))
        if name.endswith(".py"):
            text = f"# {name}\n\n```python\n{text}```\n"
        files.append(File.generated(config, _page(name), content=text))
    return files


def _page(name: str) -> str:
    return "repository/" + (name.removesuffix(".py") + ".md" if name.endswith(".py") else name)


def on_page_markdown(markdown: str, *, page: Any, files: Files, **_: Any) -> str:
    """Point links that leave docs/ to their pages on the site."""
    here = page.file.src_uri
    folder = posixpath.dirname(here)
    # Where the text lies in the repository.
    source = (
        folder.removeprefix("repository") if here.startswith("repository/") else f"docs/{folder}"
    )

    def rewritten(match: re.Match[str]) -> str:
        mark, text, target, anchor = match[1], match[2], match[3], match[4] or ""
        path = posixpath.normpath(posixpath.join(source.strip("/"), target))
        inside = path.removeprefix("docs/")
        if path.startswith("docs/"):
            wanted = inside
        elif mark:
            wanted = f"repository/{path}"
        elif path in PAGES:
            wanted = _page(path)
        else:
            if not (ROOT / path).exists():
                LOG.warning(f"{here} links to missing {target}")
            return text if text.startswith("`") else f"{text} (`{path}`)"
        if files.get_file_from_path(wanted) is None:
            LOG.warning(f"{here} links to missing {target}")
        return f"{mark}[{text}]({posixpath.relpath(wanted, folder or '.')}{anchor})"

    # Code is left as it is.
    parts = re.split(r"(^```.*?^```)", markdown, flags=re.S | re.M)
    return "".join(p if p.startswith("```") else LINK.sub(rewritten, p) for p in parts)
