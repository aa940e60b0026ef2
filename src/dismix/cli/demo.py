"""`dismix demo`: the main job on built-in data, and a page to look at."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dismix.cli.options import Quiet, Seed

if TYPE_CHECKING:
    from dismix.data.manifest import Manifest
    from dismix.show.page import Page

SUBJECTS: dict[Literal["knee", "fundus"], str] = {"knee": "knees", "fundus": "fundi"}


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to fill.")] = Path("demo"),
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Draw the phantom sets, check them and write a page with pictures."""
    from dismix.data.phantom import PhantomSpec, build_phantom
    from dismix.progress import bar
    from dismix.show.page import Page

    start = time.perf_counter()
    page = Page(
        "DisMix demo",
        "Graded pictures with known factors, five annotators who disagree, and what DisMix sees.",
    )
    with bar(quiet=quiet) as progress:
        for subject, plural in SUBJECTS.items():
            spec = PhantomSpec(subject=subject, train=400, val=80, test=160, size=128, seed=seed)
            manifest = build_phantom(spec, output / subject, progress=progress)
            _section(page, plural, manifest, output / subject)
    page.write(output / "index.html")
    typer.echo(f"{output / 'index.html'} written in {time.perf_counter() - start:.0f} s")


def _section(page: "Page", plural: str, manifest: "Manifest", folder: Path) -> None:
    from dismix.data.annotators.agreement import measure_agreement
    from dismix.data.check import check_path
    from dismix.data.describe import grade_counts
    from dismix.show.contact_sheet import contact_sheet

    page.heading(f"Phantom {plural}")
    sheet = contact_sheet(manifest.split("train"), columns=8, size=128)
    page.picture(sheet, "Training images by majority grade: severity grows downwards.")
    counts = grade_counts(manifest)
    page.table(
        ["split", *manifest.meta.ranks], [[split, *count] for split, count in counts.items()]
    )
    voted = manifest.rows(manifest.has_votes)
    agreement = measure_agreement(voted.votes, voted.num_ranks, annotators=voted.annotators)
    page.text("How far the annotators agree:")
    page.pre(str(agreement))
    page.text("What the check says:")
    page.pre(f"$ dismix data check {folder}\n{check_path(folder)}")
