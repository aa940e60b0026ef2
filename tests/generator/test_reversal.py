import math
from itertools import pairwise

import pytest
import torch

from dismix.generator.reversal import reversal_ramp, reverse_gradient


@pytest.mark.parametrize("strength", [0.0, 0.3, 1.0, 2.5])
def test_identity_forward_and_scaled_negative_backward(strength: float) -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, generator=rng, dtype=torch.float64, requires_grad=True)
    out = reverse_gradient(x, strength)
    assert torch.equal(out, x)
    upstream = torch.randn(3, 5, generator=rng, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(out, x, upstream)
    torch.testing.assert_close(gradient, -strength * upstream, rtol=1e-6, atol=0.0)


def test_strength_may_be_a_tensor_and_gets_no_gradient() -> None:
    x = torch.ones(2, requires_grad=True)
    strength = torch.tensor(0.5, requires_grad=True)
    reverse_gradient(x, strength).sum().backward()
    assert torch.equal(x.grad, torch.full((2,), -0.5))
    assert strength.grad is None


def test_bfloat16_stays_bfloat16() -> None:
    x = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)
    out = reverse_gradient(x, 0.5)
    out.sum().backward()
    assert out.dtype == x.grad.dtype == torch.bfloat16
    assert x.grad.tolist() == [-0.5, -0.5]


def test_a_reversed_classifier_learns_while_its_input_unlearns() -> None:
    # One descent step with GRL: the classifier's own step lowers the loss, the feature's raises it.
    feature = torch.tensor([[1.0, -1.0]], requires_grad=True)
    weight = torch.tensor([[0.3, -0.2]], requires_grad=True)

    def loss(f: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        logit = (reverse_gradient(f) * w).sum()
        return torch.nn.functional.binary_cross_entropy_with_logits(logit, torch.tensor(1.0))

    before = loss(feature, weight)
    before.backward()
    with torch.no_grad():
        assert loss(feature, weight - 0.1 * weight.grad) < before
        assert loss(feature - 0.1 * feature.grad, weight) > before


def test_ramp_rises_from_zero_to_one() -> None:
    values = [reversal_ramp(step, 40) for step in range(60)]
    assert values[0] == 0.0
    assert values[40:] == [1.0] * 20
    assert all(a <= b for a, b in pairwise(values))
    assert reversal_ramp(0, 0) == 1.0
    assert math.isclose(reversal_ramp(10, 40), 2 / (1 + math.exp(-2.5)) - 1)
