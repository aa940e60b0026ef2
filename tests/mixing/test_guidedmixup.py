"""GuidedMixup and the saliency maps it shares with others."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.guidedmixup import GuidedMixup, greedy_cycle, map_distances
from dismix.mixing.saliency import (
    default_loss,
    gaussian_blur,
    gradient_saliency,
    soft_cross_entropy,
    spectral_saliency,
    unit_sum,
)


def pictures(batch=8, channels=3, size=32):
    g = torch.Generator().manual_seed(batch)
    return torch.rand(batch, channels, size, size, generator=g)


@pytest.mark.parametrize("count", [2, 3, 5, 16])
def test_partners_are_one_cycle_without_fixed_points(count):
    g = torch.Generator().manual_seed(count)
    points = torch.rand(count, 4, generator=g)
    partner = greedy_cycle(torch.cdist(points, points))
    here, seen = 0, []
    for _ in range(count):
        seen.append(here)
        here = int(partner[here])
    assert here == 0
    assert sorted(seen) == list(range(count))


def test_greedy_partners_are_farther_than_random_ones():
    g = torch.Generator().manual_seed(0)
    maps = unit_sum(torch.rand(32, 16, 16, generator=g) ** 6)
    table = map_distances(maps, 64)
    rows = torch.arange(32)
    greedy = table[rows, greedy_cycle(table)].mean()
    shifts = [table[rows, rows.roll(k)].mean() for k in range(1, 32)]
    assert greedy > torch.stack(shifts).max()


def test_the_cycle_really_is_used():
    images = pictures(12)
    mix = GuidedMixup(3, p=1.0)
    labels = torch.arange(12) % 3
    _, _, info = mix(images, labels, return_info=True)
    maps, _ = mix.maps(images, OrdinalTarget.from_labels(labels, 3), mix.access())
    assert torch.equal(info.index, greedy_cycle(map_distances(maps, 64)))


def test_mask_is_the_share_of_saliency():
    images = pictures(6, 1)
    maps = torch.rand(6, 32, 32, generator=torch.Generator().manual_seed(0))
    mix = GuidedMixup(3, p=1.0, blur=1, saliency_fn=lambda x, y: maps[: len(x)])
    out, targets, info = mix(images, torch.arange(6) % 3, return_info=True)
    s = maps / maps.sum((1, 2), keepdim=True)
    share = (s / (s + s[info.index])).unsqueeze(1)
    assert torch.allclose(info.mask, share, atol=1e-5)
    assert torch.allclose(out, share * images + (1 - share) * images[info.index], atol=1e-5)
    assert torch.allclose(info.lam, share.mean((1, 2, 3)), atol=1e-6)
    rank = torch.arange(6.0) % 3
    mean = info.lam * rank + (1 - info.lam) * rank[info.index]
    assert torch.allclose(targets @ torch.arange(3.0), mean, atol=1e-5)


def test_empty_saliency_gives_halves():
    mix = GuidedMixup(3, p=1.0, saliency_fn=lambda x, y: torch.zeros(len(x), 32, 32))
    out, _, info = mix(pictures(4), torch.tensor([0, 1, 2, 0]), return_info=True)
    assert bool(out.isfinite().all())
    assert torch.allclose(info.lam, torch.full((4,), 0.5))


def test_other_rules_can_pair():
    labels = torch.tensor([0, 1, 0, 1, 0, 1])
    mix = GuidedMixup(3, p=1.0, pairing="adjacent")
    _, _, info = mix(pictures(6), labels, return_info=True)
    assert bool((labels[info.index] != labels).all())


def test_blur_keeps_the_sum_of_inner_maps_and_smooths():
    maps = torch.zeros(1, 21, 21)
    maps[0, 10, 10] = 1.0
    blurred = gaussian_blur(maps, 7, 3.0)
    assert float(blurred.sum()) == pytest.approx(1.0, abs=1e-5)
    offsets = np.arange(-3, 4)
    window = np.exp(-(offsets**2) / 18)
    window /= window.sum()
    assert float(blurred[0, 10, 12]) == pytest.approx(window[3] * window[5], abs=1e-6)


def test_spectral_residual_against_numpy():
    image = pictures(1, 1, 64)
    spectrum = np.fft.fft2(image[0, 0].numpy())
    log = np.log(np.sqrt(np.abs(spectrum) ** 2 + 1e-10))
    padded = np.pad(log, 1, mode="edge")
    box = sum(padded[i : i + 64, j : j + 64] for i in range(3) for j in range(3)) / 9
    back = np.abs(np.fft.ifft2(np.exp(log - box) * spectrum / np.exp(log)))
    slow = gaussian_blur(torch.from_numpy(back)[None].float())
    assert torch.allclose(spectral_saliency(image), slow, atol=1e-4)


def test_large_images_come_back_in_their_size():
    assert spectral_saliency(pictures(1, 3, 160)).shape == (1, 160, 160)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.frozen = nn.BatchNorm2d(4).eval()
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(4, 5)
        self.conv.bias.requires_grad_(False)
        # Moves in evaluation too, as counters of a user's own may.
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x):
        self.passes += 1
        return self.head(self.drop(self.frozen(self.norm(self.conv(x)))).relu().mean((2, 3)))


def test_the_pass_leaves_the_model_as_it_was():
    torch.manual_seed(0)
    model = Net()
    model(pictures(4)).sum().backward()
    before = copy.deepcopy(model.state_dict())
    grads = {n: None if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}
    modes = [m.training for m in model.modules()]
    needs = [p.requires_grad for p in model.parameters()]
    images = pictures(4)
    for caller in (torch.enable_grad(), torch.no_grad(), torch.inference_mode()):
        with caller:
            maps = gradient_saliency(model, images, torch.eye(5)[:4]).maps
        assert maps.shape == (4, 32, 32)
        assert float(maps.sum()) > 0
    assert not images.requires_grad
    assert [m.training for m in model.modules()] == modes
    assert [p.requires_grad for p in model.parameters()] == needs
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    for name, parameter in model.named_parameters():
        same = grads[name] is None and parameter.grad is None
        assert same or torch.equal(parameter.grad, grads[name])


def test_the_model_is_put_back_after_an_error():
    model = Net()
    with pytest.raises(ZeroDivisionError):
        gradient_saliency(model, pictures(2), torch.eye(5)[:2], lambda m, x, y: 1 / 0)
    assert model.training
    assert model.head.weight.requires_grad


def test_saliency_equals_the_plain_formula():
    torch.manual_seed(0)
    model = Net().eval()
    images, targets = pictures(3), torch.eye(5)[:3]
    leaf = images.clone().requires_grad_()
    (slope,) = torch.autograd.grad(soft_cross_entropy(model, leaf, targets), leaf)
    slow = torch.zeros(3, 32, 32)
    for b in range(3):
        for c in range(3):
            slow[b] += slope[b, c] ** 2 / 3
    assert torch.allclose(gradient_saliency(model, images, targets).maps, slow.sqrt(), rtol=1e-4)


def test_kept_loss_trains_the_model():
    model = Net()
    found = gradient_saliency(model, pictures(4), torch.eye(5)[:4], keep_loss=True)
    found.clean_loss.backward()
    assert float(model.head.weight.grad.abs().sum()) > 0
    assert found.maps.grad_fn is None


@pytest.mark.parametrize("kind", ["constant", "parameters"])
def test_a_loss_that_ignores_the_images_falls_back_to_the_spectrum(kind):
    def loss_fn(model, x, y):
        return torch.ones(()) if kind == "constant" else model.head.weight.square().sum()

    for keep in (False, True):
        with pytest.warns(UserWarning, match="spectral saliency"):
            found = gradient_saliency(Net(), pictures(2), torch.eye(5)[:2], loss_fn, keep_loss=keep)
        assert torch.equal(found.maps, spectral_saliency(pictures(2)))


def test_a_loss_for_each_image_is_refused():
    with pytest.raises(DisMixError, match="must be one number"):
        gradient_saliency(Net(), pictures(2), torch.eye(5)[:2], lambda m, x, y: m(x).sum(1))


def test_graders_give_their_own_loss():
    class Grader(Net):
        stages = ("only",)

        def training_loss(self, images, target, stage):
            assert isinstance(target, OrdinalTarget)
            return {"loss": (self(images) ** 2).mean() + 0 * target.rank.sum()}

    grader = Grader()
    images = pictures(2)
    loss = default_loss(grader.eval(), images, torch.eye(5)[:2])
    assert torch.allclose(loss, (grader(images) ** 2).mean())


def test_closures_see_targets_in_the_callers_form():
    seen = []

    def loss_fn(model, x, y):
        seen.append(type(y).__name__)
        return model(x).square().mean()

    labels = torch.tensor([0, 1, 2, 0])
    mix = GuidedMixup(5, p=1.0, saliency="grad", model=Net(), loss_fn=loss_fn)
    mix(pictures(4), labels)
    mix(pictures(4), OrdinalTarget.from_labels(labels, 5))
    assert seen == ["Tensor", "OrdinalTarget"]


def test_clean_loss_is_in_the_info():
    mix = GuidedMixup(5, p=1.0, saliency="grad", model=Net(), clean_lam=1.0)
    _, _, info = mix(pictures(4), torch.tensor([0, 1, 2, 0]), return_info=True)
    assert info.clean_loss.requires_grad
