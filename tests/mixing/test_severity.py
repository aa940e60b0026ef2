"""Mixes whose sources show what is read in them instead of what their labels say."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.mixing.test_dismix import batch
from tests.mixing.toy_run import make_run, toy_generator
from torch import Tensor

from dismix.errors import DisMixError
from dismix.generator.codes import Codes
from dismix.generator.model import Generator
from dismix.labels import OrdinalTarget
from dismix.laws import levels_of_ranks
from dismix.mixing.details import DETAILS
from dismix.mixing.dismix import DisMix
from dismix.mixing.encoding import encode_split
from dismix.mixing.engine import MixEngine
from dismix.mixing.maker import MixMaker, MixSettings
from dismix.mixing.policy_draws import (
    GENERATE_AND_MIX,
    NONORDINAL_MIX,
    ORDER_SWAP,
    ORDINAL_MIX,
)

FORMS = {
    "rank_only": {"rank_only": True, "null_label": "predicted", "ordinal_grid": 2},
    "cells": {"null_label": "predicted", "ordinal_grid": 4},
    "learned": {"null_label": "learned"},
}


@pytest.fixture(scope="module", params=FORMS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("severity")
    model = toy_generator(**FORMS[request.param])
    if (gate := model.quantize_ordinal.condition).predict is not None:
        # Untrained, it would read next to the same in all images.
        with torch.no_grad():
            gate.predict.weight.mul_(8)
    made = make_run(folder, model)
    encode_split(made, cache=folder / "cache")
    return made


def drawn(maker: MixMaker, policy: int, lam: float) -> Tensor:
    """Return mixes of stored images by one policy, with one lam."""
    mixes = maker.draw(6, [3])
    choices = replace(
        mixes.choices, policy=torch.full((6,), policy), lam=torch.full((6,), lam),
        from_partner=torch.zeros(6, dtype=torch.bool),
    )  # fmt: skip
    return maker.pictures(replace(mixes, choices=choices)).float() / 127.5 - 1


def read_in(model: Generator, images: Tensor) -> Tensor:
    """Return the levels read in images, one after the other, from the parts of the network."""
    rows = []
    for image in images:
        z = model.latents(image[None]).ordinal
        assert model.quantize_ordinal is not None
        gate = model.quantize_ordinal.condition
        assert gate is not None
        if gate.predict is None:
            codes = model.quantize_ordinal(z).codes
            logits = model.ordinal_classifier(codes)
        else:
            logits = F.linear(z.mean((2, 3)), gate.predict.weight, gate.predict.bias)
        rows.append(1 / (1 + (-logits).exp()))
    return torch.cat(rows)


def asked_for(model: Generator, images: Tensor, levels: Tensor) -> Tensor:
    """Return images decoded with ordinal codes of given levels (B, C-1)."""
    latents = model.latents(images)
    ordinal, nonordinal = model.quantized(latents, levels)
    return model.decode(Codes(ordinal.codes, nonordinal.codes)).clamp(-1, 1)


@torch.no_grad()
def test_readings_are_stored(run: Path) -> None:
    engine = MixEngine.load(run)
    images, target, _ = batch(run, 12)
    rows = torch.arange(12)
    own = read_in(engine.model, images)
    assert own.std() > 0.01
    torch.testing.assert_close(engine.stored(rows).read, own, atol=2e-3, rtol=0)
    fresh = engine.encode(images, target, severity="image")
    torch.testing.assert_close(fresh.read, engine.stored(rows).read, atol=1e-3, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("policy", [ORDINAL_MIX, NONORDINAL_MIX, GENERATE_AND_MIX])
def test_all_of_the_anchor_shows_what_is_read_in_it(run: Path, policy: int) -> None:
    maker = MixMaker(MixEngine.load(run), MixSettings(severity="image"))
    images, target, _ = batch(run, 30)
    anchor = maker.draw(6, [3]).anchor
    made = drawn(maker, policy, 1.0)
    model = maker.engine.model
    wanted = asked_for(model, images[anchor], maker.engine.stored(anchor).read)
    called = asked_for(model, images[anchor], target.levels[anchor])
    torch.testing.assert_close(made, wanted, atol=0.02, rtol=0)
    assert (wanted - called).abs().max() > 0.02


@torch.no_grad()
def test_an_asked_rank_is_reached_from_the_reading(run: Path) -> None:
    maker = MixMaker(MixEngine.load(run), MixSettings(severity="image"))
    images, target, _ = batch(run, 30)
    mixes = maker.draw(6, [3])
    read = maker.engine.stored(mixes.anchor).read.sum(1)
    steps = mixes.choices.asked - target.hard[mixes.anchor]
    assert set(steps.abs().tolist()) == {1}
    shown = [min(max(r + s, 0.0), 4.0) for r, s in zip(read.tolist(), steps.tolist(), strict=True)]
    levels = OrdinalTarget.from_rank(torch.tensor(shown), 5).levels
    wanted = asked_for(maker.engine.model, images[mixes.anchor], levels)
    if maker.engine.model.config.rank_only:
        # The picture's own code is known without looking at it.
        torch.testing.assert_close(drawn(maker, GENERATE_AND_MIX, 0.0), wanted, atol=0.02, rtol=0)
    label = drawn(MixMaker(maker.engine, MixSettings()), GENERATE_AND_MIX, 0.0)
    assert (label - drawn(maker, GENERATE_AND_MIX, 0.0)).abs().max() > 0.02


@torch.no_grad()
def test_a_swap_brings_what_is_read_in_the_partner(run: Path) -> None:
    maker = MixMaker(MixEngine.load(run), MixSettings(severity="image"))
    images, _, _ = batch(run, 30)
    mixes, model = maker.draw(6, [3]), maker.engine.model
    partner = maker.engine.stored(mixes.choices.partner, severity="image").codes
    own = model.latents(images[mixes.anchor])
    wanted = model.decode(Codes(partner.ordinal, model.quantize(own.nonordinal).codes)).clamp(-1, 1)
    swapped = replace(
        mixes, choices=replace(
            mixes.choices, policy=torch.full((6,), ORDER_SWAP),
            from_partner=torch.ones(6, dtype=torch.bool),
        ),
    )  # fmt: skip
    made = maker.pictures(swapped).float() / 127.5 - 1
    torch.testing.assert_close(made, wanted, atol=0.02, rtol=0)


def test_labels_and_choices_are_those_of_the_paper(run: Path) -> None:
    engine = MixEngine.load(run)
    ours, papers = (MixMaker(engine, MixSettings(severity=s)) for s in ("image", "label"))
    one, other = ours.draw(20, [1]), papers.draw(20, [1])
    assert torch.equal(one.anchor, other.anchor)
    assert torch.equal(ours.targets(one).probs, papers.targets(other).probs)


@pytest.mark.parametrize("labels", ["majority", "votes"])
def test_stored_and_fresh_anchors_give_the_same_mixes(run: Path, labels: str) -> None:
    images, target, rows = batch(run, 12)
    made = [
        DisMix.load(run, p=1.0, seed=7, turn=False, severity="image", labels=labels)(
            images, target, rows=given
        )[0]
        for given in (rows, None)
    ]
    torch.testing.assert_close(made[0], made[1], atol=0.05, rtol=0)


def test_detail_is_what_those_codes_leave_out(run: Path, tmp_path: Path) -> None:
    with pytest.raises(DisMixError, match="--details --severity image"):
        DisMix.load(run, severity="image", detail=1.0)
    store = encode_split(run, details=True, severity="image", cache=tmp_path)
    assert {file.name for file in store.folder.glob("details*")} == {DETAILS["image"]}
    maker = MixMaker(MixEngine.load(run), MixSettings(severity="image", detail=1.0))
    images, _, _ = batch(run, 30)
    own = images[maker.draw(6, [3]).anchor]
    plain = drawn(MixMaker(maker.engine, MixSettings(severity="image")), NONORDINAL_MIX, 1.0)
    told = (plain - own).abs() < 126 * 2 / 255
    made = drawn(maker, NONORDINAL_MIX, 1.0)
    assert (made - own).abs()[told].max() < 0.03


def test_levels_are_those_of_the_two_point_law() -> None:
    ranks = torch.linspace(0, 4, 33)
    found = levels_of_ranks(ranks, 5)
    torch.testing.assert_close(found, OrdinalTarget.from_rank(ranks, 5).levels)
    assert torch.equal(
        levels_of_ranks(torch.arange(5), 5), OrdinalTarget.from_labels(torch.arange(5), 5).levels
    )


def test_unknown_severity_is_refused(run: Path) -> None:
    with pytest.raises(DisMixError, match="unknown severity 'images'; choose label or image"):
        DisMix.load(run, severity="images")
