"""Grading a split, and what the grades are worth."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from dismix.generator.images import SplitImages
from dismix.graders.base import Grader, Grades
from dismix.graders.metrics import grade_metrics, ranked_probability_score
from dismix.labels import OrdinalTarget
from dismix.layout import lay_out
from dismix.modes import evaluating


def clean_batches(
    split: SplitImages,
    device: torch.device,
    batch_size: int = 64,
    chosen: Tensor | None = None,
) -> Iterator[tuple[Tensor, OrdinalTarget]]:
    """Yield images (B, channels, H, W) in [-1, 1] and targets, in order, not augmented.

    Args:
        split: N images.
        device: Where to put them.
        batch_size: B.
        chosen: Rows to yield; all when None.
    """
    for rows in torch.split(torch.arange(len(split)) if chosen is None else chosen, batch_size):
        target = split.target[rows.to(split.target.probs.device)]
        yield split.images(rows, device), target.to(device)


def grade_split(grader: Grader, split: SplitImages, batch_size: int = 64) -> Grades:
    """Return the grades of all N images of a split, on the CPU."""
    device = grader.device
    return Grades.cat(
        grade_batch(grader, images).to("cpu")
        for images, _ in clean_batches(split, device, batch_size)
    )


def grade_batch(grader: Grader, images: Tensor) -> Grades:
    """Return the grades of images, in the precision and layout of training.

    So evaluations and predictions agree.

    Args:
        grader: On the images' device.
        images: (B, channels, H, W), as `Grader.predict` takes them.
    """
    lay_out(grader.backbone, images.device)
    with torch.autocast(images.device.type, torch.bfloat16, enabled=images.device.type == "cuda"):
        return grader.predict(images)


def evaluate(grader: Grader, split: SplitImages, batch_size: int = 64) -> dict[str, Any]:
    """Return `grade_metrics` against the majority grades, and the "loss".

    The loss is the ranked probability score against the votes, the same for all methods.
    """
    return score(grade_split(grader, split, batch_size), split)


def score(grades: Grades, split: SplitImages) -> dict[str, Any]:
    """Return what `evaluate` does, of grades that are there already."""
    target = split.target.to("cpu")
    law = grades.probabilities.double().numpy()
    metrics = grade_metrics(
        grades.label.numpy(), target.hard.numpy(), law.shape[1],
        probabilities=law, rank=grades.rank.double().numpy(),
    )  # fmt: skip
    metrics["loss"] = ranked_probability_score(law, target.probs.double().numpy())
    return metrics


@torch.no_grad()
def fit_reference(
    grader: Grader,
    train: SplitImages,
    val: SplitImages | None,
    batch_size: int = 64,
    weights: Tensor | None = None,
) -> None:
    """Give a grader the clean training images, and validation images to choose settings on.

    Clean are those that were not mixed, or all where every one was.

    Args:
        grader: Any grader.
        train: N training images.
        val: Validation images.
        batch_size: Images at once.
        weights: (N,) of the training images; those of weight 0 are no reference.
    """
    if not grader.uses_reference:
        return
    device = grader.device
    chosen = None if val is None else clean_batches(val, device, batch_size)
    counting = torch.full((len(train),), True) if weights is None else weights.cpu() > 0
    clean = counting & train.target.clean.cpu()
    rows = (clean if bool(clean.any()) else counting).nonzero().flatten()
    precise = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
    with evaluating(grader), precise:
        grader.fit_reference(clean_batches(train, device, batch_size, rows), chosen)
