"""Pixels on another scale are noticed, once."""

import warnings

import pytest
import torch

from dismix.errors import DisMixError
from dismix.mixing.fitting import Normalisation

GENERATOR = torch.Generator().manual_seed(0)
UNIT = torch.rand(4, 3, 8, 8, generator=GENERATOR)
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


@pytest.mark.parametrize("scaled", [UNIT * 4, UNIT, UNIT * 20 - 10])
def test_a_wrong_scale_is_told_once(scaled):
    norm = Normalisation(0.5, 0.5)
    with pytest.warns(UserWarning, match=r"does not look like \[-1, 1\]"):
        norm.restored(torch.zeros(1, 3, 8, 8), scaled)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        norm.restored(torch.zeros(1, 3, 8, 8), scaled)


@pytest.mark.parametrize("scaled", [UNIT * 255, UNIT * 510 - 255])
@pytest.mark.parametrize(("mean", "std"), [(0.5, 0.5), (MEAN.tolist(), STD.tolist())])
def test_a_scale_that_is_far_off_is_refused_in_any_batch(scaled, mean, std):
    norm, mixes = Normalisation(mean, std), torch.zeros(1, 3, 8, 8)
    for _ in range(2):
        with pytest.raises(DisMixError, match=r"from \S+ to 25\d, far outside of \[-1, 1\]"):
            norm.restored(mixes, scaled)
    norm.restored(mixes, UNIT * 2 - 1)
    with pytest.raises(DisMixError, match="far outside"):
        norm.restored(mixes, scaled)
    with pytest.raises(DisMixError, match="NaN or infinite"):
        norm.restored(mixes, torch.where(UNIT > 0.5, torch.nan, UNIT))


@pytest.mark.parametrize(
    ("images", "mean", "std"),
    [
        (UNIT * 255, 0.0, 1 / 255),
        (UNIT * 2 - 1, 0.5, 0.5),
        (UNIT, 0.0, 1.0),
        ((UNIT - MEAN.view(3, 1, 1)) / STD.view(3, 1, 1), MEAN.tolist(), STD.tolist()),
        # One bright picture, and a flat one: nothing can be said of their scale.
        (torch.full((1, 3, 8, 8), 0.7), 0.5, 0.5),
    ],
)
def test_a_right_scale_is_not(images, mean, std):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = Normalisation(mean, std).restored(torch.zeros(1, 3, 8, 8), images)
    assert kept.shape == (1, 3, 8, 8)
