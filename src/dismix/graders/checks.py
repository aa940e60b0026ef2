"""What can be wrong with training data, said before the first step."""

import warnings

import torch

from dismix.data.batches import batch_bounds
from dismix.data.manifest import Manifest
from dismix.data.rare_grades import called, missing_grades, rare_note
from dismix.errors import DisMixError
from dismix.graders.base import Grader
from dismix.graders.registry import GRADERS
from dismix.graders.settings import TrainSettings, usual_batch
from dismix.labels import OrdinalTarget
from dismix.modes import evaluating

#: Trainings of fewer steps have hardly left their start.
FEW_STEPS = 100
#: How `dismix grader train` takes the size of batches.
BATCH_OPTION = "--batch-size "


def check_training(
    grader: Grader,
    settings: TrainSettings,
    target: OrdinalTarget,
    manifest: Manifest,
    *,
    allow_missing: bool = False,
    batch_option: str = BATCH_OPTION,
) -> None:
    """Refuse what cannot be trained and warn of what will disappoint.

    Args:
        grader: Untrained.
        settings: Settings.
        target: Targets of the N training images.
        manifest: For names and messages.
        allow_missing: Only warn when no training image has some grade.
        batch_option: How the command at hand takes the size of batches.

    Raises:
        DisMixError: A grade without training images, a batch or a split that is too small,
            images of a size that the backbone cannot take.
    """
    least = max(2, grader.min_batch)
    if settings.batch_size < least:
        raise DisMixError(
            f"batches of {settings.batch_size} are too small for '{settings.method}'",
            cure=f"give {batch_option}{least} or more",
        )
    if len(target) < least:
        raise DisMixError(
            f"has {len(target)} training image{'s' * (len(target) != 1)}, "
            f"'{settings.method}' needs {least} at least",
            file=manifest.path,
            cure="add training images",
        )
    note = steps_note(len(target), settings, least, batch_option)
    if note:
        warnings.warn(note, stacklevel=2)
    _check_grades(target, manifest, allow_missing)
    _check_validation(manifest)
    _check_size(grader, settings)


def steps_note(
    images: int, settings: TrainSettings, least: int = 2, batch_option: str = BATCH_OPTION
) -> str:
    """Return what to do about batches that leave too few steps to learn from, else nothing.

    Who chose another batch than the preset's is told only where it holds all images.

    Args:
        images: Training images.
        settings: Settings.
        least: Smallest batch that the method takes.
        batch_option: How the command at hand takes the size of batches.

    Example:
        >>> steps_note(136, TrainSettings("ce", epochs=10))[:67]
        '10 epochs of 136 images in batches of 64 are 20 steps; add --batch-'
        >>> steps_note(136, TrainSettings("ce")), steps_note(90, TrainSettings("ce", batch_size=8))
        ('', '')
    """
    size, advised = settings.batch_size, max(least, usual_batch(images))
    if size <= advised:
        return ""
    if images < size:
        return (
            f"there are only {images} training images for batches of {size}, so every step takes "
            f"all of them; add {batch_option}{advised}"
        )
    if size != GRADERS[settings.method].presets[settings.preset].batch_size:
        return ""
    steps = settings.epochs * len(batch_bounds(images, size, drop_last=images >= 2 * size))
    if steps >= FEW_STEPS:
        return ""
    return (
        f"{settings.epochs} epochs of {images} images in batches of {size} are {steps} steps; add "
        f"{batch_option}{advised}, or more epochs"
    )


def _check_validation(manifest: Manifest) -> None:
    """Warn where validation cannot tell a grader that orders images from one that does not."""
    val = manifest.split("val")
    if len(val) == 0:
        return
    majorities = [*set(val.target().hard.tolist())]
    if len(majorities) == 1:
        name = called(majorities[0], manifest.meta.ranks)
        warnings.warn(
            f"all {len(val)} validation images have grade {name}: the checkpoint and cut points "
            "chosen on them know nothing of other grades; split anew (dismix data split)",
            stacklevel=3,
        )


@torch.no_grad()
def _check_size(grader: Grader, settings: TrainSettings) -> None:
    """Show the backbone one picture: some take a single size, and small ones vanish in pooling."""
    size = settings.size
    shown = torch.zeros(1, 3, size, size, device=grader.device)
    try:
        with evaluating(grader):
            features = grader.backbone.forward_map(shown)
        if min(features.shape[2:]) < 1:
            raise RuntimeError("nothing is left of the picture")
    except (RuntimeError, AssertionError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DisMixError(
            f"'{settings.backbone}' cannot read images of {size} px ({reason})",
            cure="choose the --size it was made for, often 224, or another --backbone",
        ) from error


def _check_grades(target: OrdinalTarget, manifest: Manifest, allow_missing: bool) -> None:
    names = manifest.meta.ranks
    if missing := missing_grades(target, names):
        problem = f"no training image has grade {missing}, so the grader could never give it"
        if not allow_missing:
            raise DisMixError(
                problem,
                file=manifest.path,
                cure="add such images, merge ranks, or go on with --allow-missing",
            )
        warnings.warn(problem, stacklevel=2)
    if note := rare_note(target, names):
        warnings.warn(note, stacklevel=2)
