"""Every setting by name, with the type it needs."""

import dataclasses

import pytest
import torch

from dismix.bench.specs import short_id
from dismix.errors import DisMixError
from dismix.generator.config import GeneratorConfig
from dismix.generator.model import Generator
from dismix.generator.recipe import DEFAULT, LATER, PAPER, named_recipe
from dismix.generator.recipe_choice import choose_recipe
from dismix.generator.settings import with_settings
from dismix.generator.terms import PAPER_TERMS, TERMS


def test_none_is_a_word_where_it_is_a_choice() -> None:
    chosen = with_settings(DEFAULT, {"null_label": "none", "ordinal_grid": "none"}).structure
    assert chosen["null_label"] == "none"
    assert chosen["ordinal_grid"] is None


def test_text_becomes_what_the_field_is() -> None:
    recipe = with_settings(
        DEFAULT, {"epochs": "7", "lr": "1e-2", "revive": "off", "adversary": "reversal",
                  "cosine": "false", "code_dim": "8", "keep": "2.5"},
    )  # fmt: skip
    assert (recipe.epochs, recipe.lr, recipe.revive) == (7, 0.01, False)
    assert recipe.adversary == "reversal"
    assert (recipe.structure["cosine"], recipe.structure["code_dim"]) == (False, 8)
    assert recipe.weight("keep") == 2.5


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("epoch", "3", "did you mean 'epochs'"),
        ("epochs", "3.5", "not a whole number"),
        ("lr", "fast", "not a number"),
        ("revive", "maybe", "neither true nor false"),
        ("weights", "1", "unknown setting"),
        (
            "adversary",
            "confuson",
            "'confuson' is no choice; did you mean 'confusion'",
        ),
        ("schedule", "cosin", "did you mean 'cosine'"),
        ("discriminator_norm", "bach", "did you mean 'batch'"),
        ("guide_kind", "lite", "did you mean 'lite0'"),
        ("lr", "nan", "not a number"),
        ("epochs", "inf", "not a number"),
        ("ema", "2", "2 is no share; give 0 to 1"),
        ("plain", "-0.1", "is no share"),
        ("keep", "-5", "-5 is no weight; give 0 or more"),
        ("beta1", "1", "give less than 1"),
        ("clip", "-1", "-1 is no norm"),
        ("reversal", "-1", "setting 'reversal': is -1; give 0 or more"),
        ("lr_trunk", "-0.1", "'lr_trunk': is -0.1; give 0 or more"),
        ("guide_steps", "-5", "'guide_steps': is -5; give 0 or more"),
        ("perceptual_crop", "-8", "'perceptual_crop': is -8; give 0 or more"),
        ("lr", "-1", "give a number above 0"),
        ("discriminator_width", "0", "give a number above 0"),
        ("adversaries", "flatten+deeep", "unknown adversary 'deeep'"),
        ("quantize", "0.3", "did you mean 'quantize_ordinal'|'quantize_nonordinal'"),
        ("image_size", "32", "setting 'image_size': cannot be set; use --size"),
        ("arch", "tiny", "use --arch"),
        ("num_ranks", "3", "the manifest's ranks are taken"),
        ("in_channels", "1", "the manifest says whether images are grey"),
    ],
)
def test_mistakes_are_named(name: str, value: str, problem: str) -> None:
    with pytest.raises(DisMixError, match=problem) as caught:
        with_settings(DEFAULT, {name: value})
    assert caught.value.cure


def test_the_paper_is_the_paper() -> None:
    paper = named_recipe("paper")
    assert (paper.epochs, paper.batch_size, paper.lr) == (400, 11, 1e-5)
    assert paper.learned_weights
    assert paper.adversary == "reversal"
    assert {name for name in TERMS if paper.weight(name)} == set(PAPER_TERMS)
    config = GeneratorConfig.from_dict({**paper.structure, "num_ranks": 5})
    assert config.projections == "shared"
    assert not config.cosine
    with pytest.raises(DisMixError, match="unknown recipe"):
        named_recipe("papers")


def test_recipes_build_a_config_each() -> None:
    for name in ("paper", "default"):
        for arch in ("vq-f8", "light", "tiny"):
            structure = choose_recipe(name, arch, {}).structure
            config = GeneratorConfig.from_dict({**structure, "num_ranks": 5, "arch": arch})
            assert config.single_latent == (name == "paper")


def test_settings_leave_the_recipe_they_start_from() -> None:
    before = dataclasses.asdict(PAPER)
    with_settings(PAPER, {"similarity": 0, "projections": "two"})
    assert dataclasses.asdict(PAPER) == before


@pytest.mark.parametrize(("arch", "cells"), [("tiny", 8), ("light", 32), ("light-f16", 16)])
def test_the_spatial_code_has_a_place_for_every_cell(arch: str, cells: int) -> None:
    recipe = choose_recipe("spatial", arch, {"ordinal_trunk": "none"})
    assert recipe.weight("mix_keep") == 2
    assert recipe.epochs == choose_recipe("default", arch, {}).epochs
    config = GeneratorConfig.from_dict({**recipe.structure, "num_ranks": 3, "arch": arch})
    model = Generator.seeded(config, 0).eval()
    images = torch.zeros(1, model.in_channels, model.image_size, model.image_size)
    with torch.no_grad():
        assert model.latents(images).ordinal.shape[-1] == cells


@pytest.mark.parametrize(
    ("recipe", "arch", "known_as"),
    [
        ("default", "tiny", "e0d01d179ba9d24c"),
        ("spatial", "light", "b80bd08a6996bd0a"),
        ("default", "light-f16", "55add47d1f2d01fd"),
        ("paper", "vq-f8", "93a5f59990d1c6db"),
    ],
)
def test_runs_of_before_are_still_known(recipe: str, arch: str, known_as: str) -> None:
    # What runs and the benchmark's generators are named by: a new setting goes into `LATER`; where
    # a default itself changes, other numbers belong here.
    chosen = choose_recipe(recipe, arch, {})
    assert short_id(chosen.described()) == known_as
    assert dataclasses.asdict(chosen).keys() - chosen.described().keys() == LATER.keys()
    other = dataclasses.replace(chosen, guide_lr=1e-3, guide_blur=1.5)
    assert other.described() == {**dataclasses.asdict(chosen), "guide_lr": 1e-3, "guide_blur": 1.5}
