"""Averaged weights against a plain loop."""

import torch
from torch import nn

from dismix.generator.ema import AveragedWeights


def test_equals_a_plain_loop() -> None:
    layer = nn.Linear(3, 2)
    average = AveragedWeights(layer, decay=0.6)
    expected, rng = layer.weight.detach().clone(), torch.Generator().manual_seed(0)
    for step in range(20):
        with torch.no_grad():
            layer.weight.copy_(torch.randn(2, 3, generator=rng))
        average.update()
        decay = min(0.6, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * layer.weight.detach()
    torch.testing.assert_close(average.tensors["weight"], expected)


def test_no_decay_follows() -> None:
    layer = nn.Linear(2, 2)
    average = AveragedWeights(layer, decay=0.0)
    with torch.no_grad():
        layer.weight.add_(1.0)
    average.update()
    assert torch.equal(average.tensors["weight"], layer.weight)


def test_applied_gives_back_the_raw_weights() -> None:
    layer = nn.Linear(2, 2).train()
    average = AveragedWeights(layer, decay=0.9)
    with torch.no_grad():
        layer.weight.add_(1.0)
    raw = layer.weight.detach().clone()
    with average.applied():
        assert torch.equal(layer.weight, average.tensors["weight"])
        assert not layer.training
    assert torch.equal(layer.weight, raw)
    assert layer.training
