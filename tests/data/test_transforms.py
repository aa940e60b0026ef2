"""Batched transforms against torchvision, one image at a time."""

import math

import pytest
import torch

from dismix._compat import import_torchvision
from dismix.data.transforms import (
    AugmentParams,
    _matrix,
    _resampled,
    augment,
    draw_augment,
    equalize,
    from_unit,
    to_unit,
)
from dismix.errors import DisMixError

import_torchvision()
from torchvision.transforms import InterpolationMode  # noqa: E402
from torchvision.transforms.v2 import functional as oracle  # noqa: E402

SHAPES = [(1, 1, 16, 16), (5, 3, 32, 32), (3, 1, 20, 45), (2, 3, 41, 24)]


def smooth(shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """Smooth uint8 images, where interpolation rules differ least."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(shape[0], shape[1], 4, 4, generator=generator)
    fine = torch.nn.functional.interpolate(coarse, shape[2:], mode="bicubic")
    return (fine.clamp(0, 1) * 255).to(torch.uint8)


def noise(shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def params_of(count: int, angle: float | None = None, seed: int = 0) -> AugmentParams:
    drawn = draw_augment(count, torch.Generator().manual_seed(seed))
    return drawn if angle is None else AugmentParams(*flips(drawn), torch.full((count,), angle))


def flips(params: AugmentParams) -> tuple[torch.Tensor, torch.Tensor]:
    return params.flip_h, params.flip_v


def one_by_one(images: torch.Tensor, params: AugmentParams) -> torch.Tensor:
    results = []
    for image, horizontal, vertical, angle in zip(
        images.float(), params.flip_h, params.flip_v, params.angle, strict=True
    ):
        image = oracle.horizontal_flip(image) if horizontal else image
        image = oracle.vertical_flip(image) if vertical else image
        image = oracle.rotate(image, float(angle), InterpolationMode.BILINEAR, fill=[0.0])
        results.append(image / 127.5 - 1)
    return torch.stack(results)


@pytest.mark.parametrize("shape", SHAPES)
def test_rotation_is_torchvisions_inside_the_image(shape: tuple[int, ...]) -> None:
    images, params = smooth(shape), params_of(shape[0], seed=3)
    got, expected = augment(images, params), one_by_one(images, params)
    # Along the edge torchvision blends with the fill by its own rule: one pixel is left out.
    inside = augment(torch.full_like(images, 255), params) > 0.999
    assert inside.float().mean() > 0.6
    assert (got - expected)[inside].abs().max() < 0.01


def test_rotation_turns_counter_clockwise() -> None:
    image = torch.zeros(1, 1, 65, 65, dtype=torch.uint8)
    image[0, 0, 31:34, 61:64] = 255  # a dot at the right
    params = AugmentParams(torch.tensor([False]), torch.tensor([False]), torch.tensor([15.0]))
    turned = augment(image, params)[0, 0] + 1
    total = turned.sum()
    row = (turned.sum(1) * torch.arange(65)).sum() / total - 32
    column = (turned.sum(0) * torch.arange(65)).sum() / total - 32
    assert row == pytest.approx(-30 * math.sin(math.radians(15)), abs=0.2)
    assert column == pytest.approx(30 * math.cos(math.radians(15)), abs=0.2)


@pytest.mark.parametrize("shape", SHAPES)
def test_flips_are_exact(shape: tuple[int, ...]) -> None:
    images = noise(shape)
    for horizontal in (False, True):
        for vertical in (False, True):
            count = shape[0]
            params = AugmentParams(
                torch.full((count,), horizontal), torch.full((count,), vertical), torch.zeros(count)
            )
            axes = [axis for axis, on in ((3, horizontal), (2, vertical)) if on]
            assert torch.equal(augment(images, params), to_unit(images.flip(axes)))


def test_flips_beside_rotated_images_are_exact_in_8_bits() -> None:
    images = noise((3, 3, 32, 24))
    angle = torch.tensor([0.0, 7.0, 0.0])
    flip = torch.tensor([True, False, False])
    got = from_unit(augment(images, AugmentParams(flip, flip, angle)))
    assert torch.equal(got[0], images[0].flip(1, 2))
    assert torch.equal(got[2], images[2])
    assert not torch.equal(got[1], images[1])


def test_uncovered_corners_are_black_and_the_range_holds() -> None:
    white = torch.full((4, 1, 64, 64), 255, dtype=torch.uint8)
    turned = augment(white, params_of(4, angle=19.0))
    assert turned.max() == 1
    assert turned.min() == -1
    assert (turned[:, :, 0, 0] == -1).all()
    assert (turned[:, :, 20:44, 20:44] > 0.9999).all()


def test_float_and_8_bit_images_give_the_same() -> None:
    images, params = noise((6, 3, 40, 40)), params_of(6)
    torch.testing.assert_close(
        augment(to_unit(images), params), augment(images, params), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_threads_and_single_operations_give_the_same(shape: tuple[int, ...], threads: int) -> None:
    images, params = noise(shape), params_of(shape[0])
    whole = _resampled(images, _matrix(params))
    expected = equalize(images)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert (augment(images, params) - whole).abs().max() < 1e-5
        assert torch.equal(equalize(images), expected)
    finally:
        torch.set_num_threads(before)


def test_images_need_not_be_contiguous() -> None:
    images, params = noise((4, 3, 24, 24)), params_of(4)
    mirrored = images.transpose(2, 3)
    assert torch.equal(augment(mirrored, params), augment(mirrored.contiguous(), params))
    assert torch.equal(equalize(mirrored), equalize(images).transpose(2, 3))
    half = to_unit(images).bfloat16()
    assert torch.equal(augment(half, params), augment(half.float(), params))


def test_augment_passes_gradients_to_float_images() -> None:
    images = to_unit(noise((2, 1, 16, 16))).requires_grad_()
    augment(images, params_of(2)).sum().backward()
    assert images.grad is not None
    assert (images.grad[:, :, 8, 8] - 1).abs().max() < 0.2


def test_augment_changes_neither_images_nor_parameters() -> None:
    images, params = noise((4, 3, 32, 32)), params_of(4)
    before, angle = images.clone(), params.angle.clone()
    assert torch.equal(augment(images, params), augment(images, params))
    assert torch.equal(images, before)
    assert torch.equal(params.angle, angle)


def test_draws_stay_strictly_below_the_limit_and_follow_the_generator() -> None:
    params = draw_augment(200_000, torch.Generator().manual_seed(1))
    assert params.angle.abs().max() < 20
    assert params.angle.abs().max() > 19.99
    assert abs(float(params.angle.mean())) < 0.1
    assert float(params.flip_h.float().mean()) == pytest.approx(0.5, abs=0.01)
    assert float((params.flip_h & params.flip_v).float().mean()) == pytest.approx(0.25, abs=0.01)
    again = draw_augment(200_000, torch.Generator().manual_seed(1))
    assert torch.equal(params.angle, again.angle)


def test_extreme_draws_stay_strictly_below(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (0.0, 1 - 2**-24):
        monkeypatch.setattr(torch, "rand", lambda *s, value=value, **_: torch.full(s, value))
        assert draw_augment(1, torch.Generator()).angle.abs() < 20


def test_options_do_not_shift_other_draws() -> None:
    plain = draw_augment(50, torch.Generator().manual_seed(2))
    upright = draw_augment(50, torch.Generator().manual_seed(2), flips=(0.0, 1.0))
    assert torch.equal(plain.angle, upright.angle)
    assert not upright.flip_h.any()
    assert upright.flip_v.all()
    still = draw_augment(50, torch.Generator().manual_seed(2), max_degrees=0)
    assert not still.angle.any()


def test_a_wrong_number_of_parameters_is_refused() -> None:
    with pytest.raises(DisMixError, match="3 augmentations were drawn for 2 images"):
        augment(noise((2, 1, 8, 8)), params_of(3))


@pytest.mark.parametrize("shape", [*SHAPES, (3, 1, 600, 500), (2, 3, 1, 1), (2, 1, 3, 300)])
@pytest.mark.parametrize("kind", ["noise", "smooth", "narrow", "constant", "two", "sparse"])
def test_equalize_is_torchvisions_bit_for_bit(shape: tuple[int, ...], kind: str) -> None:
    images = {
        "noise": noise(shape),
        "smooth": smooth(shape),
        "narrow": noise(shape) // 16 + 100,
        "constant": torch.full(shape, 77, dtype=torch.uint8),
        "two": (noise(shape) > 200).to(torch.uint8) * 255,
        "sparse": (noise(shape) > 250).to(torch.uint8) * noise(shape, 1),
    }[kind]
    expected = torch.stack([oracle.equalize(image) for image in images])
    assert torch.equal(equalize(images), expected)


def test_equalize_of_nothing_and_of_the_wrong_type() -> None:
    assert equalize(torch.zeros(0, 3, 8, 8, dtype=torch.uint8)).shape == (0, 3, 8, 8)
    with pytest.raises(DisMixError, match="needs uint8"):
        equalize(torch.zeros(1, 3, 8, 8))


def test_unit_scaling_is_exact_and_invertible() -> None:
    levels = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    unit = to_unit(levels)
    assert unit.dtype == torch.float32
    assert unit.flatten()[0] == -1
    assert unit.flatten()[255] == 1
    torch.testing.assert_close(unit.double(), levels.double() / 127.5 - 1, atol=1e-6, rtol=0)
    assert torch.equal(from_unit(unit), levels)


def test_from_unit_rounds_and_clamps() -> None:
    values = torch.tensor([-3.0, -1.0, 0.4 / 127.5 - 1, 0.6 / 127.5 - 1, 1.0, 9.0])
    assert from_unit(values).tolist() == [0, 0, 0, 1, 255, 255]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_an_accelerator_gives_what_the_cpu_gives() -> None:
    images, params = noise((9, 3, 48, 40)) // 3, params_of(9)
    on_device = images.cuda()
    assert torch.equal(equalize(on_device).cpu(), equalize(images))
    assert torch.equal(to_unit(on_device).cpu(), to_unit(images))
    difference = augment(on_device, params).cpu() - augment(images, params)
    assert difference.abs().max() < 1e-4


def test_other_kinds_of_images_are_refused() -> None:
    params = draw_augment(3, torch.Generator())
    with pytest.raises(DisMixError, match=r"uint8 or floating point, got torch[.]int64"):
        to_unit(torch.zeros(3, 1, 4, 4, dtype=torch.int64))
    with pytest.raises(DisMixError, match=r"uint8 or floating point, got torch[.]int32"):
        augment(torch.zeros(3, 1, 4, 4, dtype=torch.int32), params)
    with pytest.raises(DisMixError, match=r"must be \(B, channels, H, W\), got \(3, 4, 4\)"):
        augment(torch.zeros(3, 4, 4), params)
