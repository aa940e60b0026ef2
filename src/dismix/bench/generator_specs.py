"""Generators that runs share: what they depend on, and whether a given one may be used."""

import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dismix.bench.specs import DataSpec, GeneratorSpec, short_id
from dismix.data.digest import file_digest
from dismix.errors import DisMixError
from dismix.generator.ablations import list_ablations
from dismix.generator.config import GeneratorConfig
from dismix.generator.model import WEIGHTS_FILE, Generator
from dismix.generator.pretrained import PRETRAINED
from dismix.generator.recipe_choice import choose_recipe
from dismix.generator.weights import find_weights, how_to_get
from dismix.registry import near_names


def generator_spec(section: Mapping[str, Any], ablation: str, data: DataSpec) -> GeneratorSpec:
    """Return the generator that a plan trains on some derived data.

    Args:
        section: The plan's ``generator``.
        ablation: Name in `list_ablations`; "full" changes nothing.
        data: Derived data; the test rows have no part in it.
    """
    arch, recipe = section.get("arch", "light"), section.get("recipe", "default")
    settings = dict(section.get("settings", {}))
    known = list_ablations(choose_recipe(recipe, arch, settings))
    if ablation not in known:
        raise DisMixError(
            f"unknown ablation '{ablation}'", column="ablation", cure=near_names(ablation, [*known])
        )
    settings |= known[ablation].settings
    # Validated once, at the end, so that its checkpoint is the last one: the validation images,
    # which choose the graders' checkpoints, then choose nothing in the generator.
    settings.setdefault("evaluate_every", choose_recipe(recipe, arch, settings).epochs)
    chosen = choose_recipe(recipe, arch, settings)
    config = GeneratorConfig.from_dict(
        {
            **chosen.structure,
            "num_ranks": len(data.ranks),
            "arch": arch,
            "image_size": section.get("size"),
            "in_channels": 1 if data.grey else 3,
        }
    )
    weights, blocked = _weights(section.get("weights"), arch)
    described = {
        "config": config.to_dict(), "recipe": chosen.described(),
        "seed": int(section.get("seed", 0)),
        "weights": None if weights is None else file_digest(weights),
    }  # fmt: skip
    described = json.loads(json.dumps(described))
    local = {
        "arch": arch, "recipe": recipe, "settings": settings, "size": section.get("size"),
        "seed": described["seed"], "weights": None if weights is None else str(weights),
        "blocked": blocked,
    }  # fmt: skip
    name = short_id({"generator": described, "data": data.training})
    return GeneratorSpec(name, data.key, described, local, chosen.epochs * data.counts["train"])


def _weights(wanted: Any, arch: str) -> tuple[Path | None, str | None]:
    """Return the file of a pretrained autoencoder, and why there is none where that stops a run.

    Args:
        wanted: A path, a name of the weight folders, "auto" for the published file of the
            architecture where it is there, or None.
        arch: Of the generator.
    """
    if wanted in (None, "none"):
        return None, None
    if wanted == "auto":
        return (find_weights(PRETRAINED[arch]) if arch in PRETRAINED else None), None
    path = Path(str(wanted))
    found = path if path.is_file() else find_weights(str(wanted))
    if found is None:
        return None, f"no weights '{wanted}' found; set DISMIX_WEIGHTS to their folder"
    return found, None


def from_nothing(generators: Iterable[GeneratorSpec]) -> list[str]:
    """Return a line for each architecture that starts from nothing though it need not.

    Args:
        generators: Of a study.
    """
    found = sorted(
        {
            spec.local["arch"]
            for spec in generators
            if "given" not in spec.local and spec.local["weights"] is None
        }
        & {*PRETRAINED}
    )
    return [
        f"generators of '{arch}' start from nothing; to start from published weights "
        f"{how_to_get(PRETRAINED[arch])}, and leave generator.weights at 'auto'"
        for arch in found
    ]


def given_generator(run: Path, data: DataSpec) -> GeneratorSpec:
    """Return a generator that the user trained, named by its weights' content.

    Args:
        run: Its run folder.
        data: Derived data to mix.

    Raises:
        DisMixError: Another number of ranks.
    """
    weights = run / WEIGHTS_FILE
    if not weights.is_file():
        raise DisMixError(
            "no trained generator here", file=run, cure="train one with `dismix generator train`"
        )
    digest, ranks = _read(str(run), weights.stat().st_mtime_ns)
    if ranks != len(data.ranks):
        raise DisMixError(
            f"grades {ranks} ranks, '{data.name}' has {len(data.ranks)}",
            file=run,
            cure="give a generator trained on these data",
        )
    described = {"given": digest}
    return GeneratorSpec(
        short_id({"given": digest, "data": data.training}), data.key, described, {"given": str(run)}
    )


@functools.cache
def _read(run: str, changed: int) -> tuple[str, int]:
    from dismix.mixing.encoding import generator_digest

    model = Generator.load(run)
    return generator_digest(model), model.config.num_ranks
