"""`dismix data`: bring graded images in, check them, look at them, split them."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dismix.cli.options import (
    AsJson,
    ManifestPath,
    OnError,
    OnErrorOption,
    Output,
    OutputManifest,
    Quiet,
    Seed,
    report_skipped,
)

if TYPE_CHECKING:
    from dismix.data.findings import Report

app = typer.Typer(no_args_is_help=True, help="Graded images: import, check, show, split, phantom.")


class Subject(StrEnum):
    """What a phantom shows."""

    knee = "knee"
    fundus = "fundus"


@app.command("sources")
def list_sources() -> None:
    """List the published data sets and folder forms that `import` knows, with their options."""
    from rich.console import Console
    from rich.table import Table

    from dismix.data.sources import SOURCES

    table = Table("name", "what it reads", "options (--set name=value)", box=None, pad_edge=False)
    for name in SOURCES:
        table.add_row(name, SOURCES[name].about, ", ".join(SOURCES[name].options))
    Console().print(table)


@app.command("import")
def import_data(
    path: Annotated[
        Path, typer.Argument(help="A published folder, a class-per-folder tree or a table.")
    ],
    output: OutputManifest,
    source: Annotated[
        str | None, typer.Option(help="See `dismix data sources`; guessed when absent.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="Table: column of image paths.")] = None,
    grade: Annotated[str | None, typer.Option(help="Table: column of grades.")] = None,
    annotator: Annotated[
        list[str] | None, typer.Option(help="Table: column of votes; repeat for each annotator.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Table: column of splits.")] = None,
    group: Annotated[str | None, typer.Option(help="Table: column of patients.")] = None,
    ranks: Annotated[
        str | None, typer.Option(help="Names of the grades, low to high, parted by commas.")
    ] = None,
    skip_ungraded: Annotated[
        bool, typer.Option("--skip-ungraded", help="Table: leave out images that nobody graded.")
    ] = False,
    skip_missing: Annotated[
        bool, typer.Option("--skip-missing", help="Leave out and list rows without an image file.")
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any option of the source, name=value.")
    ] = None,
) -> None:
    """Turn published data or your own table into a manifest."""
    from dismix.data.describe import describe
    from dismix.data.manifest import write_manifest
    from dismix.data.overwriting import refuse_own_source
    from dismix.data.sources import SOURCES, guess_source, read_source

    given = {"image": image, "grade": grade, "split": split, "group": group, "ranks": ranks}
    texts = [f"{name}={value}" for name, value in given.items() if value is not None]
    texts += ["skip_ungraded=true"] if skip_ungraded else []
    chosen = guess_source(path) if source is None else SOURCES[source]
    options = chosen.parse_options([*texts, *(settings or [])]) if chosen is not None else {}
    if annotator:
        # Not as one text, which is parted at commas: a column's name may hold one.
        options.setdefault("annotators", tuple(annotator))
    skipped: list[str] = []
    on_missing = skipped.append if skip_missing else None
    manifest = read_source(path, source, on_missing=on_missing, **options)
    refuse_own_source(output, path, "the table to import")
    write_manifest(manifest, output)
    report_skipped(skipped)
    typer.echo(f"{output}\n{describe(manifest)}")


@app.command()
def check(
    path: Annotated[Path, typer.Argument(help="A manifest, or a folder that `import` knows.")],
    images: Annotated[bool, typer.Option(help="Open the image files.")] = True,
    near: Annotated[bool, typer.Option(help="Look for near-identical images.")] = True,
    mirrored: Annotated[bool, typer.Option("--mirrored", help="And for mirrored ones.")] = False,
    readable: Annotated[
        Path | None,
        typer.Option(
            "--write-readable", help="Write a manifest without rows whose image cannot be read."
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find missing files, bad grades, leaks between splits and twin images.

    With --write-readable, images that were left out no longer count for the exit code.
    """
    from dismix.data.check import check_path
    from dismix.data.delimited import SUFFIXES
    from dismix.data.overwriting import refuse_ending
    from dismix.errors import DisMixError
    from dismix.progress import bar

    if readable is not None and not images:
        raise DisMixError(
            "has to open the images", column="--write-readable", cure="leave --no-images out"
        )
    if readable is not None:
        # Before the images are read, which takes a while.
        refuse_ending(readable, *SUFFIXES)
    with bar(quiet=quiet or as_json) as progress:
        report = check_path(path, images=images, near=near, mirrored=mirrored, progress=progress)
    typer.echo(json.dumps(report.to_dict(), indent=2) if as_json else str(report))
    ok = report.ok if readable is None else _keep_readable(path, report, readable, err=as_json)
    if not ok:
        raise typer.Exit(1)


def _keep_readable(path: Path, report: "Report", output: Path, *, err: bool) -> bool:
    """Write what can be read, say what was left out, and return whether no other error is left."""
    from dismix.data.readable import UNREADABLE, left_out_lines, write_readable

    kept = write_readable(path, report, output)
    for line in left_out_lines(report):
        typer.echo(line, err=err)
    rows = "1 row" if len(kept) == 1 else f"{len(kept)} rows"
    typer.echo(f"{rows} with a readable image -> {output}", err=err)
    return len(report.of("error")) == len(report.of(*UNREADABLE))


@app.command()
def show(
    manifest: ManifestPath,
    output: Output = Path("contact_sheet.png"),
    columns: Annotated[int, typer.Option(help="Images a grade.", min=1)] = 10,
    size: Annotated[int, typer.Option(help="Pixels a side.", min=16, max=1024)] = 128,
    seed: Seed = 0,
    on_error: OnErrorOption = OnError.stop,
    quiet: Quiet = False,
) -> None:
    """Write a contact sheet: a row of images for each grade."""
    from dismix.data.decode import advised
    from dismix.data.manifest import read_manifest
    from dismix.errors import DisMixError
    from dismix.progress import bar
    from dismix.show.contact_sheet import contact_sheet, save_picture

    data = read_manifest(manifest)
    skipped: list[str] = []

    def on_bad(error: DisMixError) -> None:
        if on_error is OnError.stop:
            raise advised(error, "or leave such files out with --on-error skip") from error
        skipped.append(str(advised(error)))

    with bar(quiet=quiet) as progress:
        sheet = contact_sheet(
            data, columns=columns, size=size, seed=seed, on_bad=on_bad, progress=progress
        )
    report_skipped(skipped)
    save_picture(sheet, output)
    typer.echo(f"{len(data)} images, {data.num_ranks} grades -> {output}")


@app.command()
def prepare(
    manifest: ManifestPath,
    size: Annotated[int, typer.Option(help="Pixels a side.", min=8, max=4096)] = 256,
    on_error: OnErrorOption = OnError.stop,
    quiet: Quiet = False,
) -> None:
    """Decode and resize all images once, into the stores that training reads from."""
    from dismix.data.manifest import read_manifest
    from dismix.data.preparing import prepare_images
    from dismix.progress import bar

    data = read_manifest(manifest)
    with bar(quiet=quiet) as progress:
        made = prepare_images(data, size, on_error=on_error.value, progress=progress)
    stores = [*made.values()]
    report_skipped([f"{item.path}: {item.reason}" for store in stores for item in store.skipped])
    typer.echo(
        f"{sum(len(store.valid) for store in stores)} images of {size} x {size} x "
        f"{stores[0].shape[1]}, {sum(store.nbytes for store in stores) / 2**20:.0f} MiB -> "
        f"{stores[0].folder.parent}"
    )


@app.command()
def phantom(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to fill.")],
    subject: Annotated[Subject, typer.Option(help="What the pictures show.")] = Subject.knee,
    train: Annotated[int, typer.Option(help="Training images.", min=1)] = 1000,
    val: Annotated[int, typer.Option(help="Validation images.", min=0)] = 200,
    test: Annotated[int, typer.Option(help="Test images.", min=0)] = 400,
    ranks: Annotated[int, typer.Option(help="Number of ranks.", min=2)] = 5,
    size: Annotated[int, typer.Option(help="Pixels a side.", min=32)] = 64,
    annotators: Annotated[int, typer.Option(help="Number of annotators.", min=0)] = 5,
    jitter: Annotated[
        float, typer.Option(help="How far severities lie from their rank at most, below 0.5.")
    ] = 0.3,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Draw a graded data set whose true factors are known."""
    from dismix.data.describe import describe
    from dismix.data.phantom import PhantomSpec, build_phantom
    from dismix.progress import bar

    spec = PhantomSpec(
        subject=subject.value, num_ranks=ranks, train=train, val=val, test=test, size=size,
        annotators=annotators, jitter=jitter, seed=seed,
    )  # fmt: skip
    with bar(quiet=quiet) as progress:
        manifest = build_phantom(spec, output, progress=progress)
    typer.echo(describe(manifest))


@app.command()
def split(
    manifest: ManifestPath,
    output: OutputManifest,
    val: Annotated[
        float | None, typer.Option(help="Share of training images that become validation.")
    ] = None,
    test: Annotated[
        float | None, typer.Option(help="Share of training images that become test; taken first.")
    ] = None,
    scarce: Annotated[
        float | None, typer.Option(help="Keep this share of each grade, at least 10 images.")
    ] = None,
    folds: Annotated[
        int | None, typer.Option(help="Write this many k-fold manifests NAME-1.csv, NAME-2.csv ...")
    ] = None,
    merge_val: Annotated[
        bool, typer.Option("--merge-val", help="First turn validation rows into training rows.")
    ] = False,
    seed: Seed = 0,
    _quiet: Quiet = False,  # As everywhere, though there is no bar to leave out.
) -> None:
    """Split by majority grade without splitting patients."""
    import warnings

    from dismix.data import splits
    from dismix.data.describe import describe
    from dismix.data.manifest import read_manifest, write_manifest
    from dismix.data.overwriting import refuse_own_source
    from dismix.data.patient_columns import group_cure, patient_column
    from dismix.errors import DisMixError

    if val is None and test is None and scarce is None and folds is None and not merge_val:
        raise DisMixError(
            "nothing to do",
            cure="give --val 0.15, --test 0.2, --scarce 0.1, --folds 5 or --merge-val",
        )
    if val is not None and folds is not None:
        raise DisMixError(
            "--folds deals training and validation rows together", cure="leave --val out"
        )
    data = read_manifest(manifest)
    source = data.path
    parting = val is not None or test is not None or folds is not None
    if parting and (patients := patient_column(data.table)):
        # Here, not where each part is made: it is said once.
        warnings.warn(
            f"column '{patients}' looks like a patient, but is no group: images of one may end up"
            f" in several splits; {group_cure(patients)}",
            stacklevel=2,
        )
    if merge_val:
        data = splits.merge_splits(data, {"val": "train"})
    if test is not None:
        data = splits.split_test(data, test, seed=seed)
    if scarce is not None:
        data = splits.scarcity_subset(data, scarce, seed=seed)
    if val is not None:
        data = splits.split_validation(data, val, seed=seed)
    parts = {output: data}
    if folds is not None:
        dealt = enumerate(splits.k_fold(data, folds, seed=seed), start=1)
        parts = {output.with_stem(f"{output.stem}-{number}"): part for number, part in dealt}
    if scarce is not None or folds is not None or merge_val:
        # These lose rows, or what was validation; --test and --val alone can be undone.
        for path in parts:
            refuse_own_source(path, source, "the manifest to split")
    for path, part in parts.items():
        write_manifest(part, path)
        typer.echo(f"{path}\n{describe(part)}")
