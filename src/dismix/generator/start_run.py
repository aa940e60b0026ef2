"""From a manifest and a few names to a trained generator in a run folder."""

import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dismix.data.digest import content_digests
from dismix.data.store import default_cache_dir
from dismix.generator.checkpoint import FILE
from dismix.generator.model import WEIGHTS_FILE
from dismix.generator.reading import reading_of
from dismix.generator.recipe import Recipe
from dismix.generator.recipe_choice import length_note
from dismix.generator.run_file import claim, take_graders
from dismix.generator.run_graders import guide_kind, ready_graders
from dismix.generator.run_log import read_metrics, require_tensorboard
from dismix.generator.run_plan import plan_run
from dismix.generator.trained_on import read_trained_on, write_trained_on
from dismix.locks import in_use
from dismix.progress import Progress

if TYPE_CHECKING:
    from dismix.data.manifest import Manifest


def train_generator(
    manifest: str | Path,
    run: str | Path,
    *,
    arch: str = "light",
    recipe: str = "default",
    settings: Mapping[str, Any] | None = None,
    size: int | None = None,
    weights: str | Path | None = None,
    seed: int = 0,
    resume: bool = False,
    beside: Path | None = None,
    cpu: bool = False,
    tensorboard: bool = False,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Train a generator and return its best score and epoch.

    Args:
        manifest: Manifest with a training and a validation split.
        run: Folder to fill.
        arch: Autoencoder's name.
        recipe: Recipe's name.
        settings: Changes to it.
        size: Pixels a side; the architecture's by default.
        weights: Pretrained autoencoder.
        seed: Seed of all choices.
        resume: Continue when the folder holds an interrupted run.
        beside: Folder of other runs; a guide and a reader that one of them trained on the same
            data in the same way are taken, not trained again.
        cpu: Do not use a GPU.
        tensorboard: Also write curves and strips for TensorBoard.
        cache: Folder of the image stores.
        progress: Called while images are decoded and after each step.
    """
    from dismix.accelerators import make_accelerator
    from dismix.generator.images import load_split
    from dismix.generator.perceptual import LPIPS, require_lpips
    from dismix.generator.training import build_training, run_training
    from dismix.generator.trunk import LITE0_WEIGHTS
    from dismix.generator.validation import warn_if_weak
    from dismix.generator.weights import require_weights

    if tensorboard:
        require_tensorboard()
    run = Path(run)
    plan = plan_run(
        manifest, arch=arch, recipe=recipe, settings=settings, size=size, weights=weights, seed=seed
    )
    data, chosen, config = plan.data, plan.recipe, plan.config
    if chosen.weight("perceptual") > 0:
        # Before anything is decoded, and before the folder is a run's.
        require_lpips("train without it: --set perceptual=0")
    if not resume and "lite0" in (config.ordinal_trunk, guide_kind(chosen)):
        # A run that goes on has its guide and reader.
        require_weights(LITE0_WEIGHTS)
    accelerator = make_accelerator(cpu=cpu)
    with ExitStack() as held:
        if accelerator.is_main_process:
            held.enter_context(in_use(run))
            kind = accelerator.device.type
            claim(run, plan.described, resume, reading_of(data.meta), device=kind)
            if beside is not None:
                take_graders(run, beside, plan.described)
        accelerator.wait_for_everyone()
        if resume and (done := _finished(run, chosen)) is not None:
            return done
        if accelerator.is_main_process:
            _tell_rare_grades(data)
        splits = {
            name: load_split(
                data, name, plan.pixels, device=accelerator.device, cache=cache, progress=progress
            )
            for name in ("train", "val")
        }
        if accelerator.is_main_process:
            # Known by now: decoding has read them.
            files = data.split("train").image_paths
            # A run that goes on has learned from what lay there before, too.
            seen = {*read_trained_on(run), *content_digests(files, cache or default_cache_dir())}
            write_trained_on(run, seen)
        usual = arch == "tiny" and recipe == "default" and "epochs" not in (settings or {})
        note = length_note(len(splits["train"]), chosen) if usual else ""
        if note and accelerator.is_main_process:
            warnings.warn(note, stacklevel=2)
        perceptual = None
        if chosen.weight("perceptual") > 0:
            perceptual = LPIPS.pretrained().to(accelerator.device)
        guide, reader = ready_graders(
            config, chosen, splits["train"], run, accelerator, seed, progress
        )
        if guide is not None and accelerator.is_main_process:
            warn_if_weak(guide, splits["val"], seed, accelerator.device)
        training = build_training(
            config, chosen, splits["train"], seed=seed, device=accelerator.device,
            perceptual=perceptual, weights=weights, guide=guide, reader=reader,
        )  # fmt: skip
        run_training(
            training, splits["train"], splits["val"], run, accelerator, resume=resume,
            tensorboard=tensorboard, progress=progress,
        )  # fmt: skip
        return training.best


def _tell_rare_grades(data: "Manifest") -> None:
    """Warn of grades that the generator hardly sees or never does, as the training of graders."""
    from dismix.data.rare_grades import missing_grades, rare_note

    target, names = data.split("train").target(), data.meta.ranks
    if missing := missing_grades(target, names):
        warnings.warn(
            f"no training image has grade {missing}, so the generator never learns what it looks"
            " like",
            stacklevel=3,
        )
    if note := rare_note(target, names):
        warnings.warn(note, stacklevel=3)


def _finished(run: Path, recipe: Recipe) -> dict[str, float] | None:
    """Return what a run that is over had chosen, where its checkpoint was deleted, else None."""
    from dismix.generator.validation import chosen_by

    lines = read_metrics(run)
    over = bool(lines) and lines[-1]["epoch"] >= recipe.epochs
    if not over or (run / FILE).is_file() or not (run / WEIGHTS_FILE).is_file():
        return None
    judged = [m for m in lines if "score" in m and recipe.may_choose(int(m["epoch"]))]
    return chosen_by(max(judged, key=lambda m: m["score"])) if judged else None
