"""`dismix mix`: encode a split once, look at mixes, write them, measure them."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dismix.cli.options import Cpu, Device, Quiet, Seed, check_output

app = typer.Typer(no_args_is_help=True, help="Mixing: encode, look, write, measure.")

Run = Annotated[Path, typer.Argument(help="Run folder of a trained generator.")]
Data = Annotated[
    Path | None,
    typer.Option("--manifest", help="Data to mix; what the run was trained on if absent."),
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        help="ordinal_mix, nonordinal_mix, order_swap, generate_and_mix, or the groups"
        " combined, preserving, interpolating; repeat.",
    ),
]


class Ranks(StrEnum):
    """What counts as an image's rank when pairs are made."""

    majority = "majority"
    consensus = "consensus"


class Pairing(StrEnum):
    """Which ranks partners may have."""

    adjacent = "adjacent"
    near = "near"


class Labels(StrEnum):
    """What of the sources enters the label."""

    majority = "majority"
    votes = "votes"


Detail = Annotated[
    float,
    typer.Option(help="Share of what the codes leave out to give back.", min=0.0, max=1.0),
]


class DetailWith(StrEnum):
    """What detail goes with."""

    look = "look"
    rank = "rank"


class Severity(StrEnum):
    """Whose severity the sources of mixes show."""

    label = "label"
    image = "image"


class Figure(StrEnum):
    """What to draw."""

    policies = "policies"
    # Not `strip`, which text has already.
    lam_strip = "strip"
    transition = "transition"
    mixers = "mixers"


@app.command()
def encode(
    run: Run,
    manifest: Data = None,
    device: Device = "auto",
    cpu: Cpu = False,
    batch_size: Annotated[int, typer.Option(help="Images at once.", min=1)] = 64,
    details: Annotated[
        bool, typer.Option("--details", help="Keep what the codes leave out of the images too.")
    ] = False,
    severity: Annotated[
        Severity, typer.Option(help="Severity of the codes whose details are kept.")
    ] = Severity.label,
    quiet: Quiet = False,
) -> None:
    """Encode the training split once, so that partners come from all of it."""
    from dismix.data.manifest import read_manifest
    from dismix.errors import DisMixError
    from dismix.mixing.encoding import encode_split, run_manifest
    from dismix.mixing.partner_index import PartnerIndex, skew_note
    from dismix.progress import bar

    if severity is not Severity.label and not details:
        raise DisMixError(
            "says nothing without --details", column="--severity",
            cure="add --details, or leave it out: codes of either severity are always there",
        )  # fmt: skip
    with bar(quiet=quiet) as progress:
        store = encode_split(
            run,
            manifest,
            device="cpu" if cpu else device,
            batch_size=batch_size,
            details=details,
            severity=severity.value,
            progress=progress,
        )
    typer.echo(
        f"{len(store)} images, {store.record_bytes} bytes each,"
        f" {store.nbytes / 2**20:.1f} MiB -> {store.folder}"
    )
    data = read_manifest(manifest or run_manifest(run))
    note = skew_note(PartnerIndex(store.target.hard, data.num_ranks), data.meta.ranks)
    if note:
        typer.echo(f"note: {note}")


@app.command()
def write(
    run: Run,
    count: Annotated[int, typer.Option("-n", "--count", help="Number of mixes.", min=1)],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to fill.")],
    policy: Policies = None,
    alpha: Annotated[float, typer.Option(help="lam ~ Beta(alpha, alpha).")] = 1.0,
    labels: Annotated[Labels, typer.Option(help="Mix whole ranks or vote shares.")] = (
        Labels.majority
    ),
    ranks: Annotated[Ranks, typer.Option(help="Pair by majority or consensus.")] = Ranks.majority,
    balanced: Annotated[bool, typer.Option(help="Make more of rare grades.")] = False,
    pairing: Annotated[
        Pairing,
        typer.Option(help="Partners have a neighbouring rank, or the anchor's own as well."),
    ] = Pairing.adjacent,
    detail: Detail = 0.0,
    alike: Annotated[
        int, typer.Option(help="Partners to draw, for the one that looks most alike.", min=1)
    ] = 1,
    reach: Annotated[
        float,
        typer.Option(
            help="Largest share of the partner in what is interpolated; below 1 all else is the"
            " anchor's (order_swap stays as it is)."
        ),
    ] = 1.0,
    detail_with: Annotated[
        DetailWith,
        typer.Option(help="Detail goes with the look of its image, or with its part in the label."),
    ] = DetailWith.look,
    severity: Annotated[
        Severity,
        typer.Option(help="Sources show what their labels say, or what is read in the images."),
    ] = Severity.label,
    originals: Annotated[bool, typer.Option(help="List the original images too.")] = False,
    manifest: Data = None,
    seed: Seed = 0,
    device: Device = "auto",
    cpu: Cpu = False,
    quiet: Quiet = False,
) -> None:
    """Write mixes as files: images, soft labels, provenance. Goes on after an interruption."""
    from dismix.errors import DisMixError
    from dismix.mixing.maker import MixSettings
    from dismix.mixing.writing import write_mixes
    from dismix.progress import bar

    if detail_with is not DetailWith.look and detail == 0:
        raise DisMixError(
            "no detail is given back", column="--detail-with", cure="add --detail, or leave it out"
        )
    chosen = tuple(policy) if policy else "combined"
    settings = MixSettings(
        policies=chosen, alpha=alpha, labels=labels.value, ranks=ranks.value, balanced=balanced,
        pairing=pairing.value, detail=detail, alike=alike, reach=reach,
        detail_with=detail_with.value, severity=severity.value,
    )  # fmt: skip
    with bar(quiet=quiet) as progress:
        lines = write_mixes(
            run, output, count, settings=settings, manifest=manifest, originals=originals,
            seed=seed, device="cpu" if cpu else device, progress=progress,
        )  # fmt: skip
    for line in lines:
        typer.echo(line)
    typer.echo(f"{count} mixes -> {output}")


@app.command()
def show(
    run: Run,
    output: Annotated[Path, typer.Option("-o", "--output", help="Picture file, .png or .jpg.")],
    figure: Annotated[Figure, typer.Option(help="What to draw.")] = Figure.policies,
    rank: Annotated[
        str | None,
        typer.Option(
            help="Rank of the anchor: its name or number. Numbers are those of the names where all"
            " begin with one (a scale from 1 to 5), else they count from 0. The second if absent,"
            " the first of two."
        ),
    ] = None,
    manifest: Data = None,
    seed: Seed = 0,
    device: Device = "auto",
    cpu: Cpu = False,
    quiet: Quiet = False,
) -> None:
    """Draw mixes: a pair under every policy, strips along lam, mixers side by side."""
    from dismix.mixing.showing import draw_figure
    from dismix.progress import bar
    from dismix.show.contact_sheet import save_picture

    with bar(quiet=quiet) as progress:
        picture = draw_figure(
            run, figure.value, rank=rank, manifest=manifest, seed=seed,
            device="cpu" if cpu else device, progress=progress,
        )  # fmt: skip
    save_picture(picture, output)
    typer.echo(str(output))


@app.command()
def quality(
    run: Run,
    output: Annotated[Path, typer.Option("-o", "--output", help="HTML file to write.")],
    judge: Annotated[
        Path | None,
        typer.Option(help="A judge's file: read when it is there, else trained and kept."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option("--judge-epochs", help="Passes of the judge's training.", min=1)
    ] = None,
    pairs: Annotated[int, typer.Option(help="Pairs to mix.", min=2)] = 200,
    detail: Detail = 0.0,
    manifest: Data = None,
    seed: Seed = 0,
    device: Device = "auto",
    cpu: Cpu = False,
    quiet: Quiet = False,
) -> None:
    """Measure mixes with a grader that took no part in training, beside Mixup and CutMix."""
    check_output(output, ".html")
    from dismix.mixing.quality_page import write_quality
    from dismix.progress import bar

    with bar(quiet=quiet) as progress:
        lines = write_quality(
            run, output, judge=judge, epochs=epochs, pairs=pairs, detail=detail,
            manifest=manifest, seed=seed, device="cpu" if cpu else device, progress=progress,
        )  # fmt: skip
    for line in lines:
        typer.echo(line)
    typer.echo(str(output))


@app.command(name="list")
def list_mixers() -> None:
    """List the mixers with their papers, costs and needs."""
    from dismix.mixing.registry import MIXERS

    width = max(len(name) for name in MIXERS)
    for name in MIXERS:
        entry = MIXERS[name]
        needs = "" if entry.needs == "nothing" else f"; needs {entry.needs}"
        typer.echo(f"{name:<{width}}  {entry.summary} ({entry.paper}); {entry.cost}{needs}")
