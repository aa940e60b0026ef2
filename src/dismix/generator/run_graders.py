"""The guide and the reader of a run: which ones it needs, trained once and kept in its folder."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from dismix.generator.config import GeneratorConfig
from dismix.generator.recipe import Recipe
from dismix.generator.run_file import GRADERS
from dismix.progress import Progress

if TYPE_CHECKING:
    from accelerate import Accelerator

    from dismix.generator.guide import Guide, GuideKind
    from dismix.generator.images import SplitImages


def guide_kind(recipe: Recipe) -> "GuideKind | None":
    """Return what the guide is, None where no term asks one."""
    asked = any(recipe.weight(term) > 0 for term in ("guide", "mix", "seen"))
    return recipe.guide_kind if asked else None


def reader_kind(recipe: Recipe, config: GeneratorConfig) -> "GuideKind | None":
    """Return what the reader is that the ordinal trunk starts from, None where it needs none.

    A small trunk starts from a small guide that sees what it sees; a large one's, or one that sees
    pictures blurred, tells it nothing.
    """
    trunk = config.ordinal_trunk
    if trunk == "none" or not recipe.guide_steps:
        return None
    apart = trunk == "lite0" or guide_kind(recipe) == "lite0" or recipe.guide_blur > 0
    return trunk if apart else None


def ready_graders(
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
        # A small reader beside a large guide learns at its own rate.
        lr = recipe.guide_lr if kind == recipe.guide_kind else 0.0
        blur = 0.0 if whole else recipe.guide_blur
        return trained_once(
            run / name,
            lambda: train_guide(
                train, accelerator.device, steps=recipe.guide_steps, kind=kind, whole=whole,
                blur=blur, lr=lr or None, seed=seed, progress=progress,
            ),
            lambda: Guide(config.num_ranks, kind, channels, whole=whole, blur=blur),
            accelerator,
        )  # fmt: skip

    guide = reader = None
    if (kind := guide_kind(recipe)) is not None:
        guide = ready(GRADERS[0], kind, False)
    if (read_by := reader_kind(recipe, config)) is not None:
        reader = ready(GRADERS[1], read_by, True)
    return guide, reader
