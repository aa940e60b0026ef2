"""Images and ranks that count more than others: weights, and means by them."""

from typing import Any

from torch import Tensor

from dismix.labels import OrdinalTarget


def weighted_mean(values: Tensor, weights: Tensor | None) -> Tensor:
    """Return the weighted mean of values (...); all-zero weights give a connected zero.

    Example:
        >>> import torch
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
        >>> import torch
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
        >>> import torch
        >>> target = OrdinalTarget.from_rank([0.0, 0.5], num_ranks=2)
        >>> combine_weights(target, per_rank=torch.tensor([1.0, 3.0]))
        tensor([1., 2.])
    """
    if per_rank is None:
        return per_sample
    mean = target.probs @ per_rank.to(target.probs)
    return mean if per_sample is None else mean * per_sample
