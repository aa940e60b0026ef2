"""`dismix generator report`: one page that shows what a generator learned and what it did not.

Everything is measured on held-out images (the test split where there is one), encoded
without their labels but for the sources of mixes. Nothing here chooses anything.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dismix.data.manifest import Manifest, read_manifest
from dismix.generator.evaluation import (
    evaluation_splits,
    measure_generator,
    read_evaluation,
    read_run,
)
from dismix.generator.evaluation_text import (
    control_note,
    control_rows,
    fidelity_rows,
    look_rows,
    mixes_text,
    paper_rows,
    probe_rows,
)
from dismix.generator.images import SplitImages
from dismix.generator.model import Generator
from dismix.generator.perceptual import WEIGHTS
from dismix.generator.probes import encode_split, some_rows
from dismix.generator.run_file import manifest_of, require_fitting
from dismix.generator.run_log import read_metrics
from dismix.generator.strips import draw_strip
from dismix.generator.transitions import draw_transitions
from dismix.progress import Progress, steps_of
from dismix.show.page import Page
from dismix.show.plots import embed, lines, rank_scatter

#: Beginnings of the names of what the last epoch is told by.
_LAST = ("usage", "perplexity", "mixing", "reader_order")

# Of the maps; t-SNE needs neighbours.
FEWEST_POINTS, MOST_POINTS = 3, 800


def write_report(
    run: str | Path,
    output: str | Path | None = None,
    *,
    manifest: str | Path | None = None,
    evaluation: Mapping[str, Any] | None = None,
    device: str = "cpu",
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write the report of a run and return its path.

    Numbers come from ``evaluation.json`` when the run has been evaluated; else those that need
    no judge are measured now.

    Args:
        run: Run folder.
        output: HTML file; ``report.html`` in the run folder by default.
        manifest: Data to judge on; by default what the run was trained on.
        evaluation: From `evaluate_generator` on that manifest; the run's own by default.
        device: Where to compute.
        cache: Folder of the image stores.
        progress: Called after each section.
    """
    run = Path(run)
    described = read_run(run)
    model = Generator.load(run, device)
    data = read_manifest(manifest or manifest_of(described))
    require_fitting(run, data)
    found = dict(evaluation) if evaluation is not None else None
    if found is None and manifest is None:
        found = read_evaluation(run)
    if found is not None and found["checkpoint"] != "best":
        found = None
    splits = evaluation_splits(
        data, model, torch.device(device), split=None if found is None else found["split"],
        cache=cache, progress=progress,
    )  # fmt: skip
    tick = steps_of(progress, "report", 6)
    if found is None:
        found = measure_generator(model, splits, data, None)
    tick()
    held_out = splits[found["split"]]
    page = Page(f"Generator {run.name}", _lead(described, found))
    _pictures(page, model, held_out)
    tick()
    _fidelity(page, found)
    _probes(page, found)
    _control(page, found)
    tick()
    _maps(page, model, held_out, data)
    tick()
    _curves(page, run)
    tick()
    page.heading("How it was made")
    page.pre(json.dumps(described, indent=2))
    page.note("For research on augmentation, not for diagnosis.")
    path = Path(output) if output is not None else run / "report.html"
    page.write(path)
    tick()
    return path


def _lead(described: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    made = described.get("provenance", {})
    return (
        f"{described['config']['arch']}, seed {described['seed']}, commit {made.get('commit')}, "
        f"{made.get('hardware')}. Measured on the {found['images']} images of the "
        f"{found['split']} split, encoded without labels."
    )


def _pictures(page: Page, model: Generator, held_out: SplitImages) -> None:
    page.heading("What it does to a picture")
    page.picture(
        draw_strip(model, held_out, min(6, len(held_out))),
        "Held-out images, a row each: the image, the image rebuilt, made at every rank, and made "
        "with more and more of the appearance of another row's image.",
    )
    page.heading("Order transition")
    page.picture(
        draw_transitions(model, held_out),
        "Mixing ordinal or non-ordinal codes of a same-rank and of a more severe image into the "
        "first picture, in steps. Only the ordinal codes of the more severe one may change its "
        "grade.",
    )


def _fidelity(page: Page, found: Mapping[str, Any]) -> None:
    page.heading("Reconstruction")
    page.table(["measure", "mean", "worst tenth"], fidelity_rows(found))
    if "lpips" not in found["reconstruction"]:
        page.text(f"LPIPS was left out: {WEIGHTS} was not among the weights at hand.")
    rows = [
        [name, book["codes"], f"{100 * book['usage']:.1f}", f"{book['perplexity']:.0f}"]
        for name, book in found["codebooks"].items()
    ]
    page.table(["codebook", "codes", "in use here (%)", "perplexity"], rows)


def _probes(page: Page, found: Mapping[str, Any]) -> None:
    page.heading("Can the rank be read from a code?")
    rows = [*probe_rows(found), *paper_rows()]
    page.table(["probe", "ordinal z_o", "non-ordinal z_n"], rows)
    chance = found["chance"]
    page.text(
        f"Chance is {100 * chance['balanced']:.0f} % balanced; always answering the most "
        f"frequent rank is {100 * chance['majority']:.1f} % accurate. Probes were fitted on the "
        "codes of training images, also encoded without labels. The paper's figures are of "
        "another data set unless this one is KOA."
    )


def _control(page: Page, found: Mapping[str, Any]) -> None:
    page.heading("Does the picture show the asked rank?")
    rows = control_rows(found)
    if rows:
        page.table(
            ["who reads", "mean reading at ranks 0, 1, ..", "slope", "images monotone"], rows
        )
        page.table(
            [
                "who reads",
                "mean change of rank, either way, with 0, 25, 50, 75, 100 % of another's z_n",
            ],
            look_rows(found),
        )
    judge = found.get("judge")
    if judge is None:
        page.text(
            "No judge has read these pictures: `dismix generator evaluate RUN` trains one that "
            "takes no part in training the generator."
        )
        return
    page.text(
        f"The judge ({judge['kind']}, {judge['fingerprint']}) took no part in training the "
        f"generator and is {100 * judge['accuracy']:.1f} % accurate on real images. Mixes whose "
        f"rank it reads as asked: {mixes_text(found)}."
    )
    note = control_note(found)
    if note:
        page.text(f"Note: {note}.")


def _maps(page: Page, model: Generator, held_out: SplitImages, data: Manifest) -> None:
    rows = some_rows(len(held_out), MOST_POINTS)
    if len(rows) < FEWEST_POINTS:
        page.text(f"{len(rows)} held-out images are too few for a map of the two codes.")
        return
    codes = encode_split(model, held_out, rows)
    ranks = held_out.target.hard.cpu().numpy()[rows.numpy()]
    panels = {
        "ordinal z_o": embed(codes.ordinal.numpy().astype(np.float64)),
        "non-ordinal z_n": embed(codes.nonordinal.numpy().astype(np.float64)),
    }
    page.heading("The two codes")
    page.picture(
        rank_scatter(panels, ranks, data.meta.ranks),
        "t-SNE of held-out images, coloured by rank. The left one should be ordered, the right "
        "one mixed.",
    )


def _curves(page: Page, run: Path) -> None:
    metrics = read_metrics(run)
    page.heading("Training")
    if not metrics:
        page.text("No metrics.jsonl in the run folder.")
        return

    def curve(*names: str) -> dict[str, tuple[list[float], list[float]]]:
        found = {}
        for name in names:
            points = [(m["epoch"], m[name]) for m in metrics if name in m]
            if points:
                xs, ys = zip(*points, strict=True)
                found[name] = (list(xs), list(ys))
        return found

    # Of all epochs: those that polish the decoder leave most terms out.
    known = dict.fromkeys(name for m in metrics for name in m)
    weights = [n for n in known if n.startswith("w_") and not n.startswith("w_critic")]
    terms = [n.removeprefix("w_") for n in weights]
    page.picture(lines(curve(*terms), title="terms of the loss", log=True), "Loss terms.")
    moving = [n for n in weights if len({m[n] for m in metrics if n in m}) > 1]
    if moving:
        page.picture(
            lines(curve(*moving), title="learned weights"), "Learned weights of the terms."
        )
    accuracy = curve("mixing_accuracy_train", "mixing_accuracy_val")
    picture = lines(accuracy, title="mixing accuracy")
    page.picture(
        picture,
        "Mixing accuracy, as read by the guide or discriminator that took part in training.",
    )
    books = curve("perplexity_ordinal", "perplexity_nonordinal")
    page.picture(lines(books, title="codebook perplexity", log=True), "Codes in use.")
    last = {n: v for n, v in metrics[-1].items() if n.startswith(_LAST)}
    page.table(["last epoch", "value"], [[n, f"{v:.3f}"] for n, v in last.items()])
