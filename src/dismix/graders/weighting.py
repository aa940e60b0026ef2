"""Images and ranks that count more than others: weights, and means by them."""

from typing import Any

import torch
from torch import Tensor

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget


def require_weights(weights: Tensor | None, count: int) -> None:
    """Raise for weights that are not one number an image, or below 0.

    Args:
        weights: Of the images, or None.
        count: B.

    Example:
        >>> require_weights(torch.ones(8, 1), 8)
        Traceback (most recent call last):
        dismix.errors.DisMixError: weights must be (B,), not negative, got (8, 1); here that is (8,)
    """
    if weights is None:
        return
    must = "weights must be (B,), not negative"
    if not isinstance(weights, Tensor):
        raise DisMixError(
            f"{must}, got a {type(weights).__name__}", cure="give torch.as_tensor(weights)"
        )
    if tuple(weights.shape) != (count,):
        raise DisMixError(f"{must}, got {tuple(weights.shape)}", cure=f"here that is ({count},)")
    # A GPU would have to wait for the answer, and a compiled step would break at it.
    if weights.device.type != "cpu" or torch.compiler.is_compiling():
        return
    wrong = ~((weights >= 0) & weights.isfinite())
    if bool(wrong.any()):
        row = int(wrong.int().argmax())
        raise DisMixError(
            f"{must}, got {float(weights[row]):g} for image {row}",
            cure="give 0 to images that shall not count",
        )


def weighted_mean(values: Tensor, weights: Tensor | None) -> Tensor:
    """Return the weighted mean of values (...); all-zero weights give a connected zero.

    Example:
        >>> weighted_mean(torch.tensor([1.0, 4.0]), torch.tensor([2.0, 1.0]))
        tensor(2.)
    """
    if weights is None:
        return values.mean()
    return (values * weights).sum() / weights.sum().clamp_min(1e-12)


def without_ignored(weights: Tensor | None, *parts: Any) -> tuple[Any, ...]:
    """Return weights (B,) and what belongs to B images without those of weight 0.

    Losses that compare images with each other need it: as somebody's neighbour an image of
    weight 0 would still teach its label.

    Example:
        >>> without_ignored(torch.tensor([1.0, 0.0]), torch.tensor([7, 8]))
        (tensor([1.]), tensor([7]))
    """
    if weights is None or bool((weights > 0).all()):
        return weights, *parts
    rows = (weights > 0).nonzero().flatten()
    return weights[rows], *(part[rows] for part in parts)


def combine_weights(
    target: OrdinalTarget, per_rank: Tensor | None = None, per_sample: Tensor | None = None
) -> Tensor | None:
    """Return one weight (B,) an image: its own times the mean weight of its ranks.

    Args:
        target: Targets of the B images.
        per_rank: (C,) or None.
        per_sample: (B,) or None.

    Example:
        >>> target = OrdinalTarget.from_rank([0.0, 0.5], num_ranks=2)
        >>> combine_weights(target, per_rank=torch.tensor([1.0, 3.0]))
        tensor([1., 2.])
    """
    if per_rank is None:
        return per_sample
    mean = target.probs @ per_rank.to(target.probs)
    return mean if per_sample is None else mean * per_sample
