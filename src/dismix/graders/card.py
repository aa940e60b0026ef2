"""The model card beside a trained grader: data, votes, metrics by grade, limits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dismix import atomic
from dismix.data.describe import grade_counts
from dismix.data.manifest import Manifest
from dismix.graders.backbones import TINY
from dismix.graders.cut_points import nearest_cuts
from dismix.graders.metrics import metric_text
from dismix.graders.registry import GRADERS

CARD = "card.md"
DATA = "data.json"
LIMITS = """\
- For research. It has not been tested as a medical device and must not decide about patients.
- It saw one data set. Other cameras, populations and protocols can shift its grades; check it on
  your own graded images first (`dismix grader evaluate`).
- Numbers on validation are optimistic: the checkpoint or other settings were chosen there.
- Grades are those of the annotators above. Where they disagree, the grader learned to be unsure.
- `expected_rank` between two grades is a probability statement, not a finer clinical scale."""

REFERENCE_LIMIT = """\
- The model file holds features and votes of all training images: who gets the file gets those."""


def data_facts(manifest: Manifest) -> dict[str, Any]:
    """Return counts of images, grades and votes of a manifest."""
    votes = np.isfinite(manifest.votes)
    train = manifest.split("train")
    spread = train.target().probs.amax(1).numpy()
    return {
        "source": manifest.meta.source,
        "ranks": [*manifest.meta.ranks],
        "counts": grade_counts(manifest),
        "annotators": len(manifest.annotators),
        "votes": int(votes.sum()),
        "images_with_several_votes": int((votes.sum(1) > 1).sum()),
        "training_images_without_unanimous_grade": int((spread < 1 - 1e-6).sum()),
    }


def write_card(run: Path, manifest: Manifest | None = None) -> Path:
    """Write ``card.md`` from what lies in a run folder.

    Args:
        run: Folder with ``run.json``, ``result.json`` and any ``evaluation-*.json``.
        manifest: Training data; their facts are kept in the folder for later.
    """
    if manifest is not None:
        atomic.write_json(run / DATA, data_facts(manifest))
    settings, result, facts = read_parts(run)
    lines = [f"# Grader '{settings['settings']['method']}'", ""]
    lines += _training_lines(settings, result, facts["ranks"])
    lines += ["", "## Data", "", *_data_lines(facts)]
    lines += ["", "## Validation", "", *_metric_lines(result["validation"], facts["ranks"])]
    for path in sorted(run.glob("evaluation-*.json")):
        found = atomic.read_json(
            path, "split", "manifest", "metrics", cure="delete it, and evaluate again"
        )
        title = f"## Evaluation: {found['split']} split of {Path(found['manifest']).name}"
        lines += ["", title, "", *_metric_lines(found["metrics"], facts["ranks"])]
    lines += ["", "## Limits", "", LIMITS]
    if GRADERS[settings["settings"]["method"]].make.uses_reference:
        lines.append(REFERENCE_LIMIT)
    lines.append("")
    atomic.write_text(run / CARD, "\n".join(lines))
    return run / CARD


def read_parts(run: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return what ``run.json``, ``result.json`` and ``data.json`` of a run say."""
    cure = "restore it, or write it again with `dismix grader train ... --resume`"
    return (
        atomic.read_json(run / "run.json", "settings", "provenance", cure="restore it"),
        atomic.read_json(run / "result.json", "select", "epoch", "validation", cure=cure),
        atomic.read_json(run / DATA, "ranks", "counts", cure=cure),
    )


def _training_lines(run: dict[str, Any], result: dict[str, Any], ranks: Sequence[str]) -> list[str]:
    s, made = run["settings"], run["provenance"]
    own = ", ".join(f"{k}={v}" for k, v in s["hparams"].items())
    return [
        f"- Method: {s['method']}, preset {s['preset']}" + (f" ({own})" if own else ""),
        f"- Backbone: {s['backbone']}, {s['size']} px, {_start(s)}",
        f"- Training: {s['epochs']} epochs, batches of {s['batch_size']}, {s['optimizer']}, "
        f"learning rate {s['lr']:g}, seed {run['seed']}, mixing: {run['mix'] or 'none'}",
        f"- Grades in training: {_emphasis(run)}",
        f"- Checkpoint: epoch {result['epoch']}, "
        + (
            "the last"
            if result["select"] == "last"
            else f"chosen by '{result['select']}' on validation"
        ),
        *_decision_lines(result, ranks),
        f"- Made {made['date']} with dismix {made['versions'].get('dismix', '(source)')} "
        f"{made['commit']} on {made['hardware']}",
    ]


def _decision_lines(result: dict[str, Any], ranks: Sequence[str]) -> list[str]:
    """Return how a place on the line of ranks becomes a grade, where it does."""
    if "cuts" not in result:
        return []
    cuts = zip(ranks[1:], result["cuts"], strict=True)
    where = ", ".join(f"'{name}' from {cut:.2f}" for name, cut in cuts)
    # Asked to be fitted, they stay where they were when there are few validation images.
    moved = result["cuts"] != nearest_cuts(len(result["cuts"]) + 1).tolist()
    how = "fitted on validation" if moved else "half-way"
    return [f"- Decision: by the expected rank, counted from 0: {where} on ({how})"]


def _emphasis(run: dict[str, Any]) -> str:
    """Return in words what makes some images count more than others."""
    s = run["settings"]
    said = ["drawn equally often"] if s["balanced"] else []
    if s["rank_weights"] == "balanced":
        said.append("weighted by the inverse of their frequency")
    elif s["rank_weights"]:
        said.append("weighted " + ", ".join(f"{w:g}" for w in s["rank_weights"]))
    if run["weight_column"]:
        said.append(f"images weighted by the column '{run['weight_column']}'")
    return "; ".join(said) or "as they occur"


def _start(settings: dict[str, Any]) -> str:
    if settings["backbone"] == TINY or settings["weights"] == "none":
        return "trained from nothing"
    found = {"auto": "found by its name", "timm": "from timm"}
    return "weights " + found.get(settings["weights"], Path(settings["weights"]).name)


def _data_lines(facts: dict[str, Any]) -> list[str]:
    ranks = facts["ranks"]
    lines = [f"Source: {facts['source'] or 'not stated'}", ""]
    lines += ["| split | images | " + " | ".join(ranks) + " |", "|" + "---|" * (2 + len(ranks))]
    for split, counts in facts["counts"].items():
        lines.append(f"| {split} | {sum(counts)} | " + " | ".join(map(str, counts)) + " |")
    lines += [
        "",
        f"Annotators: {facts['annotators']}, votes: {facts['votes']}, images with several votes: "
        f"{facts['images_with_several_votes']}, training images whose annotators disagree: "
        f"{facts['training_images_without_unanimous_grade']}.",
    ]
    return lines


def _metric_lines(metrics: dict[str, Any], ranks: list[str]) -> list[str]:
    shown = {
        "accuracy": "accuracy", "mae": "MAE of the decision",
        "mae_expected": "MAE of the expected rank", "qwk": "quadratic kappa",
        "off_by_one": "within one grade", "balanced_accuracy": "balanced accuracy",
        "amae": "AMAE", "mmae": "MMAE", "rps": "ranked probability score",
        "ece": "expected calibration error",
    }  # fmt: skip
    lines = [f"{metrics['count']} images.", "", "| metric | value |", "|---|---|"]
    lines += [f"| {text} | {metric_text(metrics[name])} |" for name, text in shown.items()]
    lines += ["", "| grade | images | recall | precision | MAE |", "|---|---|---|---|---|"]
    for rank, row in zip(ranks, metrics["per_grade"], strict=True):
        cells = [metric_text(row[k]) for k in ("recall", "precision", "mae")]
        lines.append(f"| {rank} | {row['count']} | " + " | ".join(cells) + " |")
    lines += ["", "| taken for each other | share |", "|---|---|"]
    for step, share in metrics["boundary_errors"].items():
        low, high = (ranks[int(k)] for k in step.split("|"))
        lines.append(f"| {low} and {high} | {metric_text(share)} |")
    return lines
