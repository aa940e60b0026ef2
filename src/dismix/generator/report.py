"""`dismix generator report`: one page that shows what a generator learned and what it did not.

Everything is measured on held-out images (the test split where there is one), encoded
without their labels. Nothing here chooses anything.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dismix.data.manifest import Manifest, read_manifest
from dismix.errors import DisMixError
from dismix.generator.fidelity import psnr, ssim
from dismix.generator.images import SplitImages, load_split
from dismix.generator.model import Generator
from dismix.generator.perceptual import LPIPS, WEIGHTS
from dismix.generator.probes import encode_split, probe_generator
from dismix.generator.run_log import read_metrics
from dismix.generator.strips import draw_strip
from dismix.generator.transitions import draw_transitions
from dismix.generator.weights import find_weights
from dismix.progress import Progress
from dismix.show.page import Page
from dismix.show.plots import embed, lines, rank_scatter

#: The paper's probe table (KOA): accuracy in per cent on z_o and z_n.
PAPER_PROBES = (
    ("paper, KOA: full", "65.04", "19.65"),
    ("paper, KOA: without gradient reversal", "62.13", "22.95"),
    ("paper, KOA: without similarity term", "59.22", "24.35"),
    ("paper, KOA: one codebook", "33.01", "33.01"),
)
MOST_POINTS = 800


def write_report(
    run: str | Path,
    output: str | Path | None = None,
    *,
    manifest: str | Path | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Path:
    """Write the report of a run and return its path.

    Args:
        run: Run folder.
        output: HTML file; ``report.html`` in the run folder by default.
        manifest: Data to judge on; by default what the run was trained on.
        device: Where to compute.
        progress: Called after each section.
    """
    run = Path(run)
    described = _read_run(run)
    model = Generator.load(run, device)
    data = read_manifest(manifest or described["manifest"])
    if data.num_ranks != model.config.num_ranks:
        raise DisMixError(
            f"has {data.num_ranks} ranks, the generator {model.config.num_ranks}",
            file=data.path,
            cure="give the manifest the run was trained on",
        )
    held_out = "test" if (data.table["split"] == "test").any() else "val"
    splits = {
        name: load_split(data, name, model.image_size, device=torch.device(device))
        for name in ("train", held_out)
    }
    page = Page(f"Generator {run.name}", _lead(described, held_out))
    sections = (_pictures, _fidelity, _probes, _maps, _curves)
    for done, section in enumerate(sections, start=1):
        section(page, model, splits, data, run)
        if progress is not None:
            progress("report", done, len(sections))
    page.heading("How it was made")
    page.pre(json.dumps(described, indent=2))
    page.note("For research on augmentation, not for diagnosis.")
    path = Path(output) if output is not None else run / "report.html"
    page.write(path)
    return path


def _read_run(run: Path) -> dict[str, Any]:
    path = run / "run.json"
    try:
        described: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DisMixError(
            f"unreadable ({error})", file=path, cure="give the folder of a trained generator"
        ) from error
    return described


def _lead(described: Mapping[str, Any], held_out: str) -> str:
    made = described.get("provenance", {})
    return (
        f"{described['config']['arch']}, seed {described['seed']}, commit {made.get('commit')}, "
        f"{made.get('hardware')}. Measured on the {held_out} split, encoded without labels."
    )


def _held_out(splits: Mapping[str, SplitImages]) -> SplitImages:
    return splits["test"] if "test" in splits else splits["val"]


def _pictures(
    page: Page, model: Generator, splits: Mapping[str, SplitImages], data: Manifest, run: Path
) -> None:
    held_out, top = _held_out(splits), model.config.num_ranks - 1
    page.heading("What it does to a picture")
    page.picture(
        draw_strip(model, held_out, 6),
        f"Original, reconstruction, decoded at ranks 0 to {top}, and with the appearance of "
        "another image in three steps.",
    )
    page.heading("Order transition")
    page.picture(
        draw_transitions(model, held_out),
        "Mixing ordinal or non-ordinal codes of a same-rank and of a more severe image into the "
        "first picture, in steps. Only the ordinal codes of the more severe one may change its "
        "grade.",
    )


@torch.no_grad()
def _fidelity(
    page: Page, model: Generator, splits: Mapping[str, SplitImages], data: Manifest, run: Path
) -> None:
    held_out = _held_out(splits)
    device = next(model.parameters()).device
    perceptual = LPIPS.pretrained().to(device) if find_weights(WEIGHTS) else None
    found: dict[str, list[torch.Tensor]] = {"PSNR (dB)": [], "SSIM": [], "LPIPS": []}
    for rows in torch.split(torch.arange(len(held_out)), 32):
        images = held_out.images(rows, device)
        made = model.decode(model.encode(images)).float().clamp(-1, 1)
        found["PSNR (dB)"].append(psnr(made, images))
        found["SSIM"].append(ssim(made, images))
        if perceptual is not None:
            found["LPIPS"].append(perceptual(made, images))
    page.heading("Reconstruction")
    page.table(
        ["measure", "mean", "worst tenth"],
        [
            [
                name,
                f"{values.mean():.3f}",
                f"{values.quantile(0.9 if name == 'LPIPS' else 0.1):.3f}",
            ]
            for name, parts in found.items()
            if parts
            for values in [torch.cat(parts).cpu()]
        ],
    )
    if perceptual is None:
        page.text(f"LPIPS was left out: {WEIGHTS} is not among the weights at hand.")


def _probes(
    page: Page, model: Generator, splits: Mapping[str, SplitImages], data: Manifest, run: Path
) -> None:
    results = probe_generator(model, splits["train"], _held_out(splits))
    page.heading("Can the rank be read from a code?")
    rows: list[list[str]] = []
    for kind in ("linear", "conv"):
        o, n = results[f"ordinal_{kind}"], results[f"nonordinal_{kind}"]
        rows.append(
            [
                f"ours, {kind} probe: accuracy (%)",
                f"{100 * o.accuracy:.2f}",
                f"{100 * n.accuracy:.2f}",
            ]
        )
        rows.append(
            [
                f"ours, {kind} probe: balanced (%)",
                f"{100 * o.balanced:.2f}",
                f"{100 * n.balanced:.2f}",
            ]
        )
        rows.append([f"ours, {kind} probe: mean error (ranks)", f"{o.mae:.2f}", f"{n.mae:.2f}"])
    page.table(["probe", "ordinal z_o", "non-ordinal z_n"], [*rows, *map(list, PAPER_PROBES)])
    counts = np.bincount(_held_out(splits).target.hard.cpu().numpy())
    page.text(
        f"Chance is {100 / model.config.num_ranks:.0f} % balanced; always answering the most "
        f"frequent rank is {100 * counts.max() / counts.sum():.1f} % accurate. Probes were fitted "
        "on the codes of training images, also encoded without labels."
    )


def _maps(
    page: Page, model: Generator, splits: Mapping[str, SplitImages], data: Manifest, run: Path
) -> None:
    held_out = _held_out(splits)
    codes = encode_split(model, held_out)
    rows = torch.randperm(len(held_out), generator=torch.Generator().manual_seed(0))[:MOST_POINTS]
    ranks = held_out.target.hard.cpu().numpy()[rows.numpy()]
    panels = {
        "ordinal z_o": embed(codes.ordinal[rows].numpy().astype(np.float64)),
        "non-ordinal z_n": embed(codes.nonordinal[rows].numpy().astype(np.float64)),
    }
    page.heading("The two codes")
    page.picture(
        rank_scatter(panels, ranks, data.meta.ranks),
        "t-SNE of held-out images, coloured by rank. The left one should be ordered, the right "
        "one mixed.",
    )


def _curves(
    page: Page, model: Generator, splits: Mapping[str, SplitImages], data: Manifest, run: Path
) -> None:
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

    weights = [n for n in metrics[-1] if n.startswith("w_") and not n.startswith("w_critic")]
    terms = [n.removeprefix("w_") for n in weights]
    page.picture(lines(curve(*terms), title="terms of the loss", log=True), "Loss terms.")
    moving = [n for n in weights if len({m[n] for m in metrics if n in m}) > 1]
    if moving:
        page.picture(
            lines(curve(*moving), title="learned weights"), "Learned weights of the terms."
        )
    accuracy = curve("mixing_accuracy_train", "mixing_accuracy_val")
    picture = lines(accuracy, title="mixing accuracy")
    page.picture(picture, "Mixing accuracy, read by the generator's own critic.")
    books = curve("perplexity_ordinal", "perplexity_nonordinal")
    page.picture(lines(books, title="codebook perplexity", log=True), "Codes in use.")
    last = {n: v for n, v in metrics[-1].items() if n.startswith(("usage", "perplexity", "mixing"))}
    page.table(["last epoch", "value"], [[n, f"{v:.3f}"] for n, v in last.items()])
