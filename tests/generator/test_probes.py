"""Probes find what is there, find nothing where nothing is, and do so alike each time."""

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score

from dismix.generator.model import Generator
from dismix.generator.probes import (
    conv_probe,
    encode_split,
    linear_probe,
    probe_generator,
    score,
    some_rows,
)


def codes(ranks: np.ndarray, strength: float, seed: int) -> torch.Tensor:
    """Noise (N, 4, 4, 4) with a trace of the rank in one channel."""
    rng = torch.Generator().manual_seed(seed)
    noise = torch.randn(len(ranks), 4, 4, 4, generator=rng)
    noise[:, 1] += strength * torch.from_numpy(ranks).float()[:, None, None]
    return noise


FIT, HELD_OUT = np.arange(240) % 3, np.arange(90) % 3


@pytest.mark.parametrize("kind", ["linear", "conv"])
def test_they_read_what_is_there_and_nothing_else(kind: str) -> None:
    def probe(strength: float):
        pair = codes(FIT, strength, 0), FIT, codes(HELD_OUT, strength, 1), HELD_OUT
        if kind == "linear":
            return linear_probe(*pair)
        return conv_probe(*pair, num_ranks=3, epochs=8)

    assert probe(1.0).accuracy > 0.8
    # Three standard deviations of chance at 90 images.
    assert abs(probe(0.0).balanced - 1 / 3) < 0.15


@pytest.mark.parametrize("rank", [0, 2])
def test_what_is_scored_has_no_say_in_the_scale(rank: int) -> None:
    """Images of one rank alone would have none of it left by a mean of their own."""
    held_out = np.full(60, rank)
    pair = codes(FIT, 1.0, 0), FIT, codes(held_out, 1.0, 1), held_out
    assert linear_probe(*pair).accuracy > 0.8
    assert conv_probe(*pair, num_ranks=3, epochs=8).accuracy > 0.8


def test_the_convolutional_one_sees_what_a_linear_one_cannot() -> None:
    # The rank is the sign pattern's parity: no linear function of the codes.
    def parity(ranks: np.ndarray, seed: int) -> torch.Tensor:
        noise = 0.1 * codes(ranks, 0.0, seed)
        signs = torch.randint(2, (len(ranks), 1, 1), generator=torch.Generator().manual_seed(seed))
        noise[:, 0] += (2.0 * signs - 1) * (2 * torch.from_numpy(ranks)[:, None, None] - 1)
        noise[:, 1] += 2.0 * signs - 1
        return noise

    fit, held_out = np.arange(200) % 2, np.arange(80) % 2
    pair = parity(fit, 0), fit, parity(held_out, 1), held_out
    assert linear_probe(*pair).accuracy < 0.7
    assert conv_probe(*pair, num_ranks=2, epochs=12).accuracy > 0.9


def test_nothing_drawn_elsewhere_changes_a_probe() -> None:
    pair = codes(FIT, 0.3, 0), FIT, codes(HELD_OUT, 0.3, 1), HELD_OUT
    first = conv_probe(*pair, num_ranks=3, epochs=2)
    torch.rand(11)
    state = torch.random.get_rng_state()
    assert conv_probe(*pair, num_ranks=3, epochs=2) == first
    assert torch.equal(torch.random.get_rng_state(), state)


def test_scores_against_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(0, 4, 50), rng.integers(0, 4, 50)
    found = score(predicted, truth)
    assert found.balanced == pytest.approx(balanced_accuracy_score(truth, predicted))
    assert found.mae == pytest.approx(np.abs(truth - predicted).mean())


def test_labels_never_reach_the_codes_that_are_probed(small_run, monkeypatch) -> None:
    from dismix.data.manifest import read_manifest
    from dismix.generator.images import load_split

    seen: list[object] = []
    plain = Generator.encode

    def encode(self, images, levels=None):
        seen.append(levels)
        return plain(self, images, levels)

    monkeypatch.setattr(Generator, "encode", encode)
    model = Generator.load(small_run.run)
    data = read_manifest(small_run.data)
    train, test = (load_split(data, s, 32, device=torch.device("cpu")) for s in ("train", "test"))
    found = probe_generator(model, train, test, conv=False, most=25)
    assert set(found) == {"ordinal_linear", "nonordinal_linear"}
    assert seen
    assert all(levels is None for levels in seen)
    rows = some_rows(len(train), 25)
    assert len(encode_split(model, train, rows)) == 25
