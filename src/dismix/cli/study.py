"""`dismix study`: does mixing help on these images? One page answers."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dismix.cli.options import AsJson, Cpu, ManifestPath, OnError, OnErrorOption, Quiet, pairs


class MetricName(StrEnum):
    """What decides."""

    mae = "mae"
    accuracy = "accuracy"
    rps = "rps"


def study(
    manifest: ManifestPath,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to fill or to go on in.")],
    folds: Annotated[int, typer.Option(help="Every image is held out once.", min=2)] = 5,
    repeats: Annotated[
        int | None,
        typer.Option(help="Trainings of each kind in each fold; 3, fewer in a budget.", min=1),
    ] = None,
    grader: Annotated[str, typer.Option(help="Method (`dismix grader methods`).")] = "ce",
    metric: Annotated[MetricName, typer.Option(help="What decides.")] = MetricName.mae,
    worth: Annotated[
        float | None,
        typer.Option(
            help="Smallest gain worth having: 0.03 of mae, 0.02 (2 points) of accuracy, 0.01 of rps"
            " if absent.",
            min=0,
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Minutes for everything; chooses equal epochs for all.", min=0),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Of every grader.", min=1)] = None,
    generator_epochs: Annotated[int | None, typer.Option(help="Of every generator.", min=1)] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Network; tiny on a CPU, a pretrained one on a GPU.")
    ] = None,
    arch: Annotated[
        str | None, typer.Option(help="Generator; tiny on a CPU, light on a GPU.")
    ] = None,
    size: Annotated[int | None, typer.Option(help="Pixels a side.", min=16)] = None,
    without_test: Annotated[
        bool, typer.Option("--without-test", help="Leave rows marked 'test' out.")
    ] = False,
    on_error: OnErrorOption = OnError.stop,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Further settings, as for `dismix bench run`; repeat."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say what would be done and how long it takes.")
    ] = False,
    jobs: Annotated[int, typer.Option(help="Trainings at once.", min=1)] = 1,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run again what failed before.")
    ] = False,
    cpu: Cpu = False,
    json_out: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find out whether mixing helps on your images: one page with an answer and its doubt."""
    import json

    from dismix.errors import DisMixError
    from dismix.progress import bar
    from dismix.study.choices import Choices
    from dismix.study.conduct import announce, conduct
    from dismix.study.findings import PAGE

    if plan and json_out:
        raise DisMixError("--plan is a line of text", column="--json", cure="leave one of them out")
    choices = Choices(
        folds, repeats, grader, metric.value, worth, epochs, generator_epochs, backbone, arch,
        size, budget, without_test, on_error.value, cpu, pairs(changes, "--set"),
    )  # fmt: skip
    with bar(quiet=quiet) as progress:
        if plan:
            typer.echo(announce(manifest, output, choices, progress, jobs=jobs))
            return

        def tell(line: str) -> None:
            # Not by typer, which writes past the bar and into its line.
            sys.stderr.write(line + "\n")

        found = conduct(
            manifest, output, choices, jobs=jobs, retry_failed=retry_failed, tell=tell,
            progress=progress,
        )  # fmt: skip
    if json_out:
        typer.echo(json.dumps(found))
        return
    reasons = found["reasons"]
    assert isinstance(reasons, list)
    for line in [found["headline"], *reasons, output / PAGE]:
        typer.echo(str(line))
