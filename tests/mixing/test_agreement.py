"""Mixes chosen by what a judge reads."""

import shutil
from pathlib import Path

import pytest
import torch

from dismix.bench.resolve import _pathless
from dismix.errors import DisMixError
from dismix.generator.judge import Judge
from dismix.labels import OrdinalTarget
from dismix.mixing.agreement import Agreement, nearest_within
from dismix.mixing.dismix import DisMix


class Bright(Judge):
    """Reads the mean brightness as the rank."""

    def __init__(self, num_ranks: int = 5) -> None:
        super().__init__(num_ranks, "conv")

    def probabilities(self, images: torch.Tensor) -> torch.Tensor:
        rank = (images.mean(dim=(1, 2, 3)) + 1) / 2 * (self.num_ranks - 1)
        return OrdinalTarget.from_rank(rank.clamp(0, self.num_ranks - 1), self.num_ranks).probs


def test_the_nearest_of_every_rank_are_kept() -> None:
    # Rank 0 is read well, rank 4 badly: both stay as frequent as they were.
    shades = torch.tensor([0, 5, 20, 60, 120, 130, 190, 100], dtype=torch.uint8)
    images = shades.view(8, 1, 1, 1).expand(-1, 1, 32, 32)
    target = OrdinalTarget.from_labels([0, 0, 0, 0, 4, 4, 4, 4], 5)
    chooser = Agreement(Bright(), 0.5)
    assert chooser.best(chooser.read(images), target, 4).tolist() == [0, 1, 5, 6]


def test_nearest_within_against_a_loop() -> None:
    rng = torch.Generator().manual_seed(0)
    away, groups = torch.rand(60, generator=rng), torch.randint(3, (60,), generator=rng)
    found = nearest_within(away, groups, 30)
    assert found.tolist() == sorted(set(found.tolist()))
    assert len(found) == 30
    for group in range(3):
        rows = [i for i in range(60) if groups[i] == group]
        kept = [i for i in rows if i in found.tolist()]
        assert abs(len(kept) - len(rows) / 2) <= 1
        worst = max(float(away[i]) for i in kept)
        assert all(float(away[i]) >= worst for i in rows if i not in kept)


def test_a_pool_keeps_what_its_judge_agrees_with(toy_run: Path) -> None:
    options = {"pool": 8, "p": 1.0, "seed": 0, "labels": "votes"}
    with (
        DisMix.load(toy_run, **options) as plain,
        DisMix.load(toy_run, keep=0.25, judge=Bright(), **options) as choosing,
    ):
        chosen, judge = choosing.pool_block(3, 0), Bright()
        every = plain.maker.draw(32, [3, 0, 1])
        pictures, target = plain.maker.pictures(every), plain.maker.targets(every)
        chooser = Agreement(judge, 0.25)
        rows = chooser.best(chooser.read(pictures), target, 8)
        assert torch.equal(chosen.images, pictures[rows])
        assert torch.allclose(chosen.probs, target.probs[rows])
        assert len(chosen) == len(plain.pool_block(3, 0)) == 8
        # The judge is no part of what is saved with a training.
        assert set(choosing.state_dict()) == set(plain.state_dict())


@pytest.mark.parametrize("keep", [1.0, 0.5])
def test_labels_go_part_of_the_way_to_what_the_judge_sees(toy_run: Path, keep: float) -> None:
    options = {"pool": 8, "p": 1.0, "seed": 0, "keep": keep, "judge": Bright()}
    with (
        DisMix.load(toy_run, **options) as asked,
        DisMix.load(toy_run, judged=0.25, **options) as read,
    ):
        plain, half = asked.pool_block(3, 0), read.pool_block(3, 0)
        assert torch.equal(plain.images, half.images)
        seen = Bright().probabilities(plain.images.float() / 127.5 - 1)
        assert torch.allclose(half.probs, 0.75 * plain.probs + 0.25 * seen, atol=1e-3)
        assert not torch.allclose(half.probs, plain.probs, atol=1e-2)
        assert torch.allclose(half.probs.sum(1), torch.ones(8))


def test_what_is_missing_is_named(toy_run: Path) -> None:
    with pytest.raises(DisMixError, match=r"no judge to read .* dismix mix quality"):
        DisMix.load(toy_run, pool=8, keep=0.5)
    with pytest.raises(DisMixError, match="only mixes of the pool"):
        DisMix.load(toy_run, keep=0.5, judge=Bright())
    with pytest.raises(DisMixError, match="only mixes of the pool"):
        DisMix.load(toy_run, judged=0.5, judge=Bright())
    for share in ("keep", "judged"):
        with pytest.raises(DisMixError, match="2 is no share"):
            DisMix.load(toy_run, pool=8, judge=Bright(), **{share: 2})
    with pytest.raises(DisMixError, match="judge reads 3 ranks"):
        DisMix.load(toy_run, pool=8, keep=0.5, judge=Bright(3))


def test_runs_are_named_by_what_the_judge_has_learned(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("c", 1)):
        torch.manual_seed(seed)
        Judge(3, "conv").save(tmp_path / name)
    shutil.copy(tmp_path / "a", tmp_path / "b")
    ids = {name: _pathless({"judge": tmp_path / name})["judge"] for name in "abc"}
    assert ids["a"] == ids["b"] != ids["c"]


def test_a_judge_of_other_images_is_told(toy_run: Path, tmp_path: Path) -> None:
    judge = Judge(5, "conv")
    judge.notes = {"labels": "of other images"}
    judge.save(tmp_path / "judge.safetensors")
    with pytest.warns(UserWarning, match="trained on other images or labels"):
        DisMix.load(toy_run, pool=8, judged=0.5, judge=tmp_path / "judge.safetensors")
    with pytest.warns(UserWarning, match="trained on other images or labels"):
        DisMix.load(toy_run, pool=8, judged=0.5, judge=judge)
