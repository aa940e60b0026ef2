"""`dismix demo`: the whole story on built-in data, and a page to look at."""

import time
from pathlib import Path
from typing import Annotated

import typer

from dismix.cli.options import Quiet


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to fill.")] = Path("demo"),
    jobs: Annotated[
        int | None,
        typer.Option(help="Runs at once; two if absent, where there are two cores.", min=1),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Draw pictures, train a generator, mix, grade with and without mixing, and write a page.

    Minutes on a CPU. Stopped and called again, it goes on where it was; finished parts are reused.
    """
    from dismix.demo.story import tell
    from dismix.progress import bar

    start = time.perf_counter()
    with bar(quiet=quiet) as progress:
        path = tell(output, jobs=jobs, progress=progress)
    typer.echo(f"{path} written in {time.perf_counter() - start:.0f} s; open it in a browser")
