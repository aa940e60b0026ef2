"""Options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

ManifestPath = Annotated[
    Path, typer.Argument(help="A manifest (CSV or Parquet), or a folder that holds manifest.csv.")
]
Output = Annotated[Path, typer.Option("-o", "--output", help="Where to write.")]
Seed = Annotated[int, typer.Option(help="Seed of all random choices.", min=0)]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress bar.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


class OnError(StrEnum):
    """What to do with a file that cannot be read."""

    stop = "stop"
    skip = "skip"


OnErrorOption = Annotated[
    OnError, typer.Option(help="A file that cannot be read: stop, or skip and list it.")
]


def report_skipped(lines: list[str]) -> None:
    """Print what was skipped to stderr, a line a file."""
    for line in lines:
        typer.echo(f"skipped: {line}", err=True)
