"""Joined convolutions and ReLUs: the same results, gradients and keys as apart."""

import copy

import pytest
import torch
from torch import Tensor, nn

from dismix import conv_relu as module
from dismix.conv_relu import ConvReLU, conv_relu, cudnn_fuses, join_relus


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("added", [True, False])
@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_of_the_fused_operation(biased: bool, added: bool, groups: int) -> None:
    rng = torch.Generator().manual_seed(0)

    def leaf(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64).requires_grad_()

    x, weight = leaf(2, 4, 5, 5), leaf(4, 4 // groups, 3, 3)
    bias, plus = leaf(4) if biased else None, leaf(2, 4, 3, 3) if added else None
    where = ((2, 2), (1, 1), (1, 1), groups)
    # Against finite differences, an implementation that shares nothing with it.
    assert torch.autograd.gradcheck(
        lambda *given: module._ConvReLU.apply(*given, *where), (x, weight, bias, plus)
    )


def test_a_way_that_wants_no_gradient_gets_none() -> None:
    x = torch.rand(1, 2, 4, 4)
    weight = torch.rand(2, 2, 3, 3, requires_grad=True)
    made = module._ConvReLU.apply(x, weight, None, None, (1, 1), (1, 1), (1, 1), 1)
    made.sum().backward()
    assert x.grad is None
    assert weight.grad is not None


def test_plain_operations_where_there_is_no_gpu() -> None:
    conv, x = nn.Conv2d(3, 4, 3, padding=1), torch.randn(2, 3, 6, 6)
    plus = torch.randn(2, 4, 6, 6)
    assert not cudnn_fuses(x.device, torch.bfloat16)
    assert torch.equal(conv_relu(x, conv, plus), torch.relu(conv(x) + plus))
    reflected = nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect")
    assert torch.equal(conv_relu(x, reflected), torch.relu(reflected(x)))
    same = nn.Conv2d(3, 4, 3, padding="same")
    assert torch.equal(conv_relu(x, same), torch.relu(same(x)))


def test_joining_keeps_keys_weights_and_results() -> None:
    apart = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Sequential(nn.Conv2d(4, 4, 3, bias=False), nn.ReLU()), nn.Conv2d(4, 2, 1),
    )  # fmt: skip
    joined = copy.deepcopy(apart)
    join_relus(joined)
    assert [type(m) for m in joined.modules()].count(ConvReLU) == 2
    assert list(joined.state_dict()) == list(apart.state_dict())
    joined.load_state_dict(apart.state_dict())
    x = torch.randn(2, 1, 8, 8)
    torch.testing.assert_close(joined(x), apart(x), rtol=0, atol=0)
    joined(x).sum().backward()
    apart(x).sum().backward()
    for one, other in zip(joined.parameters(), apart.parameters(), strict=True):
        assert one.grad is not None
        torch.testing.assert_close(one.grad, other.grad)
