"""Mixing accuracy and traverses against plain loops."""

from typing import Any

import numpy as np
import pytest
import torch

from dismix.generator.codes import Codes
from dismix.generator.config import GeneratorConfig
from dismix.generator.fidelity import psnr
from dismix.generator.images import SplitImages
from dismix.generator.mixing_accuracy import (
    PairDraws,
    draw_pairs,
    mixing_accuracy,
    mixing_chance,
)
from dismix.generator.model import Generator
from dismix.generator.traverse import nonordinal_traverse, ordinal_traverse
from dismix.generator.validation import validate
from dismix.labels import OrdinalTarget

IMAGES = torch.rand(7, 1, 32, 32, generator=torch.Generator().manual_seed(2)) * 2 - 1
TARGET = OrdinalTarget.from_labels([0, 1, 2, 3, 3, 1, 0], 4)


@pytest.fixture(scope="module")
def model() -> Generator:
    config = GeneratorConfig(
        num_ranks=4, arch="tiny", image_size=32, in_channels=1, nonordinal_codes=32
    )
    return Generator.seeded(config, 3).eval()


def reader(images: torch.Tensor) -> torch.Tensor:
    """Read a rank from the picture's mean, spread so that several ranks occur."""
    return 400 * (images.mean(dim=(1, 2, 3))[:, None] + torch.tensor([0.02, 0.0, -0.02]))


def test_mixing_accuracy_against_a_loop(model: Generator) -> None:
    draws = draw_pairs(7, 23, torch.Generator().manual_seed(0))
    right, pictures, seen = 0, [], []
    for i, j, lam in zip(draws.first, draws.second, draws.lam, strict=True):
        with torch.no_grad():
            a, b = (model.encode(IMAGES[k : k + 1], TARGET.levels[k : k + 1]) for k in (i, j))
            made = model.decode(Codes(lam * a.ordinal + (1 - lam) * b.ordinal, a.nonordinal))
        pictures.append(made)
        read = np.floor(float(reader(made).sigmoid().sum()) + 0.5)
        asked = np.floor(float(lam * TARGET.hard[i] + (1 - lam) * TARGET.hard[j]) + 0.5)
        right += read == asked

    def looks(images: torch.Tensor) -> torch.Tensor:
        seen.append(images)
        return reader(images)

    found = mixing_accuracy(model, looks, IMAGES, TARGET, draws, batch_size=5)
    assert found == pytest.approx(right / 23)
    # Readings are coarse: the pictures themselves tell which source has which share.
    torch.testing.assert_close(torch.cat(seen), torch.cat(pictures), rtol=1e-5, atol=1e-6)


def test_the_score_is_that_of_validation(model: Generator) -> None:
    pixels = ((IMAGES + 1) * 127.5).to(torch.uint8)
    train = SplitImages(pixels, TARGET, False)
    val = SplitImages(pixels[:5], TARGET[:5], False)

    def reader_of(rank: int) -> Any:
        return lambda images: torch.where(torch.arange(3) < rank, 9.0, -9.0).expand(len(images), 3)

    scores = [validate(model, reader_of(r), train, val, 0, torch.device("cpu")) for r in range(4)]
    for found in scores:
        assert found["score"] == found["mixing_accuracy_val"]
    assert any(found["score"] != found["mixing_accuracy_train"] for found in scores)
    with torch.no_grad():
        # Held-out images are rebuilt without their labels.
        given = val.images(torch.arange(5), "cpu")
        rebuilt = model.decode(model.encode(given)).clamp(-1, 1)
    assert scores[0]["psnr_val"] == pytest.approx(float(psnr(rebuilt, given).mean()), rel=1e-5)
    assert max(found["score"] for found in scores) == scores[0]["mixing_chance_val"]


def test_chance_is_the_best_of_constant_readers(model: Generator) -> None:
    draws = draw_pairs(7, 23, torch.Generator().manual_seed(1))

    def constant(rank: int) -> float:
        logits = torch.tensor([20.0 if k < rank else -20.0 for k in range(3)])
        return mixing_accuracy(model, lambda x: logits.expand(len(x), 3), IMAGES, TARGET, draws)

    assert mixing_chance(TARGET, draws) == max(constant(rank) for rank in range(4))


def test_pairs_of_an_image_with_itself_ask_for_its_own_rank(model: Generator) -> None:
    draws = PairDraws(torch.tensor([3]), torch.tensor([3]), torch.tensor([0.37]))

    def sure(images: torch.Tensor) -> torch.Tensor:
        return torch.full((len(images), 3), 20.0)

    assert mixing_accuracy(model, sure, IMAGES, TARGET, draws) == 1.0


def test_an_ordinal_traverse_changes_the_condition_alone(model: Generator) -> None:
    made = ordinal_traverse(model, IMAGES[:2], torch.tensor([0.0, 1.5, 3.0]))
    assert made.shape == (3, 2, 1, 32, 32)
    for step, levels in enumerate(([0.0, 0, 0], [1.0, 0.5, 0], [1.0, 1, 1])):
        with torch.no_grad():
            codes = model.encode(IMAGES[:2], torch.tensor([levels]).expand(2, -1))
            torch.testing.assert_close(made[step], model.decode(codes))


def test_a_nonordinal_traverse_ends_at_the_partner(model: Generator) -> None:
    made = nonordinal_traverse(model, IMAGES[:2], IMAGES[2:4], None, torch.tensor([0.0, 1.0]))
    with torch.no_grad():
        own, other = model.encode(IMAGES[:2]), model.encode(IMAGES[2:4])
        torch.testing.assert_close(made[0], model.decode(own))
        swapped = model.decode(Codes(own.ordinal, other.nonordinal))
        torch.testing.assert_close(made[1], swapped)
