"""`dismix generator evaluate`: every number that tells whether a generator separates.

Everything is measured on held-out images, and nothing here chooses anything. They are encoded
without their labels; only the sources of a mix are encoded with them, as mixing does it. The
judge is another network than any that took part in training; give the same judge file to several
runs, and their readings can be compared.
"""

import dataclasses
import json
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from dismix import atomic
from dismix.data.manifest import Manifest, read_manifest
from dismix.errors import DisMixError
from dismix.generator.checkpoint import chosen_epoch, load_last
from dismix.generator.images import SplitImages, load_split
from dismix.generator.judge import SMALL, Judge, JudgeKind, ready_judge
from dismix.generator.measures import (
    control,
    judge_readings,
    judged_mixes,
    phantom_subject,
    reconstruction,
)
from dismix.generator.model import WEIGHTS_FILE, Generator
from dismix.generator.perceptual import LPIPS, WEIGHTS
from dismix.generator.probes import probe_generator
from dismix.generator.recipe import Recipe
from dismix.generator.run_file import manifest_of, name_of, require_fitting
from dismix.generator.run_log import read_metrics
from dismix.generator.saving import DIGEST_KEY
from dismix.generator.strips import draw_strip
from dismix.generator.trained_on import read_trained_on, seen_note
from dismix.generator.weights import find_weights, how_to_get
from dismix.progress import Progress, steps_of
from dismix.provenance import provenance

EVALUATION = "evaluation.json"
#: Of weights that were not chosen; reports must not take them for those that were.
EVALUATION_LAST = "evaluation_last.json"
#: Images decoded at every rank.
TRAVERSED = 300
_STAGE = "evaluation"


def evaluate_generator(
    run: str | Path,
    output: str | Path | None = None,
    *,
    manifest: str | Path | None = None,
    split: str | None = None,
    checkpoint: Literal["best", "last"] = "best",
    judge: str | Path | Judge | None = None,
    judge_epochs: int | None = None,
    judge_kind: JudgeKind | None = None,
    seed: int = 0,
    device: str | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure a trained generator; write ``evaluation.json`` and ``.jpg`` into its run folder.

    That of the last epoch's weights is ``evaluation_last.json``. One on other data, or on another
    split than the usual one, has their name too and never takes the place of the run's own; it
    stays out of the run folder when ``output`` is given.

    Args:
        run: Run folder.
        output: Another file for the numbers; the picture strip goes beside it.
        manifest: Data to judge on; by default what the run was trained on.
        split: "test" or "val"; by default test where there is one.
        checkpoint: The chosen weights, or the averaged ones of the last epoch.
        judge: A judge, or its file: read when it is there, else trained and written there.
            None trains one and keeps no file.
        judge_epochs: Passes of the judge's training; 0 does without a judge.
        judge_kind: "vgg16", or "conv" for small pictures; by default by the image size.
        seed: Seed of the judge and of what is drawn.
        device: "cpu" or "cuda"; by default a GPU where there is one.
        cache: Folder of the image stores.
        progress: Called after each part.

    Returns:
        What was written; see ``docs/generator.md`` for the fields.
    """
    start, run = time.perf_counter(), Path(run)
    described = read_run(run)
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model = Generator.load(run, where)
    mixes = _training_mixes(run, described, checkpoint)
    epoch = load_last(run, model) if checkpoint == "last" else mixes.get("epoch")
    data = read_manifest(manifest or manifest_of(described))
    require_fitting(run, data)
    splits = evaluation_splits(data, model, where, split=split, cache=cache, progress=progress)
    note = seen_note(read_trained_on(run), data.split(_held_out(splits)[0]), cache)
    if note:
        warnings.warn(note, stacklevel=2)
    ready = isinstance(judge, Judge) or (judge is not None and Path(judge).is_file())
    lacking = not ready and judge_kind is None and _no_judge(model.image_size)
    if lacking and judge_epochs != 0:
        warnings.warn(
            f"no judge reads the pictures: weights '{WEIGHTS}' not found; {how_to_get(WEIGHTS)}",
            stacklevel=2,
        )
    elif not isinstance(judge, Judge) and judge_epochs != 0:
        judge = ready_judge(
            judge, splits["train"], model.image_size, kind=judge_kind, epochs=judge_epochs,
            seed=seed, progress=progress,
        )  # fmt: skip
    reader = judge if isinstance(judge, Judge) else None
    found = measure_generator(model, splits, data, reader, seed=seed, progress=progress)
    found["mixing_accuracy"] = mixes | found["mixing_accuracy"]
    result = {
        "run": run.name, "checkpoint": checkpoint, "epoch": epoch, "data": data.meta.source,
        "weights": _weights_digest(run), **_rounded(found),
        "seconds": round(time.perf_counter() - start, 1),
        "training": _described(described), "provenance": provenance(where.type),
    }  # fmt: skip
    own = run / (EVALUATION if checkpoint == "best" else EVALUATION_LAST)
    name = _unusual(described, data, _held_out(splits)[0], named=manifest is not None)
    paths = {own.with_stem(f"{own.stem}{name}")}
    if output is not None:
        paths = {Path(output)} | ({own} if not name else set())
    for path in paths:
        atomic.write_json(path, result)
        _write_strip(model, _held_out(splits)[1], path.with_suffix(".jpg"))
    return result


def _no_judge(size: int) -> bool:
    """Return whether the usual judge of pictures of this side has nothing to start from."""
    return size > SMALL and find_weights(WEIGHTS) is None


def _unusual(described: Mapping[str, Any], data: Manifest, split: str, *, named: bool) -> str:
    """Return what an evaluation's file name must add: nothing for the run's data and usual split.

    Args:
        described: ``run.json``.
        data: What was judged on.
        split: The held-out one.
        named: Whether the data were named by the caller; runs from before data were known by
            content have no other way to tell.
    """
    known = described.get("data")
    other = named if known is None else data.split("train", "val").fingerprint() != known
    # The run knows what it was trained and chosen on; others may be held out beside that.
    other = other or (named and _held_out_elsewhere(described, data, split))
    name = ""
    if other and data.path is not None:
        name = f"_{name_of(data.path)}"
    usual = "test" if (data.table["split"] == "test").any() else "val"
    return name if split == usual else f"{name}_{split}"


def _held_out_elsewhere(described: Mapping[str, Any], data: Manifest, split: str) -> bool:
    """Tell whether the run's own manifest, if it is still there, holds out other images."""
    try:
        own = read_manifest(manifest_of(described))
    except (DisMixError, OSError, KeyError):
        return False
    return own.split(split).fingerprint() != data.split(split).fingerprint()


def measure_generator(
    model: Generator,
    splits: Mapping[str, SplitImages],
    data: Manifest,
    judge: Judge | None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return every measure of a generator in memory; see `evaluate_generator`.

    Args:
        model: Generator in evaluation mode.
        splits: From `evaluation_splits`.
        data: Where they come from.
        judge: Grader that took no part in training, or None.
        seed: Decides the images of the traverses and the pairs of the mixes.
        progress: Called after each part.
    """
    device = next(model.parameters()).device
    name, held_out = _held_out(splits)
    tick = steps_of(progress, _STAGE, 4)
    perceptual = LPIPS.pretrained().to(device) if find_weights(WEIGHTS) else None
    result: dict[str, Any] = {
        "split": name, "images": len(held_out), "fitted_on": len(splits["train"]),
        "chance": _chance(held_out), **reconstruction(model, held_out, perceptual, progress),
    }  # fmt: skip
    tick()
    probes = probe_generator(model, splits["train"], held_out, progress=progress)
    result["probes"] = {key: found.to_dict() for key, found in probes.items()}
    tick()
    result["mixing_accuracy"] = {}
    if judge is not None:
        judge.require_ranks(data.num_ranks)
        result["judge"] = judge_readings(judge, held_out, device)
        result["mixing_accuracy"] = judged_mixes(model, judge, splits, seed)
    tick()
    rows = torch.randperm(len(held_out), generator=torch.Generator().manual_seed(seed))[:TRAVERSED]
    result |= control(model, held_out, rows, judge, phantom_subject(data.meta.source))
    tick()
    return result


def _held_out(splits: Mapping[str, SplitImages]) -> tuple[str, SplitImages]:
    name = "test" if "test" in splits else "val"
    return name, splits[name]


def evaluation_splits(
    data: Manifest,
    model: Generator,
    device: torch.device,
    *,
    split: str | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, SplitImages]:
    """Return the training split and the held-out one ("test" where there is one, else "val").

    Raises:
        DisMixError: The data have another number of ranks, or no held-out images.
    """
    if data.num_ranks != model.config.num_ranks:
        raise DisMixError(
            f"has {data.num_ranks} ranks, the generator {model.config.num_ranks}",
            file=data.path,
            cure="give the manifest the run was trained on",
        )
    if split not in (None, "test", "val"):
        raise DisMixError(f"'{split}' holds no unseen images", cure="give --split test or val")
    held_out = split or ("test" if (data.table["split"] == "test").any() else "val")
    return {
        name: load_split(
            data, name, model.image_size, device=device, cache=cache, progress=progress
        )
        for name in ("train", held_out)
    }


def read_run(run: Path) -> dict[str, Any]:
    """Read ``run.json``."""
    path = run / "run.json"
    try:
        described: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DisMixError(
            "no such file", file=path, cure="give the folder of a trained generator"
        ) from error
    except (OSError, ValueError) as error:
        raise DisMixError(
            f"unreadable ({error})", file=path, cure="give the folder of a trained generator"
        ) from error
    return described


def read_evaluation(run: Path) -> dict[str, Any] | None:
    """Read the evaluation of a run; None when there is none or the weights changed since."""
    try:
        found: dict[str, Any] = json.loads((run / EVALUATION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    # Earlier versions wrote that of the last epoch's weights here too.
    chosen = found.get("checkpoint", "best") == "best"
    return found if chosen and found.get("weights") == _weights_digest(run) else None


def _chance(split: SplitImages) -> dict[str, float]:
    counts = np.bincount(split.target.hard.cpu().numpy(), minlength=split.target.num_ranks)
    return {"balanced": 1 / len(counts), "majority": float(counts.max() / counts.sum())}


def _training_mixes(
    run: Path, described: Mapping[str, Any], checkpoint: Literal["best", "last"]
) -> dict[str, Any]:
    """Return mixing accuracy as training saw it at the checkpoint, by its own reader."""
    lines = [line for line in read_metrics(run) if "score" in line]
    known = {f.name for f in dataclasses.fields(Recipe)}
    recipe = Recipe(**{k: v for k, v in described.get("recipe", {}).items() if k in known})
    # Where the training's state is gone, what the rule would choose.
    own = [line for line in lines if line["epoch"] == chosen_epoch(run)] or [
        line for line in lines if recipe.may_choose(int(line["epoch"]))
    ]
    if not own or not lines:
        return {}
    line = max(own, key=lambda line: line["score"]) if checkpoint == "best" else lines[-1]
    return {
        "epoch": int(line["epoch"]),
        "train": line["mixing_accuracy_train"],
        "val": line["mixing_accuracy_val"],
    }


def _described(described: dict[str, Any]) -> dict[str, Any]:
    """Return what a record needs of ``run.json``."""
    kept = ("config", "recipe", "seed", "weights", "provenance")
    return {name: described[name] for name in kept if name in described}


def _weights_digest(run: Path) -> str | None:
    try:
        with safe_open(str(run / WEIGHTS_FILE), framework="pt") as file:
            found: str | None = (file.metadata() or {}).get(DIGEST_KEY)
    except (SafetensorError, OSError, ValueError):
        return None
    return found


def _write_strip(model: Generator, split: SplitImages, path: Path) -> None:
    picture = draw_strip(model, split, min(6, len(split)))
    with atomic.replacing(path) as temporary:
        # Coarser chroma would wash out small lesions.
        picture.convert("RGB").save(temporary, quality=90, subsampling=0)


def _rounded(value: Any) -> Any:
    """Round numbers to what the number of images can tell."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
