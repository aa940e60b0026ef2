"""Mixup, CutMix and ResizeMix: known pixels, and parity with torchvision and timm."""

import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dismix._compat import import_torchvision
from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.cutmix import CutMix, box_share, centred_boxes, inside_boxes
from dismix.mixing.mixup import Mixup
from dismix.mixing.pairs import draw_beta
from dismix.mixing.registry import create_mixer
from dismix.mixing.resizemix import ResizeMix, shrunk_nearest
from dismix.mixing.saliency import spectral_saliency

import_torchvision()
from torchvision.transforms import v2  # noqa: E402

RANKS = 5


def constant(batch=6, channels=2, height=24, width=20):
    """Image i is i everywhere: pixels tell where they come from."""
    return torch.arange(float(batch)).view(-1, 1, 1, 1).expand(-1, channels, height, width).clone()


def roll_one(target, generator):
    """torchvision's partners."""
    return torch.arange(len(target)).roll(1)


@pytest.mark.parametrize("kind", [Mixup, CutMix, ResizeMix])
@pytest.mark.parametrize("p", [0.5, 1.0])
def test_pixels_tell_ratio_and_partner(kind, p):
    images = constant()
    for seed in range(5):
        mix = kind(6, p=p, seed=seed)
        out, targets, info = mix(images, torch.arange(6), return_info=True)
        weight = info.mask
        expected = weight * images + (1 - weight) * images[info.index]
        assert torch.allclose(out, expected, atol=1e-5)
        assert torch.allclose(weight.mean((1, 2, 3)), info.lam, atol=1e-6)
        ranks = torch.arange(6.0)
        mean = info.lam * ranks + (1 - info.lam) * ranks[info.index]
        assert torch.allclose(targets @ ranks, mean, atol=1e-5)
        assert bool((info.index[info.mixed] != torch.arange(6)[info.mixed]).all())


def test_mixup_agrees_with_torchvision():
    images = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3, 4, 0])
    mix = Mixup(RANKS, p=1.0, lam_mode="batch", pairing=roll_one)
    ours = mix(images, labels)
    theirs = v2.MixUp(num_classes=RANKS)
    lam = float(mix.last.lam[0])
    theirs.make_params = lambda flat: {"lam": lam}
    images_there, labels_there = theirs(images, labels)
    assert torch.allclose(ours[0], images_there, atol=1e-6)
    assert torch.allclose(ours[1], labels_there, atol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_cutmix_agrees_with_torchvision(seed):
    torch.manual_seed(seed)
    images = torch.rand(4, 3, 17, 22)
    labels = torch.tensor([0, 1, 2, 3])
    theirs = v2.CutMix(num_classes=RANKS)
    params = theirs.make_params([images])
    theirs.make_params = lambda flat: params
    images_there, labels_there = theirs(images, labels)
    mix = CutMix(RANKS, p=1.0, pairing=roll_one)
    target = OrdinalTarget.from_labels(labels, RANKS)
    draws = mix.draw(images, target)
    left, top, right, bottom = params["box"]
    object.__setattr__(draws, "boxes", torch.tensor([[top, bottom, left, right]] * 4))
    ours = mix.replay(images, target, draws, mix.access())
    assert torch.equal(ours.images, images_there)
    assert torch.allclose(ours.target.probs, labels_there, atol=1e-6)


def test_boxes_follow_torchvisions_rule():
    """The same ratio and centre give the same box as v2.CutMix draws."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        lam = float(torch.rand(1, generator=generator))
        y, x = (int(v) for v in torch.randint(17, (2,), generator=generator))
        half = 0.5 * np.sqrt(1 - np.float32(lam).astype(np.float64))
        tall, wide = int(half * 17), int(half * 22)
        expected = [max(y - tall, 0), min(y + tall, 17), max(x - wide, 0), min(x + wide, 22)]
        boxes = centred_boxes(torch.tensor([lam]), torch.tensor([[y, x]]), 17, 22)
        assert boxes[0].tolist() == expected
        inside = inside_boxes(boxes, 17, 22)
        assert float(inside.float().mean()) == pytest.approx(float(box_share(boxes, 17, 22)))


def test_mixup_agrees_with_timm():
    from timm.data import Mixup as TimmMixup

    images = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3, 4, 0])
    mix = Mixup(RANKS, p=1.0, lam_mode="batch", pairing=lambda t, g: torch.arange(len(t)).flip(0))
    ours = mix(images, labels)
    theirs = TimmMixup(mixup_alpha=1.0, label_smoothing=0.0, num_classes=RANKS)
    lam = float(mix.last.lam[0])
    theirs._params_per_batch = lambda: (lam, False)
    there, labels_there = theirs(images.clone(), labels)
    assert torch.allclose(ours[0], there, atol=1e-6)
    assert torch.allclose(ours[1], labels_there, atol=1e-6)


def test_works_in_torchvisions_random_choice():
    choice = v2.RandomChoice([Mixup(RANKS, p=1.0), CutMix(RANKS, p=1.0)])
    _, targets = choice(constant(4), torch.tensor([0, 1, 2, 3]))
    assert targets.shape == (4, RANKS)


def test_one_peak_is_made_of_mixes_alone():
    votes = torch.tensor([[0.5, 0.0, 0.0, 0.0, 0.5]]).expand(8, 5)
    mix = Mixup(RANKS, p=0.5, target="unimodal")
    _, laws, info = mix(constant(8), votes, return_info=True)
    assert 0 < info.mixed.sum() < 8
    middle = torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0])
    torch.testing.assert_close(laws, torch.where(info.mixed[:, None], middle, votes))


def test_kept_ratio_of_cutmix():
    mix = CutMix(RANKS, p=1.0, correct_lam=False)
    target = OrdinalTarget.from_labels([0, 1, 2, 3], RANKS)
    draws = mix.draw(constant(4), target)
    info = mix.replay(constant(4), target, draws, mix.access()).info
    assert torch.allclose(info.lam, draws.lam)


def test_beta_draws_have_the_right_moments():
    for alpha in (0.2, 1.0, 4.0):
        lam = draw_beta(alpha, 20000, torch.Generator().manual_seed(0))
        assert float(lam.mean()) == pytest.approx(0.5, abs=0.01)
        assert float(lam.var()) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.05)
    assert bool(draw_beta(1e-3, 1000, torch.Generator().manual_seed(0)).isfinite().all())
    with pytest.raises(DisMixError, match="alpha"):
        Mixup(3, alpha=0.0)


def test_one_ratio_for_the_batch_or_for_each():
    labels = torch.arange(6) % RANKS
    _, _, one = Mixup(RANKS, p=1.0, lam_mode="batch")(constant(), labels, return_info=True)
    assert len(one.lam.unique()) == 1
    _, _, each = Mixup(RANKS, p=1.0)(constant(), labels, return_info=True)
    assert len(each.lam.unique()) == 6


def test_resizemix_shows_the_whole_partner():
    images = torch.rand(3, 2, 24, 20, generator=torch.Generator().manual_seed(0))
    boxes = torch.tensor([[2, 14, 3, 13], [0, 24, 0, 20], [5, 6, 7, 8]])
    small = shrunk_nearest(images, boxes)
    for i, (top, bottom, left, right) in enumerate(boxes.tolist()):
        expected = F.interpolate(images[i : i + 1], (bottom - top, right - left), mode="nearest")[0]
        assert torch.equal(small[i, :, top:bottom, left:right], expected)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_resizemix_stays_in_its_scope(interpolation):
    images = constant(32, 1, 40, 40)
    mix = ResizeMix(32, p=1.0, scope=(0.3, 0.6), interpolation=interpolation)
    _, _, info = mix(images, torch.arange(32), return_info=True)
    side = (1 - info.lam).sqrt()
    assert float(side.min()) > 0.27
    assert float(side.max()) <= 0.6 + 1e-6


def test_channels_last_and_grey():
    images = constant(4, 3).contiguous(memory_format=torch.channels_last)
    out, _ = CutMix(RANKS, p=1.0)(images, torch.arange(4))
    assert torch.equal(out, CutMix(RANKS, p=1.0)(images.contiguous(), torch.arange(4))[0])
    grey, _ = CutMix(RANKS, p=1.0)(constant(4, 1), torch.arange(4))
    assert grey.shape[1] == 1


def test_soft_votes_are_mixed_as_they_are():
    votes = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]])
    _, targets, info = Mixup(p=1.0)(constant(2), votes, return_info=True)
    lam = info.lam[:, None]
    assert torch.allclose(targets, lam * votes + (1 - lam) * votes.flip(0))
    with pytest.raises(DisMixError, match="give num_ranks"):
        Mixup(p=1.0)(constant(2), torch.tensor([0, 1]))


@pytest.mark.parametrize("kind", [Mixup, CutMix])
def test_compiled_step_draws_anew(kind):
    """The draws must not be frozen into a compiled graph."""
    mix = kind(RANKS, p=1.0)
    step = torch.compile(mix, backend="eager")
    images, labels = constant(4), torch.tensor([0, 1, 2, 3])
    first, second = step(images, labels)[1], step(images, labels)[1]
    assert not torch.equal(first, second)
    plain = kind(RANKS, p=1.0)
    assert torch.allclose(first, plain(images, labels)[1])


def test_mixing_loads_the_compiler_only_where_it_is_used():
    """Loading it takes seconds; a mixer that was used before must still stay out of its graphs."""
    code = """
import sys, torch
from dismix.mixing import create_mixer
import dismix.mixing.dismix
mix, images = create_mixer("mixup", 3, p=1.0), torch.rand(4, 3, 8, 8)
mix(images, torch.arange(4) % 3)
assert "torch._dynamo" not in sys.modules
step = torch.compile(lambda x, y: mix(x, y)[0] * 2, backend="eager")
print(len({step(images, torch.arange(4) % 3).sum().item() for _ in range(3)}))
"""
    found = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert found.stdout.strip() == "3"


def test_laws_of_any_kind_tell_how_many_ranks_there_are():
    images, laws = torch.rand(2, 3, 8, 8), [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    made = [Mixup(p=1.0)(images, given) for given in (torch.tensor(laws), np.array(laws), laws)]
    for found in made[1:]:
        assert torch.equal(found[1], made[0][1])
    labels = torch.tensor([0, 2]).to(torch.uint16)
    assert Mixup(3, p=1.0)(images, labels)[1].shape == (2, 3)


@pytest.mark.parametrize(
    ("name", "options"),
    [("comixup", {"part": 4.0}), ("guidedmixup", {"blur": 7.0}), ("puzzlemix", {"blocks": 4})],
)
def test_whole_numbers_may_be_written_with_a_point(name, options):
    images = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1
    mix = create_mixer(name, 3, p=1.0, saliency_fn=spectral_saliency, **options)
    assert mix(images, torch.tensor([0, 1, 2, 0]))[0].shape == images.shape
    with pytest.raises(DisMixError, match="nan is no whole number"):
        create_mixer("comixup", 3, part=float("nan"))
