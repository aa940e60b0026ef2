"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

ManifestPath = Annotated[
    Path, typer.Argument(help="A manifest (CSV or Parquet), or a folder that holds manifest.csv.")
]
Output = Annotated[Path, typer.Option("-o", "--output", help="Where to write.")]
Seed = Annotated[int, typer.Option(help="Seed of all random choices.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress bar.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
