import time
from dataclasses import replace

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from dismix.data.phantom import joint_space_width, lesion_area, measured_severity, render
from dismix.errors import DisMixError

SUBJECTS = ("knee", "fundus")


def errors(images, drawn, subject):
    return measured_severity(images, subject, 5) - drawn.severities


def smeared(images, sigma):
    return gaussian_filter(images.astype(np.float32), (0, sigma, sigma, 0)[: images.ndim]) / 255


@pytest.mark.parametrize("subject", SUBJECTS)
def test_reads_the_severity_off_clean_pictures(drawn, subject):
    found = measured_severity(drawn[subject].images, subject, 5)
    error = np.abs(found - drawn[subject].severities)
    assert error.mean() < (0.11 if subject == "knee" else 0.08)
    assert error.max() < 0.7
    assert np.corrcoef(found, drawn[subject].severities)[0, 1] > 0.99


@pytest.mark.parametrize("subject", SUBJECTS)
def test_bears_blur_and_decoding_errors(drawn, subject):
    images = drawn[subject].images
    assert np.abs(errors(smeared(images, 0.7), drawn[subject], subject)).mean() < 0.2
    rough = np.random.default_rng(0).standard_normal(images.shape).astype(np.float32)
    rough = smeared(rough * 255, 1.0)
    wrong = smeared(images, 0.5) + 0.01 * rough / rough.std()
    assert np.abs(errors(wrong.clip(0, 1), drawn[subject], subject)).mean() < 0.3


@pytest.mark.parametrize("subject", SUBJECTS)
def test_larger_pictures_are_read_at_least_as_well(draw_set, subject):
    large = draw_set(subject, 40, size=128)
    assert np.abs(errors(large.images, large, subject)).mean() < 0.1
    assert np.abs(errors(smeared(large.images, 0.7), large, subject)).mean() < 0.12
    huge = draw_set(subject, 5, size=200)
    assert np.abs(errors(huge.images, huge, subject)).mean() < 0.2


@pytest.mark.parametrize("subject", SUBJECTS)
def test_errors_do_not_follow_the_rank_free_factors(drawn, subject):
    error = errors(drawn[subject].images, drawn[subject], subject)
    for name in ("mirror", "rotation", "zoom", "offset_x", "offset_y", "exposure", "noise"):
        values = np.array([float(getattr(f, name)) for f in drawn[subject].factors])
        # Standard error 0.09; gamma, which really changes contrasts, is not in the list.
        assert abs(np.corrcoef(values, error)[0, 1]) < 0.36, name


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_traverse_of_one_picture_is_monotone(drawn, subject):
    path = np.linspace(0, 4, 9)
    for factors in drawn[subject].factors[:6]:
        images = np.stack([render(replace(factors, severity=float(s)), 64) for s in path])
        found = measured_severity(images, subject, 5)
        assert (np.diff(found) > 0).all()
        # Steps of half a rank; the end points differ by four.
        assert np.abs(np.diff(found) - 0.5).max() < 0.4
        assert found[-1] - found[0] == pytest.approx(4, abs=0.6)


def test_rank_units_follow_the_number_of_ranks(drawn):
    images = drawn["knee"].images[:4]
    five, nine = (measured_severity(images, "knee", c) for c in (5, 9))
    np.testing.assert_allclose(nine, 2 * five)


def test_widths_and_areas_have_their_units(drawn):
    width = joint_space_width(drawn["knee"].images)
    truth = np.array([f.joint_space for f in drawn["knee"].factors])
    assert np.corrcoef(width, truth)[0, 1] > 0.99
    # Bright joint surfaces hide up to a fifth of the bone width's tenth.
    assert (truth - width).mean() == pytest.approx(0.02, abs=0.015)
    area = lesion_area(drawn["fundus"].images)
    load = np.array([f.lesion_load for f in drawn["fundus"].factors])
    np.testing.assert_allclose(area, load, atol=0.012)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_forms_of_input_agree(drawn, subject):
    images = drawn[subject].images[:3]
    stack = measured_severity(images, subject, 5)
    assert stack.shape == (3,)
    single = measured_severity(images[1], subject, 5)
    assert single.shape == ()
    assert float(single) == pytest.approx(stack[1], abs=1e-4)
    np.testing.assert_allclose(measured_severity(images / 255, subject, 5), stack, atol=1e-3)
    first = images[:, None] if subject == "knee" else np.moveaxis(images, -1, 1)
    np.testing.assert_allclose(measured_severity(first, subject, 5), stack, atol=1e-4)
    if subject == "knee":
        colour = np.repeat(images[..., None], 3, axis=-1)
        np.testing.assert_allclose(measured_severity(colour, subject, 5), stack, atol=1e-3)
    assert measured_severity(images[:0], subject, 5).shape == (0,)


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("fill", [0.0, 0.5, 1.0])
def test_blank_pictures_give_a_number(subject, fill):
    shape = (2, 64, 64) if subject == "knee" else (2, 64, 64, 3)
    assert np.isfinite(measured_severity(np.full(shape, fill), subject, 5)).all()


def test_wrong_input_is_named():
    with pytest.raises(DisMixError, match="shape"):
        measured_severity(np.zeros((64, 48)), "knee", 5)
    with pytest.raises(DisMixError, match="shape"):
        measured_severity(np.zeros((2, 64, 64)), "fundus", 5)
    with pytest.raises(DisMixError, match="run from -1"):
        measured_severity(np.linspace(-1, 1, 64 * 64).reshape(64, 64), "knee", 5)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_is_quick(drawn, subject):
    images = np.concatenate([drawn[subject].images] * 2)
    start = time.process_time()
    measured_severity(images, subject, 5)
    # A thousand in five seconds, of the processor's time.
    assert time.process_time() - start < 5 * len(images) / 1000
