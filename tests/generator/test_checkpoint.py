"""Checkpoints: what comes back is laid out in memory as what learns."""

from pathlib import Path

import torch
from torch import nn

from dismix.generator.checkpoint import load_training, save_training
from dismix.generator.ema import AveragedWeights


def test_moments_come_back_in_the_layout_of_the_weights(tmp_path: Path) -> None:
    def made() -> tuple[nn.Module, torch.optim.Optimizer, AveragedWeights]:
        torch.manual_seed(0)
        net = nn.Conv2d(4, 8, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return net, torch.optim.Adam(net.parameters(), 0.1), AveragedWeights(net, 0.9)

    images = torch.rand(2, 4, 8, 8)

    def step(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        net(images).square().sum().backward()
        optimizer.step()

    net, optimizer, average = made()
    step(net, optimizer)
    save_training(tmp_path, {"net": net}, {"net": optimizer}, average, {})
    again, its_optimizer, its_average = made()
    load_training(tmp_path, {"net": again}, {"net": its_optimizer}, its_average)
    for parameter, slots in its_optimizer.state.items():
        assert slots["exp_avg"].stride() == parameter.stride()
        assert slots["exp_avg_sq"].stride() == parameter.stride()
        assert slots["step"] == 1
    step(net, optimizer)
    step(again, its_optimizer)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))
