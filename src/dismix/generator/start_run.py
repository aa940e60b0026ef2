"""From a manifest and a few names to a trained generator in a run folder."""

import dataclasses
import json
import math
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from dismix.data.digest import content_digests
from dismix.data.store import default_cache_dir
from dismix.errors import DisMixError
from dismix.generator.architectures import ARCHITECTURES
from dismix.generator.config import GeneratorConfig
from dismix.generator.read_order import warn_if_weak
from dismix.generator.reading import reading_of
from dismix.generator.recipe import (
    DEFAULT,
    SPATIAL,
    SPATIAL_CODE,
    Recipe,
    named_recipe,
)
from dismix.generator.run_file import GRADERS, claim, take_graders
from dismix.generator.run_log import require_tensorboard
from dismix.generator.settings import with_settings
from dismix.generator.trained_on import read_trained_on, write_trained_on
from dismix.locks import in_use
from dismix.progress import Progress

if TYPE_CHECKING:
    from accelerate import Accelerator

    from dismix.data.manifest import Manifest
    from dismix.generator.guide import Guide, GuideKind
    from dismix.generator.images import SplitImages

#: What a 64 px run on a CPU changes: no VGG16, small critics, many steps of small batches (with
#: batches of 32 the same time gives a blurred joint space).
TINY = {
    "perceptual": 0, "epochs": 20, "plain": 0.5, "batch_size": 8, "lr": 1.5e-3, "lr_critic": 1e-3,
    "lr_adversary": 2e-3, "adversary_steps": 1, "ema": 0.99, "nonordinal_codes": 1024,
    "code_dim": 8, "discriminator_width": 16, "discriminator_layers": 2, "discriminator_start": 0,
    "evaluate_every": 10, "augment": "false", "jitter": 0, "ordinal_trunk": "conv",
    "freeze_trunk": "true", "rank_only": "true", "guide_kind": "conv", "guide_steps": 500,
    "conditional": "false", "control_share": 0.5, "mix_share": 0.5, "reconstruct": 20,
    "seen": 0.2, "realism": 0, "rank_ordinal": 0.1, "rank_unlabelled": 0.1, "rank_nonordinal": 0.5,
    "reversal_start": 0.2, "similarity": 0, "guide": 0.12, "mix": 0.3, "control_realism": 0.1,
    "mix_realism": 0.1, "stay": 0.5, "keep": 0, "cycle_nonordinal": 0,
}  # fmt: skip

#: A code of a coarser grid has more to say at each place.
COARSE = {"code_dim": 8}

#: Steps of `TINY` on the phantoms its length was chosen on, 1000 images. With a fifth of them
#: decoded pictures do not follow the asked rank.
TINY_STEPS = 2500

#: Steps of a guide, as a multiple of the generator's, beyond which a trial is all guide; and what
#: it takes at least.
GUIDE_TIMES, LEAST_GUIDE = 4, 20


def choose_recipe(name: str, arch: str, settings: Mapping[str, Any]) -> Recipe:
    """Return a named recipe, fitted to small architectures, with the user's settings.

    Example:
        >>> choose_recipe("default", "tiny", {"epochs": 3}).epochs
        3
    """
    recipe = named_recipe(name)
    if arch == "tiny" and name != "paper":
        recipe = with_settings(DEFAULT, TINY)
        if name == "spatial":
            recipe = with_settings(recipe, {**SPATIAL_CODE, "mix_keep": SPATIAL.weight("mix_keep")})
    elif ARCHITECTURES[arch].neck and name != "paper":
        recipe = with_settings(recipe, COARSE)
    return with_settings(recipe, settings)


@dataclasses.dataclass(frozen=True)
class RunPlan:
    """What a run will be, known before anything is computed.

    Attributes:
        data: The manifest.
        recipe: Settings.
        config: Structure.
        described: Both and where they come from, as ``run.json`` holds them.
    """

    data: "Manifest"
    recipe: Recipe
    config: GeneratorConfig
    described: dict[str, Any]


def plan_run(
    manifest: str | Path,
    *,
    arch: str = "light",
    recipe: str = "default",
    settings: Mapping[str, Any] | None = None,
    size: int | None = None,
    weights: str | Path | None = None,
    seed: int = 0,
) -> RunPlan:
    """Read the manifest and settle recipe and structure; arguments as for `train_generator`."""
    from dismix.data.manifest import read_manifest

    data, chosen = read_manifest(manifest), choose_recipe(recipe, arch, settings or {})
    _check_plan(data)
    cells = ARCHITECTURES[arch].resized(size).latent_size
    if "guide_steps" not in (settings or {}):
        chosen = fitted_guide(len(data.split("train")), chosen)
    config = GeneratorConfig.from_dict(
        {
            **chosen.structure,
            "num_ranks": data.num_ranks,
            "arch": arch,
            "image_size": size,
            "in_channels": 1 if data.meta.grey else 3,
        }
    )
    described = {
        "config": config.to_dict(), "recipe": dataclasses.asdict(chosen), "seed": seed,
        "manifest": str(manifest), "data": data.split("train", "val").fingerprint(),
        "ranks": [*data.meta.ranks],
        "weights": None if weights is None else Path(weights).name,
    }  # fmt: skip
    _check_discriminator(chosen, _pixels(config))
    _check_trunk(chosen, config)
    if (config.ordinal_grid or 0) > cells:
        raise DisMixError(
            f"the decoder reads {cells} x {cells} cells and would pass over the others",
            column="ordinal_grid",
            cure=f"give {cells} or less, or a larger --size",
        )
    # Through JSON, so that tuples and lists compare equal.
    return RunPlan(data, chosen, config, json.loads(json.dumps(described)))


def fitted_guide(images: int, recipe: Recipe) -> Recipe:
    """Return a recipe whose guide is not trained for many times as long as the generator itself.

    Args:
        images: Training images.
        recipe: Its steps of the guide not chosen by the user.

    Example:
        >>> tiny = choose_recipe("default", "tiny", {})
        >>> fitted_guide(1000, tiny).guide_steps
        500
        >>> fitted_guide(24, choose_recipe("default", "tiny", {"epochs": 3})).guide_steps
        36
    """
    steps = recipe.epochs * max(1, images // recipe.batch_size)
    most = max(LEAST_GUIDE, GUIDE_TIMES * steps)
    return dataclasses.replace(recipe, guide_steps=min(recipe.guide_steps, most))


def length_note(images: int, recipe: Recipe) -> str:
    """Return what to do about a usual length that is short for so few images, else nothing.

    Args:
        images: Training images.
        recipe: Of the architecture "tiny", its epochs not chosen by the user.

    Example:
        >>> length_note(136, choose_recipe("default", "tiny", {}))
        '20 epochs of 136 images are 340 steps, and it takes about 2500; add --epochs 148'
        >>> length_note(1000, choose_recipe("default", "tiny", {}))
        ''
    """
    steps_an_epoch = max(1, images // recipe.batch_size)
    steps = recipe.epochs * steps_an_epoch
    if steps > TINY_STEPS / 2:
        return ""
    return (
        f"{recipe.epochs} epochs of {images} images are {steps} steps, and it takes about "
        f"{TINY_STEPS}; add --epochs {math.ceil(TINY_STEPS / steps_an_epoch)}"
    )


def _check_plan(data: "Manifest") -> None:
    """Refuse what could only end badly, before anything is computed."""
    from dismix.generator.images import require_images

    train, _ = (require_images(data, split) for split in ("train", "val"))
    shown = set(train.target().hard.tolist())
    if len(shown) == 1:
        raise DisMixError(
            f"all training images have grade {shown.pop()}: there is no order to learn",
            file=data.path,
            cure="give images of at least two grades",
        )


def _check_discriminator(recipe: Recipe, pixels: int) -> None:
    """Refuse one that halves a picture until nothing is left for its last convolutions."""
    layers = recipe.discriminator_layers
    if pixels >> layers < 3:
        raise DisMixError(
            f"{layers} layers leave nothing of {pixels} pixels",
            column="discriminator_layers",
            cure="give fewer, or a larger --size",
        )


def _check_trunk(recipe: Recipe, config: GeneratorConfig) -> None:
    """Refuse a trunk that is to stay as it began where nothing has taught it."""
    taught = "conv" in (_guide_kind(recipe), _reader_kind(recipe, config))
    if recipe.freeze_trunk and config.ordinal_trunk == "conv" and not taught:
        raise DisMixError(
            "a trunk that starts from nothing cannot stay frozen",
            column="freeze_trunk",
            cure="set it to false, or give 'guide', 'mix' or 'seen' a weight and guide_steps"
            " more than 0",
        )


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
    from dismix.generator.images import load_split
    from dismix.generator.perceptual import LPIPS, require_lpips
    from dismix.generator.training import build_training, make_accelerator, run_training
    from dismix.generator.trunk import LITE0_WEIGHTS
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
    if not resume and "lite0" in (config.ordinal_trunk, _guide_kind(chosen)):
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
        pixels = _pixels(config)
        splits = {
            name: load_split(
                data, name, pixels, device=accelerator.device, cache=cache, progress=progress
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
        guide, reader = _graders(config, chosen, splits["train"], run, accelerator, seed, progress)
        if guide is not None and accelerator.is_main_process:
            warn_if_weak(guide, splits["val"], accelerator.device)
        training = build_training(
            config, chosen, splits["train"], seed=seed, device=accelerator.device,
            perceptual=perceptual, weights=weights, guide=guide, reader=reader,
        )  # fmt: skip
        run_training(
            training, splits["train"], splits["val"], run, accelerator, resume=resume,
            tensorboard=tensorboard, progress=progress,
        )  # fmt: skip
        return training.best


def _graders(
    config: GeneratorConfig,
    recipe: Recipe,
    train: "SplitImages",
    run: Path,
    accelerator: "Accelerator",
    seed: int,
    progress: Progress | None,
) -> "tuple[Guide | None, Guide | None]":
    """Return the guide and the reader that the ordinal trunk starts from, as far as asked for."""
    from dismix.generator.guide import Guide, train_guide
    from dismix.generator.processes import trained_once

    channels = train.images(torch.zeros(1, dtype=torch.long), "cpu").shape[1]

    def ready(name: str, kind: "GuideKind", whole: bool) -> Guide:
        return trained_once(
            run / name,
            lambda: train_guide(
                train, accelerator.device, steps=recipe.guide_steps, kind=kind, whole=whole,
                seed=seed, progress=progress,
            ),
            lambda: Guide(config.num_ranks, kind, channels, whole=whole),
            accelerator,
        )  # fmt: skip

    guide = reader = None
    if (kind := _guide_kind(recipe)) is not None:
        guide = ready(GRADERS[0], kind, False)
    if (read_by := _reader_kind(recipe, config)) is not None:
        reader = ready(GRADERS[1], read_by, True)
    return guide, reader


def _guide_kind(recipe: Recipe) -> "GuideKind | None":
    """Return what the guide is, None where no term asks one."""
    asked = any(recipe.weight(term) > 0 for term in ("guide", "mix", "seen"))
    return recipe.guide_kind if asked else None


def _reader_kind(recipe: Recipe, config: GeneratorConfig) -> "GuideKind | None":
    """Return what the reader is that the ordinal trunk starts from, None where it needs none.

    A small trunk starts from a small guide; a large one's tells it nothing.
    """
    trunk = config.ordinal_trunk
    if trunk == "none" or not recipe.guide_steps:
        return None
    return trunk if trunk == "lite0" or _guide_kind(recipe) == "lite0" else None


def _pixels(config: GeneratorConfig) -> int:
    from dismix.generator.architectures import ARCHITECTURES

    return config.image_size or ARCHITECTURES[config.arch].image_size
