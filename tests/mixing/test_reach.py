"""Mixes that stay near their anchor."""

from pathlib import Path

import pytest
import torch
from tests.mixing.toy_run import make_run

from dismix.errors import DisMixError
from dismix.mixing.dismix import DisMix
from dismix.mixing.encoding import encode_split
from dismix.mixing.engine import MixEngine
from dismix.mixing.maker import MixMaker, MixSettings
from dismix.mixing.partner_index import PartnerIndex
from dismix.mixing.policy_draws import ORDER_SWAP, draw_numbers, policy_draws

GREY_LEVEL = 2 / 255


def test_lam_is_squeezed_towards_the_anchor_and_all_else_is_its_own() -> None:
    index = PartnerIndex(torch.arange(40) % 5, 5)
    numbers = draw_numbers(4000, torch.Generator().manual_seed(3))
    ranks = torch.arange(4000) % 5
    full = policy_draws(numbers, ranks, index)
    near = policy_draws(numbers, ranks, index, reach=0.25)
    for lam, drawn in zip(near.lam.tolist(), full.lam.tolist(), strict=True):
        assert lam == pytest.approx(1 - 0.25 * (1 - drawn), abs=2e-4)
    assert near.lam.min() >= 0.75 - 1e-6
    swaps = near.policy == ORDER_SWAP
    assert not near.from_partner[~swaps].any()
    # A swap has no lam to be squeezed.
    assert torch.equal(near.from_partner[swaps], full.from_partner[swaps])
    for name in ("policy", "partner", "asked", "adjacent"):
        assert torch.equal(getattr(near, name), getattr(full, name))


def test_a_reach_of_one_is_the_paper_to_the_bit() -> None:
    index = PartnerIndex(torch.arange(40) % 5, 5)
    numbers, ranks = draw_numbers(500, torch.Generator().manual_seed(1)), torch.arange(500) % 5
    full, asked = (policy_draws(numbers, ranks, index, **o) for o in ({}, {"reach": 1.0}))
    assert torch.equal(full.lam, asked.lam)
    assert torch.equal(full.from_partner, asked.from_partner)
    assert full.from_partner.any()


def test_with_all_detail_and_hardly_any_reach_a_mix_is_its_anchor(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    encode_split(run, details=True, cache=tmp_path / "cache")
    engine = MixEngine.load(run)
    interpolated = ("ordinal_mix", "nonordinal_mix")
    away = {}
    for reach in (1e-3, 0.5, 1.0):
        settings = MixSettings(interpolated, labels="votes", detail=1.0, reach=reach)
        maker = MixMaker(engine, settings)
        mixes = maker.draw(24, [5])
        # An image with its own detail: what its codes decode to, and what they leave out.
        own = engine.stored(mixes.anchor, detail=True)
        assert own.detail is not None
        image = (engine.decode(own.codes) + own.detail).clamp(-1, 1)
        shown = maker.pictures(mixes).float() / 127.5 - 1
        away[reach] = float((shown - image).abs().mean())
        law = engine.store.target[mixes.anchor].probs
        assert float((maker.targets(mixes).probs - law).abs().max()) <= reach + 1e-6
    assert away[1e-3] < GREY_LEVEL
    assert away[1e-3] < 0.5 * away[0.5] < 0.5 * away[1.0]


def test_the_mixer_takes_it(toy_run: Path) -> None:
    with DisMix.load(toy_run, reach=0.5, pool=8, p=1.0, seed=0) as mix:
        assert mix.maker.settings.reach == 0.5
        assert torch.equal(mix.pool_block(2, 0).images, mix.pool_block(2, 0).images)
    for wrong in (0.0, 1.5, float("nan")):
        with pytest.raises(DisMixError, match="reach is"):
            DisMix.load(toy_run, reach=wrong)
