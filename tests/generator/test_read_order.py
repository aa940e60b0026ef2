"""What a reader's readings are worth: how well it orders real images."""

import json
import math

import pytest
import torch
from tests.generator.conftest import SmallRun
from torch import Tensor

from dismix.generator.images import SplitImages
from dismix.generator.read_order import ENOUGH, read_order, weak_note
from dismix.generator.validation import warn_if_weak
from dismix.labels import OrdinalTarget


def brightness(images: Tensor) -> Tensor:
    return images.mean(dim=(1, 2, 3))[:, None].expand(-1, 4)


def by_hand(first: list[float], second: list[float]) -> float:
    """Return Spearman's correlation, ties by their mean place, pair by pair."""

    def places(values: list[float]) -> list[float]:
        return [
            sum(other < value for other in values) + (values.count(value) - 1) / 2
            for value in values
        ]

    a, b = places(first), places(second)
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    above = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    spread = sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b)
    return above / math.sqrt(spread)


def test_it_is_the_rank_correlation_whatever_the_batches() -> None:
    rng = torch.Generator().manual_seed(2)
    images = torch.rand(40, 1, 4, 4, generator=rng)
    labels = torch.randint(5, (40,), generator=rng)
    wanted = by_hand(images.mean(dim=(1, 2, 3)).tolist(), labels.float().tolist())
    target = OrdinalTarget.from_labels(labels, 5)
    for batch_size in (7, 64):
        assert read_order(brightness, images, target, batch_size) == pytest.approx(wanted, abs=1e-6)


def test_readers_and_votes_that_say_nothing() -> None:
    images, labels = torch.rand(6, 1, 4, 4), torch.arange(6) % 3
    blind = lambda x: torch.zeros(len(x), 2)  # noqa: E731
    assert read_order(blind, images, OrdinalTarget.from_labels(labels, 3)) == 0.0
    same = OrdinalTarget.from_labels(torch.zeros(6, dtype=torch.long), 3)
    assert math.isnan(read_order(brightness, images, same))
    assert weak_note(math.nan, 100) == ""


def split_of(images: Tensor, labels: Tensor) -> SplitImages:
    pixels = ((images + 1) * 127.5).round().to(torch.uint8)
    return SplitImages(pixels, OrdinalTarget.from_labels(labels, 5), equalize=False)


def test_a_guide_that_reads_nothing_is_told_and_one_that_reads_is_not(
    recwarn: pytest.WarningsRecorder,
) -> None:
    labels = torch.arange(2 * ENOUGH) % 5
    telling = (labels / 4 - 0.5)[:, None, None, None].expand(-1, 1, 4, 4)
    warn_if_weak(brightness, split_of(telling, labels), 0, torch.device("cpu"))
    assert not recwarn.list
    # As dark or bright in every rank.
    shades = (torch.arange(2 * ENOUGH) // 5 / 12 - 0.5)[:, None, None, None].expand(-1, 1, 4, 4)
    with pytest.warns(UserWarning, match=r"hardly reads severity: on 60 .* is 0\.00.*guide_kind"):
        warn_if_weak(brightness, split_of(shades, labels), 0, torch.device("cpu"))


def test_a_run_keeps_it_beside_the_mixing_accuracy(small_run: SmallRun) -> None:
    lines = (small_run.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    last = json.loads(lines[-1])
    assert -1 <= last["reader_order_val"] <= 1
    assert "mixing_accuracy_val" in last
