"""`dismix generator`: train the dual-codebook generator and look at what it learned."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dismix.cli.options import (
    Cpu,
    Device,
    ManifestPath,
    Quiet,
    Seed,
    check_output,
    merged,
    one_of_many,
)

app = typer.Typer(no_args_is_help=True, help="The generator: train it, report on it.")


Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Any setting, name=value; repeat.")
]
JudgeFile = Annotated[
    Path | None,
    typer.Option("--judge", help="A judge's file: read when it is there, else trained and kept."),
]
JudgeEpochs = Annotated[
    int | None, typer.Option(help="Passes of the judge's training; 0 does without.", min=0)
]
Epochs = Annotated[int | None, typer.Option(help="Passes over the training split.", min=1)]
# The discriminator's last layer finds no room in smaller pictures.
Size = Annotated[int | None, typer.Option(help="Pixels a side.", min=16)]


class HeldOut(StrEnum):
    """Splits to measure on."""

    test = "test"
    val = "val"


class Checkpoint(StrEnum):
    """Which weights of a run."""

    best = "best"
    last = "last"


class Arch(StrEnum):
    """Autoencoder shapes."""

    vq_f8 = "vq-f8"
    light = "light"
    light_f16 = "light-f16"
    tiny = "tiny"


ArchChoice = Annotated[
    Arch, typer.Option(help="vq-f8 (the paper's), light, light-f16 (half its grid), or tiny.")
]


@app.command()
def train(
    manifest: ManifestPath,
    run: Annotated[Path, typer.Option("-o", "--output", help="Run folder to fill.")],
    arch: ArchChoice = Arch.light,
    recipe: Annotated[str, typer.Option(help="paper, default or spatial.")] = "default",
    epochs: Epochs = None,
    size: Size = None,
    weights: Annotated[
        Path | None, typer.Option(help="Pretrained autoencoder to start from.", exists=True)
    ] = None,
    settings: Settings = None,
    seed: Seed = 0,
    resume: Annotated[bool, typer.Option(help="Continue an interrupted run.")] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write RUN/tensorboard.")
    ] = False,
    cpu: Cpu = False,
    quiet: Quiet = False,
) -> None:
    """Train a generator on the training split; choose its checkpoint on validation."""
    from dismix.generator.start_run import train_generator
    from dismix.progress import bar

    texts = merged(settings, {"epochs": None if epochs is None else str(epochs)})
    with bar(quiet=quiet or one_of_many()) as progress:
        best = train_generator(
            manifest, run, arch=arch.value, recipe=recipe, settings=texts, size=size,
            weights=weights, seed=seed, resume=resume, cpu=cpu, tensorboard=tensorboard,
            progress=progress,
        )  # fmt: skip
    if not one_of_many():
        # Runs that were begun by an earlier version do not know it.
        chance = f" (one rank for all: {best['chance']:.3f})" if "chance" in best else ""
        reached = f"{best['score']:.3f}{chance} at epoch {best['epoch']:.0f}"
        typer.echo(f"best mixing accuracy {reached} -> {run}")
        if "reader_order" in best:
            typer.echo(
                "read by one whose readings of real validation images have a rank correlation of"
                f" {best['reader_order']:.2f} with their votes"
            )


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="HTML file; RUN/report.html if absent.")
    ] = None,
    manifest: Annotated[
        Path | None, typer.Option(help="Data to judge on; what the run was trained on if absent.")
    ] = None,
    device: Device = "auto",
    cpu: Cpu = False,
    quiet: Quiet = False,
) -> None:
    """Write a page: pictures, reconstruction, probes, code maps and curves."""
    check_output(output, ".html")
    from dismix.generator.report import write_report
    from dismix.progress import bar

    with bar(quiet=quiet) as progress:
        path = write_report(
            run, output, manifest=manifest, device="cpu" if cpu else device, progress=progress
        )
    typer.echo(str(path))


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="JSON file; of the run's own data RUN/evaluation.json as well."
        ),
    ] = None,
    manifest: Annotated[
        Path | None, typer.Option(help="Data to judge on; what the run was trained on if absent.")
    ] = None,
    split: Annotated[
        HeldOut | None, typer.Option(help="test or val; test where there is one if absent.")
    ] = None,
    checkpoint: Annotated[
        Checkpoint, typer.Option(help="The chosen weights, or those of the last epoch.")
    ] = Checkpoint.best,
    judge: JudgeFile = None,
    judge_epochs: JudgeEpochs = None,
    seed: Seed = 0,
    device: Device = "auto",
    cpu: Cpu = False,
    quiet: Quiet = False,
) -> None:
    """Measure reconstruction, probes of both codes, and rank control by an independent judge."""
    check_output(output, ".json")
    from dismix.generator.evaluation import evaluate_generator
    from dismix.generator.evaluation_text import summary
    from dismix.progress import bar

    with bar(quiet=quiet) as progress:
        found = evaluate_generator(
            run, output, manifest=manifest, split=None if split is None else split.value,
            checkpoint=checkpoint.value, judge=judge, judge_epochs=judge_epochs, seed=seed,
            device="cpu" if cpu else device, progress=progress,
        )  # fmt: skip
    typer.echo(summary(found))


@app.command()
def ablate(
    manifest: ManifestPath,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the runs.")],
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Run this one alone; repeat.")
    ] = None,
    arch: ArchChoice = Arch.light,
    recipe: Annotated[str, typer.Option(help="paper, default or spatial.")] = "default",
    epochs: Epochs = None,
    size: Size = None,
    weights: Annotated[
        Path | None, typer.Option(help="Pretrained autoencoder to start from.", exists=True)
    ] = None,
    settings: Settings = None,
    judge_epochs: JudgeEpochs = None,
    seed: Seed = 0,
    cpu: Cpu = False,
    quiet: Quiet = False,
) -> None:
    """Train and evaluate with parts taken away; what is finished is not run again."""
    from dismix.errors import DisMixError
    from dismix.generator.ablations import ablation_table, run_ablations
    from dismix.progress import bar

    texts = merged(settings, {"epochs": None if epochs is None else str(epochs)})
    with bar(quiet=quiet) as progress:
        rows = run_ablations(
            manifest, output, only=only or (), arch=arch.value, recipe=recipe, settings=texts,
            judge_epochs=judge_epochs, size=size, weights=weights, seed=seed, cpu=cpu,
            progress=progress,
        )  # fmt: skip
    typer.echo(ablation_table(rows), nl=False)
    typer.echo(f"{output / 'ablations.csv'}, {output / 'ablations.md'}", err=True)
    if failed := [row for row in rows if "failed" in row]:
        raise DisMixError(f"{len(failed)} of {len(rows)} failed; {failed[0]['failed']}")
