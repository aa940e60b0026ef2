"""A share of the replaced image laid over its mix, as in Mixup."""

from pathlib import Path

import pytest
import torch

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.dismix import DisMix
from dismix.mixing.dismix_draws import DisMixDraws, laid_over


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.rand(6, 1, 32, 32, generator=torch.Generator().manual_seed(4)) * 2 - 1
    return images, torch.arange(6) % 5


def test_pictures_and_labels_are_mixed_by_the_same_share() -> None:
    images, labels = batch()
    target = OrdinalTarget.from_labels(labels, 5)
    rows, own = torch.tensor([4, 1]), torch.tensor([0.25, 1.0])
    outside = torch.tensor([-1, -1])
    draws = DisMixDraws(rows, outside, own, rows > 9, outside, None, None, None, own)
    mixes, probs = torch.full((2, 1, 32, 32), 0.5), torch.tensor([[0, 0, 1.0, 0, 0]] * 2)
    pictures, laws = laid_over(images, target, draws, mixes, probs)
    torch.testing.assert_close(pictures[0], 0.25 * images[4] + 0.375)
    torch.testing.assert_close(pictures[1], images[1])
    torch.testing.assert_close(laws[0], torch.tensor([0, 0, 0.75, 0, 0.25]))
    torch.testing.assert_close(laws[1], target.probs[1])


@pytest.mark.parametrize("pool", [0, 12])
def test_a_blended_batch_lies_between_the_images_and_their_mixes(toy_run: Path, pool: int) -> None:
    images, labels = batch()
    options = {"p": 1.0, "turn": False, "seed": 5, "pool": pool}
    with DisMix.load(toy_run, **options, blend=0.6) as mix:
        made, laws, info = mix(images, labels, rows=torch.arange(6), return_info=True)
    assert (laws.sum(1) - 1).abs().max() < 1e-5
    own = info.lam if pool else None
    if own is not None:
        # Of the pool's mixes only the blend is the image's own.
        assert bool((own >= 0).all() and (own <= 0.6).all() and own.std() > 0.01)
        one_hot = torch.nn.functional.one_hot(labels, 5)
        assert bool(((laws - own[:, None] * one_hot) > -1e-5).all())
    # The mix itself, behind the share of the image, is a picture like any other.
    assert made.min() >= -1 - 1e-5
    assert made.max() <= 1 + 1e-5
    assert not torch.equal(made, images)


def test_lam_counts_the_share_that_lies_over_the_mix(toy_run: Path) -> None:
    mix = DisMix.load(toy_run, p=1.0, policies="ordinal_mix", blend=0.9)
    rows = torch.arange(6)
    target = OrdinalTarget.from_labels(mix.engine.store.target.hard[rows], 5)
    _, made, info = mix(batch()[0], target, rows=rows, return_info=True)
    # Partners are one rank away, so the label leaves the image's own by what is not its own.
    torch.testing.assert_close((made.rank - target.rank).abs(), 1 - info.lam)


def test_without_it_nothing_changes_to_the_bit(toy_run: Path) -> None:
    images, labels = batch()
    made = [
        DisMix.load(toy_run, p=1.0, seed=5, **options)(images, labels, rows=torch.arange(6))
        for options in ({}, {"blend": 0.0})
    ]
    assert torch.equal(made[0][0], made[1][0])
    assert torch.equal(made[0][1], made[1][1])


def test_what_is_no_share_is_refused(toy_run: Path) -> None:
    with pytest.raises(DisMixError, match=r"'blend': is 1\.5; give a share from 0 to 1"):
        DisMix.load(toy_run, blend=1.5)
