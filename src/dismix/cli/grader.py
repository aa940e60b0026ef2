"""`dismix grader`: train an ordinal grader, judge it, use it on new images, export it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from dismix.cli.options import (
    AsJson,
    Cpu,
    ManifestPath,
    Quiet,
    Seed,
    merged,
    one_of_many,
    pairs,
    usable_device,
)

app = typer.Typer(no_args_is_help=True, help="Graders: train, evaluate, predict, export.")

RunPath = Annotated[Path, typer.Argument(help="Run folder of a grader, or its model file.")]


class Split(StrEnum):
    """Parts of a manifest."""

    train = "train"
    val = "val"
    test = "test"


@app.command("methods")
def list_methods() -> None:
    """List the methods with their presets."""
    from rich.console import Console
    from rich.table import Table

    from dismix.graders.registry import GRADERS

    table = Table("name", "what it does", "authors' backbone", box=None, pad_edge=False)
    for name in GRADERS:
        entry = GRADERS[name]
        table.add_row(name, entry.summary, entry.presets["reference"].backbone)
    Console().print(table)


@app.command()
def train(
    manifest: ManifestPath,
    run: Annotated[Path, typer.Option("-o", "--output", help="Run folder to fill.")],
    method: Annotated[str, typer.Option(help="See `dismix grader methods`.")] = "ce",
    preset: Annotated[
        str, typer.Option(help="dismix (Adam, 200 epochs, batch 64) or reference (the authors').")
    ] = "dismix",
    backbone: Annotated[str | None, typer.Option(help="A timm name, or tiny.")] = None,
    weights: Annotated[
        str | None, typer.Option(help="Backbone's: a file, auto, timm (download) or none.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training split.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images a step.")] = None,
    size: Annotated[int | None, typer.Option(help="Pixels a side.")] = None,
    mix: Annotated[str | None, typer.Option(help="A mixer, see `dismix mix list`.")] = None,
    generator: Annotated[
        Path | None, typer.Option(help="Run folder of a generator, for --mix dismix.")
    ] = None,
    mix_settings: Annotated[
        list[str] | None, typer.Option("--mix-set", help="Option of the mixer, name=value.")
    ] = None,
    select: Annotated[
        str | None, typer.Option(help="Checkpoint by: accuracy, smoothed, loss or last.")
    ] = None,
    balanced: Annotated[bool, typer.Option(help="Draw grades equally often.")] = False,
    rank_weights: Annotated[
        str | None, typer.Option(help="A weight for each rank, 1,2,2,4, or balanced.")
    ] = None,
    weight_column: Annotated[
        str | None, typer.Option(help="Column of the manifest with a weight for each image.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting, name=value; repeat.")
    ] = None,
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option(help="Train this many seeds, below OUTPUT.", min=1)] = 1,
    at_once: Annotated[
        int | None, typer.Option(help="Seeds at once; 4 on a GPU if absent.", min=1)
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Go on when a grade has no training image.")
    ] = False,
    resume: Annotated[bool, typer.Option(help="Continue an interrupted run.")] = False,
    cpu: Cpu = False,
    quiet: Quiet = False,
) -> None:
    """Train a grader on the training split; choose its checkpoint on validation."""
    from dismix.errors import DisMixError
    from dismix.graders.report import one_grade_note
    from dismix.graders.seeds import train_seeds
    from dismix.graders.settings import choose_settings
    from dismix.graders.start_run import train_grader
    from dismix.progress import bar

    given = {
        "backbone": backbone, "weights": weights, "epochs": epochs, "batch_size": batch_size,
        "size": size, "select": select, "balanced": balanced or None,
        "rank_weights": rank_weights,
    }  # fmt: skip
    _check_mixing(mix, generator, mix_settings)
    if at_once is not None and seeds == 1:
        raise DisMixError(
            "a single seed is trained", column="--at-once", cure="add --seeds, or leave it out"
        )
    mixing = pairs(mix_settings, "--mix-set")
    chosen = choose_settings(method, preset, merged(settings, given))
    options: dict[str, Any] = {
        "mix": mix, "mix_options": {k: _value(v) for k, v in mixing.items()},
        "generator": generator, "weight_column": weight_column, "allow_missing": allow_missing,
        "resume": resume, "cpu": cpu,
    }  # fmt: skip
    with bar(quiet=quiet or one_of_many()) as progress:
        if seeds > 1:
            several = range(seed, seed + seeds)
            found = train_seeds(
                manifest, run, chosen, several, at_once=at_once, progress=progress, **options
            )
        else:
            found = train_grader(manifest, run, chosen, seed=seed, progress=progress, **options)
    if one_of_many():
        return
    if seeds > 1:
        typer.echo(f"{seeds} seeds: validation {_spread(found['validation'])} -> {run}")
        return
    typer.echo(
        f"epoch {found['epoch']} by {found['select']}: validation {_line(found['validation'])} "
        f"-> {run}"
    )
    note = one_grade_note(found["validation"], run)
    if note:
        typer.echo(note, err=True)


def _check_mixing(mix: str | None, generator: Path | None, options: list[str] | None) -> None:
    """Refuse options that would have no effect: a baseline taken for a mixer is a bad surprise."""
    from dismix.errors import DisMixError

    if options and mix in (None, "none"):
        raise DisMixError("no mixer is chosen", column="--mix-set", cure="add --mix NAME")
    if generator is not None and mix != "dismix":
        raise DisMixError(
            f"the mixer is {mix or 'none'}", column="--generator", cure="add --mix dismix"
        )


def _value(text: str) -> Any:
    """Return a mixer's option as a number or truth value where it reads like one; a,b is a list."""
    if "," in text:
        return [_value(part.strip()) for part in text.split(",") if part.strip()]
    named = {"true": True, "false": False, "none": None}
    if text.lower() in named:
        return named[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _line(metrics: dict[str, Any]) -> str:
    from dismix.graders.metrics import metric_text

    return (
        f"accuracy {100 * metrics['accuracy']:.1f} %, MAE {metrics['mae']:.3f}, "
        f"kappa {metric_text(metrics['qwk'])}"
    )


def _spread(summary: dict[str, Any]) -> str:
    accuracy, error = summary["accuracy"], summary["mae"]
    return (
        f"accuracy {100 * accuracy['mean']:.1f} % (95 %: {100 * accuracy['low']:.1f} to "
        f"{100 * accuracy['high']:.1f}), MAE {error['mean']:.3f}"
    )


@app.command()
def evaluate(
    run: RunPath,
    manifest: Annotated[
        Path | None, typer.Argument(help="Data; what the grader was trained on if absent.")
    ] = None,
    split: Annotated[Split, typer.Option(help="Part to judge on.")] = Split.test,
    json_out: AsJson = False,
    cpu: Cpu = False,
    quiet: Quiet = False,
) -> None:
    """Judge a grader, or all seeds below a folder; the numbers join its model card."""
    import json

    from dismix.graders.report import evaluate_run, metrics_text
    from dismix.progress import bar

    with bar(quiet=quiet) as progress:
        found = evaluate_run(run, manifest, split.value, cpu=cpu, progress=progress)
    if json_out:
        typer.echo(json.dumps(found, indent=2))
    else:
        typer.echo(metrics_text(found))


@app.command()
def predict(
    model: RunPath,
    images: Annotated[
        list[Path],
        typer.Argument(help="Image files or folders of them; or one manifest with known grades."),
    ],
    split: Annotated[
        Split | None, typer.Option(help="Of a manifest: this part only; all if absent.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="CSV or .json file; stdout if absent.")
    ] = None,
    json_out: AsJson = False,
    batch_size: Annotated[int, typer.Option(help="Images at once.", min=1)] = 32,
    cpu: Cpu = False,
    quiet: Quiet = False,
) -> None:
    """Grade new images: grade, probabilities, expected rank, uncertainty.

    Grades and ranks count from 0 for the lowest, whatever the ranks are called: on a scale from
    1 to 5, grade 0 is '1' and p_0 its probability. The column name has the rank's own name.
    Of a manifest, or a folder that holds manifest.csv, the known grades are written beside.
    Files that cannot be read are named on stderr, the rest is graded, and the exit code is 1.
    """
    from dismix import atomic
    from dismix.cli.options import report_skipped
    from dismix.data.manifest import read_manifest
    from dismix.data.overwriting import refuse_ending, refuse_own_source
    from dismix.graders.predict import predict_files, predict_manifest
    from dismix.graders.saving import load_grader
    from dismix.progress import bar

    if output is not None:
        refuse_ending(output, *((".json",) if json_out else (".csv", ".json")))
    manifest = _manifest_among(images, split)
    data = None if manifest is None else read_manifest(manifest)
    if output is not None and data is not None:
        refuse_own_source(output, data.path, "the manifest with the known grades")
    grader = load_grader(model, usable_device("cpu" if cpu else "auto"))
    with bar(quiet=quiet or output is None) as progress:
        if data is None:
            found = predict_files(grader, images, batch_size=batch_size, progress=progress)
        else:
            found = predict_manifest(
                grader, data, split=split, batch_size=batch_size, progress=progress
            )  # fmt: skip
    as_json = json_out or (output is not None and output.suffix.lower() == ".json")
    text = found.to_json() if as_json else found.to_csv()
    if output is None:
        typer.echo(text, nl=False)
    else:
        atomic.write_text(output, text)
        compared = f", {found.comparison()}" if found.compared else ""
        typer.echo(f"{len(found.found)} images graded{compared} -> {output}")
    report_skipped([f"{path}: {reason}" for path, reason in found.skipped])
    if found.skipped:
        raise typer.Exit(1)


def _manifest_among(paths: list[Path], split: Split | None) -> Path | None:
    """Return the manifest that was given instead of images, or None."""
    from dismix.data.delimited import SUFFIXES
    from dismix.errors import DisMixError

    found = [
        p for p in paths if p.suffix.lower() in SUFFIXES or (p / "manifest.csv").is_file()
    ]  # fmt: skip
    if found and len(paths) > 1:
        raise DisMixError(
            "is a manifest among other paths", file=found[0], cure="give a manifest alone"
        )
    if not found and split is not None:
        raise DisMixError(
            "image files have no splits", column="--split", cure="leave it out, or give a manifest"
        )
    return found[0] if found else None


@app.command()
def export(
    model: RunPath,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="File: .onnx, or .pt2 for torch.export.")
    ],
) -> None:
    """Write a grader as ONNX or torch.export file and check it against the model."""
    from dismix.graders.export import export_grader
    from dismix.graders.saving import load_grader

    gap = export_grader(load_grader(model), output)
    typer.echo(f"{output}: output equals the model's within {max(gap, 1e-7):.0e}")
