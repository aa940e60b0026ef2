"""`dismix data annotators`: simulate them, measure their agreement, find a consensus."""

import json
from enum import StrEnum
from typing import Annotated

import typer

from dismix.cli.options import AsJson, ManifestPath, Output, OutputManifest, Seed

app = typer.Typer(no_args_is_help=True, help="People who vote: simulation, agreement, consensus.")


class Mode(StrEnum):
    """How simulated annotators err."""

    per_vote = "per_vote"
    per_image = "per_image"


@app.command()
def simulate(
    manifest: ManifestPath,
    output: OutputManifest,
    preset: Annotated[
        str, typer.Option(help="Grading variability as in the paper: 30, 50, 70, or clean.")
    ] = "30",
    mode: Annotated[
        Mode, typer.Option(help="Annotators flip on their own, or split on ambiguous images.")
    ] = Mode.per_vote,
    annotators: Annotated[int, typer.Option(help="Number of annotators.", min=1)] = 5,
    lower: Annotated[
        str | None,
        typer.Option(help="Lower of the two grades that flip, as you call it; else the second."),
    ] = None,
    upper: Annotated[str | None, typer.Option(help="Upper of the two; else the third.")] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Give training and validation images the votes of simulated annotators."""
    from dismix.data.annotators.simulate import simulate_annotators
    from dismix.data.manifest import read_manifest, write_manifest
    from dismix.data.rank_names import rank_position

    data = read_manifest(manifest)
    names = data.meta.ranks
    result, report = simulate_annotators(
        data, preset, mode=mode.value, annotators=annotators, seed=seed,
        lower=1 if lower is None else rank_position(lower, names),
        upper=2 if upper is None else rank_position(upper, names),
    )  # fmt: skip
    write_manifest(result, output)
    typer.echo(json.dumps(report.to_dict(), indent=2) if as_json else str(report))


@app.command()
def agreement(manifest: ManifestPath, as_json: AsJson = False) -> None:
    """Print how far the annotators agree: percent, kappas, Krippendorff's alpha, bias."""
    from dismix.data.annotators.agreement import measure_agreement
    from dismix.data.manifest import read_manifest
    from dismix.errors import DisMixError

    data = read_manifest(manifest)
    if not data.annotators:
        raise DisMixError(
            "has no annotators",
            file=manifest,
            cure="add a column annotator_<name> for each, or see `dismix data annotators simulate`",
        )
    result = measure_agreement(data.votes, data.num_ranks, annotators=data.annotators)
    typer.echo(json.dumps(result.to_dict(), indent=2) if as_json else str(result))


@app.command()
def consensus(
    manifest: ManifestPath,
    output: Output,
    method: Annotated[str, typer.Option(help="majority or dawid_skene.")] = "majority",
    ordinal: Annotated[
        bool, typer.Option(help="Dawid-Skene only: expect errors between near ranks.")
    ] = False,
) -> None:
    """Write the consensus of the annotators: a rank and a probability for each image."""
    from dismix import atomic
    from dismix.data.annotators.consensus import CONSENSUS
    from dismix.data.annotators.votes import count_ties
    from dismix.data.manifest import read_manifest
    from dismix.data.overwriting import refuse_ending, refuse_own_source
    from dismix.errors import DisMixError

    data = read_manifest(manifest)
    refuse_ending(output, ".csv")
    refuse_own_source(output, data.path, "the manifest with the votes")
    voted = data.rows(data.has_votes)
    if len(voted) == 0:
        raise DisMixError("has no votes", file=manifest, cure="add annotator_<name> columns")
    if ordinal and method != "dawid_skene":
        raise DisMixError(f"--ordinal says nothing to '{method}'", cure="use dawid_skene")
    options = {"ordinal": True} if ordinal else {}
    result = CONSENSUS[method](voted.votes, voted.num_ranks, **options)
    table = voted.table[["image", "split"]].assign(consensus=result.rank)
    for rank in range(voted.num_ranks):
        table[f"p{rank}"] = result.probs[:, rank].round(6)
    with atomic.replacing(output) as temporary:
        table.to_csv(temporary, index=False)
    settled = "" if result.converged else ", EM did not settle"
    typer.echo(f"{len(table)} images, {method}{settled} -> {output}")
    ties, even = count_ties(result.probs)
    if ties:
        noun = "tie" if ties == 1 else "ties"
        typer.echo(
            f"{ties} {noun}: {ties - even} went to the rank nearest the mean, {even}, where both"
            " were as near, to the lower rank"
        )
