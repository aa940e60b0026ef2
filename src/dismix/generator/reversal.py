"""Gradient reversal (Ganin and Lempitsky, 2015) and its ramp.

The identity forward; backward the gradient times ``-strength``, so whatever lies before it
unlearns what the classifier behind it learns.
"""

import math
from typing import Any

import torch
from torch import Tensor


class _Reverse(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, strength: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (strength,) = ctx.saved_tensors
        return gradient * -strength.to(gradient.dtype), None


def reverse_gradient(x: Tensor, strength: float | Tensor = 1.0) -> Tensor:
    """Pass ``x`` through unchanged and its gradient times ``-strength``.

    Args:
        x: Any tensor.
        strength: 0 blocks the gradient, 1 turns it round. A 0-d tensor saves a compiled
            model from recompiling when the strength changes.

    Example:
        >>> x = torch.tensor([2.0], requires_grad=True)
        >>> reverse_gradient(3 * x, 0.5).sum().backward()
        >>> x.grad
        tensor([-1.5000])
    """
    if not isinstance(strength, Tensor):
        # Filled on the device: a copy from the CPU would wait for it.
        strength = torch.full((), strength, dtype=torch.float32, device=x.device)
    reversed_x: Tensor = _Reverse.apply(x, strength)  # type: ignore[no-untyped-call]
    return reversed_x


def reversal_ramp(step: int, ramp_steps: int) -> float:
    """Return the reversal strength at ``step``: 0 at first, 1 from ``ramp_steps`` on.

    DANN's 2 / (1 + exp(-10 p)) - 1 at a share p of the ramp.

    Args:
        step: Steps done so far.
        ramp_steps: Length of the ramp; 0 means full strength at once.

    Example:
        >>> [round(reversal_ramp(s, 100), 2) for s in (0, 10, 50, 100)]
        [0.0, 0.46, 0.99, 1.0]
    """
    # paper: it names the layer only; a full-strength adversary that has learned nothing yet
    # sends noise, hence the ramp of the method's own paper.
    if step >= ramp_steps:
        return 1.0
    progress = max(step, 0) / ramp_steps
    return 2.0 / (1.0 + math.exp(-10.0 * progress)) - 1.0
