"""Images and ranks that count more than others: weights, and means by them."""

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
