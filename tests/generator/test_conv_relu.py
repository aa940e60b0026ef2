"""Convolution, residual and ReLU in one: without a GPU, plain operations."""

import torch
from torch import nn

from dismix.generator.conv_relu import conv_relu, cudnn_fuses


def test_plain_operations_where_there_is_no_gpu() -> None:
    conv, x = nn.Conv2d(16, 16, 3, padding=1), torch.randn(2, 16, 6, 6)
    plus = torch.randn(2, 16, 6, 6, requires_grad=True)
    assert not cudnn_fuses(x.device, torch.bfloat16)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            assert torch.equal(conv_relu(x, conv, plus), torch.relu(conv(x) + plus))
            assert torch.equal(conv_relu(x, conv), torch.relu(conv(x)))
    conv_relu(x, conv, plus).sum().backward()
    assert plus.grad is not None
