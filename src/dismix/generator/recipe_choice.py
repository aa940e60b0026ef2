"""A named recipe, fitted to the architecture and to how many images there are."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from dismix.generator.architectures import ARCHITECTURES
from dismix.generator.recipe import DEFAULT, SPATIAL, SPATIAL_CODE, Recipe, named_recipe
from dismix.generator.settings import with_settings

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

#: Steps of `TINY` on the phantoms its length was chosen on, 1000 images. With far fewer
#: decoded pictures may not follow the asked rank.
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
