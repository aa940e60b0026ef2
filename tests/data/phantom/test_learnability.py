"""Learnable but not trivial: the numbers the set was designed for."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from dismix.data.phantom import measured_severity

STUDY = Path(__file__).parents[3] / "benchmarks" / "phantom_learnability.py"


@pytest.mark.parametrize("subject", ["knee", "fundus"])
def test_pixels_alone_do_not_give_the_rank_but_the_picture_does(drawn, subject):
    """With fewer images than the study: linear model near chance, the measured rank right."""
    found = drawn[subject]
    half = len(found.images) // 2
    pixels = StandardScaler().fit_transform(found.images.reshape(len(found.images), -1))
    model = LogisticRegression(C=1e-2, max_iter=300).fit(pixels[:half], found.ranks[:half])
    assert model.score(pixels[half:], found.ranks[half:]) < 0.55
    read = np.rint(measured_severity(found.images, subject, 5)).clip(0, 4)
    assert (read == found.ranks).mean() > 0.95


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("subject", ["knee", "fundus"])
def test_a_small_network_learns_what_a_linear_model_cannot(subject):
    if not STUDY.is_file():
        pytest.skip("the benchmarks folder is not part of this copy")
    spec = importlib.util.spec_from_file_location("phantom_learnability", STUDY)
    study = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(study)
    train, test = study.draw(subject, "train", 1000), study.draw(subject, "test", 500)
    assert study.logistic_accuracy(train, test, (1e-3, 1e-2)) <= 0.55
    assert study.network_accuracy(train, test) >= 0.90
