"""A guide that sees pictures behind a blur asks for shapes, not for streaks."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.ndimage import gaussian_filter
from tests.generator.conftest import SmallRun

from dismix.errors import DisMixError
from dismix.generator.guide import Guide
from dismix.generator.run_file import take_graders
from dismix.generator.run_plan import plan_run
from dismix.generator.start_run import train_generator
from dismix.generator.trunk import blurred


@pytest.mark.parametrize("sigma", [0.7, 1.5])
def test_a_blur_is_that_of_scipy(sigma: float) -> None:
    images = torch.rand(2, 3, 24, 20, generator=torch.Generator().manual_seed(0))
    made = blurred(images, sigma)
    for image, found in zip(images.numpy(), made.numpy(), strict=True):
        for channel, seen in zip(image, found, strict=True):
            # SciPy's "mirror" is torch's "reflect"; both end at three deviations.
            slow = gaussian_filter(channel, sigma, mode="mirror", radius=int(np.ceil(3 * sigma)))
            np.testing.assert_allclose(seen, slow, atol=1e-5)


def test_without_one_pictures_are_seen_as_they_are() -> None:
    images = torch.rand(1, 1, 8, 8)
    assert blurred(images, 0.0) is images


def test_one_as_large_as_the_picture_is_refused() -> None:
    with pytest.raises(DisMixError, match=r"'guide_blur': a blur of 4 .*of 12; give 1"):
        blurred(torch.rand(1, 1, 12, 24), 4.0)


def test_streaks_neither_please_it_nor_are_asked_for() -> None:
    torch.manual_seed(0)
    plain = Guide(5, "conv", channels=1).eval()
    blind = Guide(5, "conv", channels=1, blur=2.0).eval()
    blind.load_state_dict(plain.state_dict())
    shape = torch.linspace(-1, 1, 64).expand(1, 1, 64, 64)
    streaks = 0.3 * torch.arange(64).remainder(2).sub(0.5).expand(1, 1, 64, 64)
    with torch.no_grad():
        moved = [float((g(shape + streaks) - g(shape)).abs().max()) for g in (plain, blind)]
    assert moved[1] < 0.02 * moved[0]
    asked = []
    for guide in (plain, blind):
        picture = shape.clone().requires_grad_()
        guide(picture).sum().backward()
        assert picture.grad is not None
        # The share of what it asks for that changes from one column to the next.
        change = picture.grad.diff(dim=3)
        asked.append(float(change.square().mean() / picture.grad.square().mean()))
    assert asked[1] < 0.3 * asked[0]


def test_a_run_keeps_it_and_the_trunk_starts_from_a_reader_without(
    small_run: SmallRun, tmp_path: Path
) -> None:
    settings = {**small_run.settings, "guide_blur": 1.0}
    run = tmp_path / "run"
    train_generator(small_run.data, run, arch="tiny", settings=settings, size=32, cpu=True)
    guide, reader = (load_file(run / f"{name}.safetensors") for name in ("guide", "reader"))
    assert any(not torch.equal(guide[name], reader[name]) for name in guide)
    # Neither is taken over by a run whose guide sees pictures as they are.
    plan = plan_run(small_run.data, arch="tiny", settings=small_run.settings, size=32)
    other = tmp_path / "other"
    other.mkdir()
    take_graders(other, tmp_path, plan.described)
    assert not (other / "guide.safetensors").exists()
