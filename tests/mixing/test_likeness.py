"""Partners that look alike."""

from pathlib import Path

import pytest
import torch

from dismix.errors import DisMixError
from dismix.mixing.dismix import DisMix
from dismix.mixing.engine import MixEngine
from dismix.mixing.likeness import _GOLDEN, Likeness, alike_partners, layout_of
from dismix.mixing.maker import MixMaker, MixSettings
from dismix.mixing.partner_index import PartnerIndex


def test_the_nearest_of_those_drawn_is_taken_against_a_loop() -> None:
    rng = torch.Generator().manual_seed(0)
    ranks = torch.randint(4, (80,), generator=rng)
    layouts, index = torch.rand(80, 6, generator=rng), PartnerIndex(ranks, 4)
    rows = torch.randint(80, (50,), generator=rng)
    uniform = torch.rand(50, generator=rng, dtype=torch.float64)
    first, _ = index.choose(ranks[rows], uniform, rows)
    found = alike_partners(index, first, rows, Likeness(layouts), 5)
    for b in range(50):
        same = torch.nonzero(ranks == ranks[first[b]]).flatten().tolist()
        start, count = same.index(int(first[b])), len(same)
        steps = [int((step * _GOLDEN) % 1 * count) for step in range(5)]
        drawn = [same[(start + step) % count] for step in steps]
        best = min(drawn, key=lambda row: float((layouts[row] - layouts[rows[b]]).square().sum()))
        assert int(found[b]) == best
    assert torch.equal(ranks[found], ranks[first])
    assert not torch.equal(found, first)


def test_unknown_anchors_keep_their_first_partner() -> None:
    index = PartnerIndex(torch.tensor([0, 0, 1, 1, 1]), 2)
    ranks, rows = torch.tensor([0, 0]), torch.tensor([-1, 1])
    likeness = Likeness(torch.tensor([[0.0], [9.0], [0.0], [1.0], [9.0]]))
    first, _ = index.choose(ranks, torch.tensor([0.0, 0.0]), rows)
    assert first.tolist() == [2, 2]
    assert alike_partners(index, first, rows, likeness, 8).tolist() == [2, 4]


def test_an_anchor_is_never_its_own_partner() -> None:
    index = PartnerIndex(torch.tensor([0, 0, 0, 2]), 3)
    likeness, rows = Likeness(torch.tensor([[0.0], [5.0], [6.0], [0.0]])), torch.tensor([0, 0, 0])
    first, adjacent = index.choose(torch.zeros(3, dtype=torch.long), torch.rand(3), rows)
    assert not adjacent.any()
    assert alike_partners(index, first, rows, likeness, 9).tolist() == [1, 1, 1]


def test_all_else_of_a_mix_stays_and_partners_come_nearer(toy_run: Path) -> None:
    engine = MixEngine.load(toy_run)
    any_, near = (MixMaker(engine, MixSettings(alike=count)) for count in (1, 6))
    before, after = any_.draw(64, [1]), near.draw(64, [1])
    for name in ("policy", "lam", "from_partner", "asked", "adjacent"):
        assert torch.equal(getattr(before.choices, name), getattr(after.choices, name))
    assert torch.equal(before.anchor, after.anchor)
    assert torch.equal(any_.ranks[before.choices.partner], any_.ranks[after.choices.partner])
    away = [
        engine.likeness.away(made.anchor, made.choices.partner).mean() for made in (before, after)
    ]
    assert away[1] < 0.9 * away[0]
    # The same draws whatever the number of mixes.
    assert torch.equal(near.draw(8, [1]).choices.partner, after.choices.partner[:8])


def test_the_mixer_takes_it(toy_run: Path) -> None:
    with DisMix.load(toy_run, alike=4, pool=8, p=1.0, seed=0) as mix:
        assert mix.maker.settings.alike == 4
        assert torch.equal(mix.pool_block(2, 0).images, mix.pool_block(2, 0).images)
    with pytest.raises(DisMixError, match="alike is 0"):
        DisMix.load(toy_run, alike=0)


def test_a_layout_does_not_depend_on_tone() -> None:
    codes = torch.rand(3, 4, 16, 16)
    moved = codes + torch.rand(3, 4, 1, 1)
    assert torch.allclose(layout_of(codes), layout_of(moved), atol=1e-5)
    assert not torch.allclose(layout_of(codes), layout_of(codes.flip(3)), atol=1e-2)
