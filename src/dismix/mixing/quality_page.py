"""`dismix mix quality`: a page of numbers about mixes, and the same as JSON beside it."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dismix import atomic
from dismix.data.manifest import Manifest, read_manifest
from dismix.generator.evaluation_text import blind_judge_note, real_slope
from dismix.generator.images import SplitImages, load_split
from dismix.generator.judge import Judge, ready_judge
from dismix.generator.measures import judge_readings
from dismix.mixing.encoding import encode_split, run_manifest
from dismix.mixing.engine import MixEngine
from dismix.mixing.quality import (
    LAMS,
    Floats,
    Reader,
    Readings,
    RealFeatures,
    baseline,
    draw_rank_pairs,
    measure_mixes,
)
from dismix.progress import Progress
from dismix.provenance import provenance
from dismix.show.page import Page
from dismix.show.plots import lines as line_plot

COLUMNS = ("agreement", "error", "slope", "monotone", "preserved", "distance")


def write_quality(
    run: str | Path,
    output: str | Path,
    *,
    judge: str | Path | None = None,
    epochs: int | None = None,
    pairs: int = 200,
    detail: float = 0.0,
    manifest: str | Path | None = None,
    seed: int = 0,
    device: str = "cpu",
    cache: Path | None = None,
    progress: Progress | None = None,
) -> list[str]:
    """Measure a run's mixes and write the page.

    Args:
        run: Run folder; its training split is encoded first when that was not done yet.
        output: HTML file; the numbers also go to the same name with ``.json``.
        judge: A judge's file: read when it is there, else trained and kept there.
        epochs: Passes of the judge's training.
        pairs: Pairs to mix.
        detail: Share of the images' detail that policies give back (`dismix.mixing.details`).
        manifest: Data; what the run was trained on by default.
        seed: Of judge and pairs.
        device: Where to compute.
        cache: Folder of the image stores.
        progress: Called along the way.

    Returns:
        Lines for the console.
    """
    store = encode_split(
        run, manifest, device=device, details=detail > 0, cache=cache, progress=progress
    )
    engine = MixEngine.load(run, store.folder, device=device)
    data, where = read_manifest(manifest or run_manifest(run)), torch.device(device)
    size = engine.model.image_size
    train = load_split(data, "train", size, device=where, cache=cache, progress=progress)
    grader = ready_judge(judge, train, size, epochs=epochs, seed=seed, progress=progress)
    reader, extract = judge_reader(grader), judge_features(grader)
    chosen = draw_rank_pairs(store.target.hard, pairs, seed)
    numbers, readings = measure_mixes(
        engine, train, reader, pairs=chosen, detail=detail, progress=progress,
        features=RealFeatures(extract, train, store.target.hard, progress=progress),
    )  # fmt: skip
    ceiling = baseline(engine, train, reader, progress=progress)
    held_out = _held_out(data, size, where, cache) or train
    read = judge_readings(grader, held_out, where)
    note = blind_judge_note(real_slope(read["by_true_rank"]))
    record: dict[str, Any] = {
        "run": str(run), "pairs": pairs, "detail": detail, "seed": seed, "lams": [*LAMS],
        "judge": read, "reader_on": ceiling, "methods": numbers,
        **provenance(where.type),
    }  # fmt: skip
    page = Page("Quality of mixes", f"{Path(run).name}: {pairs} pairs of neighbouring ranks")
    if note:
        page.text(f"Note: {note}.")
    _fill(page, numbers, readings, ceiling, grader)
    page.write(Path(output))
    atomic.write_json(Path(output).with_suffix(".json"), _finite(record))
    return [*table_lines({**ceiling, **numbers}), *([f"note: {note}"] if note else [])]


def _held_out(
    data: Manifest, size: int, device: torch.device, cache: Path | None
) -> SplitImages | None:
    """Return the validation images, none of which a judge has learned, if all are at hand."""
    paths = data.split("val").image_paths
    if not paths or not all(path.is_file() for path in paths):
        return None
    return load_split(data, "val", size, device=device, cache=cache)


def judge_reader(judge: Judge) -> Reader:
    """Return what a judge takes a picture's rank to be."""
    device = judge.mean.device

    def read(images: Tensor) -> Floats:
        return judge.expected_rank(images.to(device)).double().cpu().numpy()

    return read


def judge_features(judge: Judge) -> Reader:
    """Return a judge's pooled features."""
    device = judge.mean.device

    @torch.no_grad()
    def extract(images: Tensor) -> Floats:
        return judge.pooled(images.to(device)).double().cpu().numpy()

    return extract


def table_lines(numbers: dict[str, dict[str, float]]) -> list[str]:
    """Return a plain table, a method a line."""
    width = max(len(name) for name in numbers)
    lines = [" " * width + "".join(f"{column:>11}" for column in COLUMNS)]
    for name, found in numbers.items():
        cells = [f"{found[c]:11.3f}" if c in found else f"{'':>11}" for c in COLUMNS]
        lines.append(f"{name:<{width}}" + "".join(cells))
    return lines


def _fill(
    page: Page,
    numbers: dict[str, dict[str, float]],
    readings: dict[str, Readings],
    ceiling: dict[str, Any],
    judge: Judge,
) -> None:
    page.text(
        f"The reader is a {judge.kind} grader trained on the clean training images; it took no"
        " part in training the generator. What it says of real training images and of their"
        " reconstructions is the most that mixes can reach."
    )
    cells = {**ceiling, **numbers}
    page.table(
        ["", *COLUMNS],
        [[name, *(f"{found[c]:.3f}" if c in found else "" for c in COLUMNS)]
         for name, found in cells.items()],
    )  # fmt: skip
    page.text(
        "agreement: read as the nearest whole intended rank, strictly between the ends of lam,"
        " where a pixel mixer shows a real training image; error: mean distance from the intended"
        " rank, likewise; slope: of the reading on the intended rank within pairs; monotone: pairs"
        " whose reading never turns back along lam; preserved: read as the giver's rank; distance:"
        " to the nearest real image of the intended rank other than the sources, in units of that"
        " distance for real images."
    )
    towards = {
        name: ([*LAMS], _moved(found)) for name, found in readings.items() if _interpolates(found)
    }
    picture = line_plot(
        towards, title="How far the reading moves from anchor to partner", x="lam", y="ranks"
    )
    page.picture(
        picture, "mean over pairs; the right line goes from 1 at lam 0 (the partner) to 0 at lam 1"
    )
    page.note("Interpolated ranks are training targets, not clinical grades.")


def _interpolates(found: Readings) -> bool:
    return bool((np.ptp(found.intended, axis=0) > 0).any())


def _moved(found: Readings) -> list[float]:
    direction = np.sign(found.intended[-1] - found.intended[0])
    return [float(value) for value in ((found.read - found.read[0]) * direction).mean(axis=1)]


def _finite(value: Any) -> Any:
    """Replace numbers that JSON has no word for."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
