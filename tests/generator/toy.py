"""A toy training that takes a second: 24 grey pictures of 32 px, brighter with rank."""

from pathlib import Path
from typing import Any

import torch

from dismix.accelerators import make_accelerator
from dismix.generator.config import GeneratorConfig
from dismix.generator.images import SplitImages
from dismix.generator.recipe import Recipe
from dismix.generator.recipe_choice import choose_recipe
from dismix.generator.training import Training, build_training, run_training
from dismix.labels import OrdinalTarget
from dismix.progress import Progress

SMALL = {
    "epochs": 3, "batch_size": 8, "evaluate_every": 2, "strip_every": 0, "guide": 0,
    "control_share": 1.0, "adversary_steps": 1, "control": 0.5, "cycle_ordinal": 0.1,
    "discriminator_start": 0, "realism": 0.05, "similarity": 0.02, "cycle_nonordinal": 0.1,
    "rank_only": False, "freeze_trunk": False, "reversal_start": 0.0, "plain": 0, "mix": 0,
    "mix_realism": 0, "stay": 0, "augment": True, "mix_share": 1.0, "seen": 0,
    "nonordinal_codes": 32, "ordinal_codes": 16, "adversaries": "flatten",
}  # fmt: skip


def toy_split(count: int = 24, seed: int = 0) -> SplitImages:
    rng = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    noise = torch.randint(60, (count, 1, 32, 32), generator=rng)
    pixels = (noise + 60 * labels[:, None, None, None]).to(torch.uint8)
    return SplitImages(pixels, OrdinalTarget.from_labels(labels.tolist(), 3), False)


def toy_recipe(**settings: Any) -> Recipe:
    return choose_recipe("default", "tiny", {**SMALL, **settings})


def toy_training(recipe: Recipe, seed: int = 0, device: str = "cpu") -> Training:
    config = GeneratorConfig.from_dict(
        {**recipe.structure, "num_ranks": 3, "arch": "tiny", "image_size": 32}
    )
    where = torch.device(device)
    return build_training(config, recipe, toy_split(), seed=seed, device=where, perceptual=None)


def train_toy(
    run: Path, recipe: Recipe, *, resume: bool = False, progress: Progress | None = None
) -> Training:
    training = toy_training(recipe)
    run_training(
        training, toy_split(), toy_split(9, seed=1), run, make_accelerator(cpu=True),
        resume=resume, progress=progress,
    )  # fmt: skip
    return training


if __name__ == "__main__":
    import sys

    torch.set_num_threads(1)
    train_toy(Path(sys.argv[1]), toy_recipe(epochs=2, evaluate_every=9, clip=1.0))
