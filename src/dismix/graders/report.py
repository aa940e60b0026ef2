"""Judging trained graders on a split, one run or many seeds, and telling it in words."""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from dismix import atomic
from dismix.data.grey import other_kind_note
from dismix.data.manifest import Manifest, read_manifest
from dismix.data.rank_names import require_same_order
from dismix.errors import DisMixError
from dismix.generator.images import load_split
from dismix.generator.reading import FIELDS
from dismix.generator.run_file import manifest_of, name_of
from dismix.generator.trained_on import read_trained_on, seen_note
from dismix.graders.about import require_about
from dismix.graders.card import CARD, DATA, read_parts, write_card
from dismix.graders.evaluation import evaluate
from dismix.graders.metrics import SCALARS, metric_text
from dismix.graders.saving import MODEL, load_grader
from dismix.graders.seeds import summarise
from dismix.graders.settings import usual_batch
from dismix.graders.start_run import RUN_FILE
from dismix.progress import Progress

MANIFEST = "manifest.csv"


def evaluate_run(
    run: str | Path,
    manifest: str | Path | None = None,
    split: str = "test",
    *,
    cpu: bool = False,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Judge a grader, or every seed below a folder.

    Writes ``evaluation-<split>.json`` beside each model and renews its card; on other data than
    those of training the file has their name too, so that neither replaces the other.

    Args:
        run: Run folder, model file, or folder with ``seed_*``.
        manifest: Data; what the grader was trained on if None.
        split: "train", "val" or "test".
        cpu: Do not use a GPU.
        cache: Folder of the image stores.
        progress: Called while images are decoded.

    Returns:
        {"manifest", "split", "ranks", "metrics", "notes"}; for several seeds "summary" instead of
        "notes", the metrics then being a list.
    """
    run = Path(run)
    models = [run] if run.is_file() or (run / MODEL).is_file() else _seeds_below(run)
    if not models:
        raise DisMixError(
            "no trained grader here", file=run, cure="train one with `dismix grader train`"
        )
    device = torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
    path = Path(manifest) if manifest is not None else manifest_of(_described(models[0]))
    data = read_manifest(path)
    for model in models:
        if (model / CARD).is_file():
            # Before the work: what the card is made of must be there.
            read_parts(model)
    found = []
    for model in models:
        grader = load_grader(model, device)
        about = require_about(grader)
        same_ranks(about["ranks"], data, tell=model == models[0])
        read = as_trained(about, data, tell=model == models[0])
        images = load_split(
            read, split, about["size"], device=device, cache=cache, progress=progress
        )
        if model == models[0]:
            # By now decoding has read the images.
            _warn_of_seen(models, data, split, cache)
            _warn_of_other_kind(about, data.split(split))
        metrics = evaluate(grader, images)
        found.append(metrics)
        content = {"manifest": str(path), "split": split, "metrics": metrics}
        if model.is_dir():
            atomic.write_json(model / _file_name(model, data, split), content)
            if (model / CARD).is_file():
                write_card(model)
    result: dict[str, Any] = {"manifest": str(path), "split": split, "ranks": [*data.meta.ranks]}
    if len(models) == 1:
        note = one_grade_note(found[0], run if run.is_dir() else run.parent)
        return {**result, "metrics": found[0], "notes": [note] if note else []}
    result |= {"metrics": found, "summary": summarise(found)}
    atomic.write_json(run / _file_name(models[0], data, split), result)
    return result


def _described(model: Path) -> dict[str, Any]:
    """Return what ``run.json`` beside a model says."""
    path = (model if model.is_dir() else model.parent) / RUN_FILE
    if not path.is_file():
        raise DisMixError("no data named", file=model, cure="give a manifest")
    return atomic.read_json(path, "manifest", cure="restore it, or give a manifest")


def _own(model: Path, data: Manifest) -> dict[str, Any] | None:
    """Return what ``run.json`` says if these are the data of the training, else None."""
    try:
        described = _described(model)
    except DisMixError:
        return None
    trained = manifest_of(described)
    trained = trained / MANIFEST if trained.is_dir() else trained
    same = data.path is not None and data.path.resolve() == trained.resolve()
    return described if same else None


def _file_name(model: Path, data: Manifest, split: str) -> str:
    """Return the name of an evaluation's file: that of the training's own data is the short one."""
    if data.path is None or _own(model, data) is not None:
        return f"evaluation-{split}.json"
    return f"evaluation-{split}-{name_of(data.path)}-{data.fingerprint()[:6]}.json"


def _warn_of_seen(models: Sequence[Path], data: Manifest, split: str, cache: Path | None) -> None:
    """Say how many of the images to judge on were learned, else that there may be some."""
    own = split == "train" and _own(models[0], data) is not None
    runs = [model if model.is_dir() else model.parent for model in models]
    learned = {digest for run in runs for digest in read_trained_on(run)}
    note = "" if own else seen_note(learned, data.split(split), cache, "grader")
    if note:
        warnings.warn(note, stacklevel=3)
    else:
        warn_if_trained_on(models[0], data)


def _warn_of_other_kind(about: Mapping[str, Any], rows: Manifest) -> None:
    """Warn where images are grey or in colour, and the grader's training images were not."""
    if note := other_kind_note(rows.image_paths, grey=about["grey"], bits=about["bits"]):
        warnings.warn(note, stacklevel=3)


def warn_if_trained_on(model: Path, data: Manifest) -> None:
    """Warn where the manifest of the training has other training rows by now."""
    described = _own(model, data)
    known = None if described is None else described.get("data")
    if known is not None and known != data.split("train", "val").fingerprint():
        warnings.warn(
            f"training and validation rows of {data.path} are no longer those that this grader "
            "was trained on; images that it is judged on may have been among them",
            stacklevel=3,
        )


def _seeds_below(run: Path) -> list[Path]:
    """Return the folders of the seeds, by number."""
    found = [p for p in run.glob("seed_*") if p.name.removeprefix("seed_").isdecimal()]
    return sorted(found, key=lambda p: int(p.name.removeprefix("seed_")))


def same_ranks(ranks: Sequence[str], data: Manifest, *, tell: bool = True) -> None:
    """Refuse data with other ranks or another order; warn, if told to, of other names."""
    if len(ranks) != data.num_ranks:
        raise DisMixError(
            f"has {data.num_ranks} ranks, the grader {len(ranks)}",
            file=data.path,
            cure="judge on data with the same ranks",
        )
    require_same_order(ranks, data.meta.ranks, "grader", file=data.path, tell=tell)


def as_trained(about: Mapping[str, Any], data: Manifest, *, tell: bool = True) -> Manifest:
    """Return data whose files are read as the grader's training images were.

    Args:
        about: `Grader.about` of a trained grader.
        data: Any; what their own meta says about reading files gives way.
        tell: Warn where it does.
    """
    wanted = {name: about[name] for name in FIELDS}
    given = asdict(data.meta)
    other = [f"{name} is {given[name]}" for name in wanted if given[name] != wanted[name]]
    if other and tell:
        warnings.warn(
            f"{', '.join(other)} in these data, not in the grader's; they are read as the "
            "grader's training images were",
            stacklevel=3,
        )
    return replace(data, meta=replace(data.meta, **wanted)) if other else data


def one_grade_note(metrics: Mapping[str, Any], run: Path | None = None) -> str:
    """Return a line for graders that answer every image alike, else nothing.

    On unbalanced data their accuracy, the share of that grade, looks like something learned.

    Args:
        metrics: From `grade_metrics`.
        run: Folder of the grader, which tells how large batches should have been.

    Example:
        >>> one_grade_note({"confusion": [[5, 0], [2, 0]]})[:46]
        'note: all images were given one and the same g'
        >>> [one_grade_note({"confusion": [[5, 0], row]}) for row in ([1, 1], [0, 0])]
        ['', '']
    """
    decided = [any(column) for column in zip(*metrics["confusion"], strict=True)]
    known = [any(row) for row in metrics["confusion"]]
    if sum(decided) > 1 or sum(known) < 2:
        return ""
    smaller = "" if run is None else _smaller_batches(run)
    return (
        "note: all images were given one and the same grade, so nothing was learned yet; train "
        f"longer (--epochs){smaller} or with --balanced"
    )


def _smaller_batches(run: Path) -> str:
    """Return the advice on batches, nothing where they were small enough or nobody knows."""
    try:
        described = json.loads((run / RUN_FILE).read_text(encoding="utf-8"))
        facts = json.loads((run / DATA).read_text(encoding="utf-8"))
        taken = int(described["settings"]["batch_size"])
        advised = usual_batch(sum(facts["counts"]["train"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return f", in smaller batches (--batch-size {advised})," if advised < taken else ""


def metrics_text(found: dict[str, Any]) -> str:
    """Return the lines that `dismix grader evaluate` prints."""
    lines = [f"{found['split']} split of {found['manifest']}"]
    if "summary" in found:
        for name, value in found["summary"].items():
            lines.append(
                f"{name:>18} {value['mean']:.3f}  sd {value['sd']:.3f}  "
                f"95 % {value['low']:.3f} to {value['high']:.3f}  ({len(value['values'])} seeds)"
            )
        undefined = [
            name for name in SCALARS if all(m.get(name, 0) is None for m in found["metrics"])
        ]
        return "\n".join([*lines, *(f"{name:>18} -" for name in undefined)])
    metrics = found["metrics"]
    lines += [
        f"{name:>18} {metric_text(value)}"
        for name, value in metrics.items()
        if value is None or isinstance(value, float)
    ]
    width = max(len(name) for name in found["ranks"])
    lines.append("true grade: decisions")
    for name, row in zip(found["ranks"], metrics["confusion"], strict=True):
        lines.append(f"  {name:<{width}}  " + " ".join(f"{count:>4}" for count in row))
    return "\n".join([*lines, *found.get("notes", ())])
