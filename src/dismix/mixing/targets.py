"""The form in which mixed targets are handed out, whatever the mixer.

Mixing two laws over the ranks is linear, so three of the forms say the same in other
words: ``soft`` the law (B, C), ``cumulative`` its levels (B, C-1), ``rank`` its mean (B,).
``unimodal`` is another target: half of grade 0 and half of grade 4 is a law with two peaks
although nobody would call such an image anything but "about 2". It keeps the mean and puts
it on the two nearest ranks. For single grades next to each other it equals ``soft``.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.laws import two_point_law
from dismix.registry import near_names

TargetForm = Literal["soft", "cumulative", "rank", "unimodal"]


def check_form(form: str) -> TargetForm:
    """Return the form, or say which ones there are."""
    if form not in get_args(TargetForm):
        raise DisMixError(
            f"unknown target form '{form}'", cure=near_names(form, list(get_args(TargetForm)))
        )
    return form  # type: ignore[return-value]


def unimodal(target: OrdinalTarget, rows: Tensor) -> OrdinalTarget:
    """Put the expected rank of some rows on the two ranks around it.

    Args:
        target: Targets of a batch.
        rows: (B,) bool, the rows to change; others keep their law, votes included.

    Example:
        >>> far = OrdinalTarget.from_probs(torch.tensor([[0.5, 0.0, 0.0, 0.0, 0.5]]))
        >>> unimodal(far, torch.tensor([True])).probs
        tensor([[0., 0., 1., 0., 0.]])
    """
    two = two_point_law(target.rank, target.num_ranks)
    # Rounding in the mean must not leave a row that sums to 0.99999.
    two = two / two.sum(-1, keepdim=True)
    return OrdinalTarget(torch.where(rows.unsqueeze(-1), two, target.probs), target.clean)


def smoothed(target: OrdinalTarget, rows: Tensor, sigma: float) -> OrdinalTarget:
    """Spread some rows over neighbouring ranks with a Gaussian of ``sigma`` ranks.

    Args:
        target: Targets of a batch.
        rows: (B,) bool, the rows to change.
        sigma: Deviation in ranks; 0 changes nothing.

    Example:
        >>> one = OrdinalTarget.from_labels([1], num_ranks=3)
        >>> smoothed(one, torch.tensor([True]), 0.5).probs
        tensor([[0.1065, 0.7870, 0.1065]])
    """
    if sigma <= 0:
        return target
    ranks = torch.arange(target.num_ranks, device=target.probs.device, dtype=torch.float32)
    kernel = torch.exp(-((ranks[:, None] - ranks) ** 2) / (2 * sigma**2))
    # Not a matrix product: autocast would round labels to bfloat16.
    spread = (target.probs.unsqueeze(2) * (kernel / kernel.sum(1, keepdim=True))).sum(1)
    return OrdinalTarget(torch.where(rows.unsqueeze(-1), spread, target.probs), target.clean)


def in_form(target: OrdinalTarget, form: TargetForm) -> Tensor:
    """Return targets as the tensor that a form names, float32.

    Example:
        >>> target = OrdinalTarget.from_rank([1.5], num_ranks=4)
        >>> in_form(target, "cumulative"), in_form(target, "rank")
        (tensor([[1.0000, 0.5000, 0.0000]]), tensor([1.5000]))
    """
    if form == "cumulative":
        return target.levels
    if form == "rank":
        return target.rank
    return target.probs
