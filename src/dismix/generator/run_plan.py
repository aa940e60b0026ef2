"""What a run of a generator will be, settled and checked before anything is computed."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dismix.errors import DisMixError
from dismix.generator.architectures import ARCHITECTURES
from dismix.generator.config import GeneratorConfig
from dismix.generator.recipe import Recipe
from dismix.generator.recipe_choice import choose_recipe, fitted_guide
from dismix.generator.run_graders import guide_kind, reader_kind

if TYPE_CHECKING:
    from dismix.data.manifest import Manifest


@dataclasses.dataclass(frozen=True)
class RunPlan:
    """What a run will be, known before anything is computed.

    Attributes:
        data: The manifest.
        recipe: Settings.
        config: Structure.
        pixels: Side of its images.
        described: Both and where they come from, as ``run.json`` holds them.
    """

    data: "Manifest"
    recipe: Recipe
    config: GeneratorConfig
    pixels: int
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

    built = ARCHITECTURES[arch].resized(size)
    data, chosen = read_manifest(manifest), choose_recipe(recipe, arch, settings or {})
    _check_data(data)
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
        "config": config.to_dict(), "recipe": chosen.described(), "seed": seed,
        "manifest": str(manifest), "data": data.split("train", "val").fingerprint(),
        "ranks": [*data.meta.ranks],
        "weights": None if weights is None else Path(weights).name,
    }  # fmt: skip
    _check_discriminator(chosen, built.image_size)
    _check_trunk(chosen, config)
    _check_grid(config, built.latent_size)
    # Through JSON, so that tuples and lists compare equal.
    return RunPlan(data, chosen, config, built.image_size, json.loads(json.dumps(described)))


def _check_data(data: "Manifest") -> None:
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
    taught = "conv" in (guide_kind(recipe), reader_kind(recipe, config))
    if recipe.freeze_trunk and config.ordinal_trunk == "conv" and not taught:
        raise DisMixError(
            "a trunk that starts from nothing cannot stay frozen",
            column="freeze_trunk",
            cure="set it to false, or give 'guide', 'mix' or 'seen' a weight and guide_steps"
            " more than 0",
        )


def _check_grid(config: GeneratorConfig, cells: int) -> None:
    """Refuse ordinal codes that are finer than what the decoder reads."""
    if (config.ordinal_grid or 0) > cells:
        raise DisMixError(
            f"the decoder reads {cells} x {cells} cells and would pass over the others",
            column="ordinal_grid",
            cure=f"give {cells} or less, or a larger --size",
        )
