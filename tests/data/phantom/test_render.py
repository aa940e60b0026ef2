from dataclasses import replace

import numpy as np
import pytest

from dismix.data.phantom import PhantomSpec, draw_factors, render
from dismix.data.phantom.canvas import shrink
from dismix.data.phantom.lesions import lesions
from dismix.errors import DisMixError


def factors_of(subject, rank=2, seed=0, **changes):
    drawn = draw_factors(PhantomSpec(subject=subject), rank, np.random.default_rng(seed))
    return replace(drawn, **changes)


@pytest.mark.parametrize("subject", ["knee", "fundus"])
@pytest.mark.parametrize("size", [32, 50, 128])
def test_any_size(subject, size):
    image = render(factors_of(subject), size)
    assert image.shape == ((size, size) if subject == "knee" else (size, size, 3))
    assert image.dtype == np.uint8
    assert image.std() > 10


@pytest.mark.parametrize("subject", ["knee", "fundus"])
def test_rendering_is_pure(subject):
    factors = factors_of(subject)
    first = render(factors, 64)
    render(factors_of(subject, seed=9), 64)
    assert (render(factors, 64) == first).all()


@pytest.mark.parametrize("subject", ["knee", "fundus"])
def test_drawing_does_not_depend_on_resolution(subject):
    factors = factors_of(subject, noise=0.0, rank=3)
    coarse = render(factors, 64).astype(float)
    fine = shrink(render(factors, 256).astype(float), 4)
    difference = np.abs(coarse - fine)
    assert difference.mean() < 2
    assert np.quantile(difference, 0.99) < 16


def test_too_small_is_refused():
    with pytest.raises(DisMixError, match="too few"):
        render(factors_of("knee"), 16)


@pytest.mark.parametrize("rank", [0, 2, 4])
def test_the_gap_is_as_wide_as_its_factor_says(rank):
    """Oracle: count dark pixels down one column of a large, plain, upright knee."""
    knee = factors_of(
        "knee", rank, noise=0.0, texture=0.0, rotation=0.0, mirror=False, offset_x=0.0,
        offset_y=0.0, gamma=1.0, contrast=1.0, exposure=0.0, implant="none",
    )  # fmt: skip
    size = 800
    image = render(knee, size).astype(float) / 255
    bone = knee.bone_width * knee.zoom
    for sign, wanted in ((-1, knee.joint_space_medial), (1, knee.joint_space_lateral)):
        column = image[:, round((0.5 + sign * 0.27 * bone) * size)]
        middle = column[round(0.3 * size) : round(0.7 * size)]
        # Half way between soft tissue (0.36) and bone (0.66 and more).
        found = (middle < 0.52).sum() / size / bone
        assert found == pytest.approx(wanted, abs=0.004)


@pytest.mark.parametrize("rank", [1, 4])
def test_lesions_cover_what_their_factor_says(rank):
    """Oracle: compare with the same eye at severity 0, pixel by pixel."""
    eye = factors_of("fundus", rank, noise=0.0, offset_x=0.0, offset_y=0.0)
    size = 512
    with_lesions = render(eye, size).astype(float)
    without = render(replace(eye, severity=0.0), size).astype(float)
    x = (np.arange(size) + 0.5) / size - 0.5
    field = x[None] ** 2 + x[:, None] ** 2 < eye.field**2
    # Half of a lesion's own change in the green channel marks its rim.
    change = np.abs(with_lesions - without)[..., 1] / np.maximum(without[..., 1], 1)
    covered = (change > 0.35) & field
    assert covered.sum() / field.sum() == pytest.approx(eye.lesion_load, rel=0.12)
    assert (change[~field] == 0).all()


def test_healthy_eyes_have_no_lesions_and_lesions_are_kept_as_severity_grows():
    eye = factors_of("fundus", 1)
    assert list(lesions(replace(eye, severity=0.0))) == []
    mild, severe = (list(lesions(replace(eye, severity=s))) for s in (1.0, 3.5))
    assert severe[: len(mild) - 1] == mild[:-1]
    for found, severity in ((mild, 1.0), (severe, 3.5)):
        load = sum(lesion.area * lesion.density for lesion in found) / np.pi
        assert load == pytest.approx(replace(eye, severity=severity).lesion_load)


def test_mirror_is_a_mirror():
    for subject in ("knee", "fundus"):
        factors = factors_of(
            subject, 3, noise=0.0, rotation=0.0, offset_x=0.0, texture=0.0, mirror=False
        )
        if subject == "fundus":
            factors = replace(factors, light_x=0.0)
        image = render(factors, 64).astype(int)
        mirrored = render(replace(factors, mirror=True), 64).astype(int)
        assert np.abs(image[:, ::-1] - mirrored).mean() < 1


def test_metal_is_bright_and_away_from_the_joint():
    plain = factors_of("knee", 2, implant="none", noise=0.0, offset_y=0.0)
    for kind in ("screw", "plate"):
        for bone in ("femur", "tibia"):
            metal = render(replace(plain, implant=kind, implant_bone=bone), 128).astype(int)
            change = metal - render(plain, 128)
            assert change.max() > 40
            rows = np.flatnonzero((change > 5).any(axis=1))
            assert (np.abs(rows - 64) > 0.12 * 128).all()
