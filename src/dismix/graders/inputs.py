"""What losses are given, looked at by shape alone: no GPU has to wait for it."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from dismix.errors import DisMixError
from dismix.graders.weighting import require_weights
from dismix.labels import OrdinalTarget


def law_of(
    target: Tensor | Sequence[int] | OrdinalTarget, num_ranks: int, weights: Tensor | None = None
) -> OrdinalTarget:
    """Return the targets of a batch, and see that its weights are one an image.

    Args:
        target: Labels (B,), laws (B, C) or a target.
        num_ranks: C.
        weights: (B,) or None.
    """
    law = OrdinalTarget.coerce(target, num_ranks)
    require_weights(weights, len(law))
    return law


def require_shape(name: str, values: Tensor, sizes: Mapping[str, int | None]) -> None:
    """Raise for a tensor of another shape: broadcasting would make a wrong loss of it.

    Args:
        name: What it is called.
        values: The tensor.
        sizes: Its dimensions by their letters, in order; None where any size will do.

    Example:
        >>> import torch
        >>> require_shape("logits", torch.zeros(8, 4), {"B": 8, "C-1": 4})
        >>> require_shape("logits", torch.zeros(8, 1), {"B": 8, "C-1": 4})
        Traceback (most recent call last):
        dismix.errors.DisMixError: logits must be (B, C-1), got (8, 1); here that is (8, 4)
    """
    found = tuple(values.shape)
    if len(found) == len(sizes) and all(
        want is None or have == want for have, want in zip(found, sizes.values(), strict=True)
    ):
        return
    here = [letter if size is None else str(size) for letter, size in sizes.items()]
    raise DisMixError(
        f"{name} must be ({', '.join(sizes)}), got {found}",
        cure=f"here that is ({', '.join(here)})",
    )


def given_laws(method: Callable[..., dict[str, Tensor]]) -> Callable[..., dict[str, Tensor]]:
    """Return a grader's `training_loss` that gets an `OrdinalTarget`, whatever it was given.

    Args:
        method: Of a `Grader`.
    """

    @functools.wraps(method)
    def training_loss(
        grader: Any, images: Tensor, target: Any, stage: Any, weights: Tensor | None = None
    ) -> dict[str, Tensor]:
        law = law_of(target, grader.num_ranks, weights)
        if len(images) != len(law):
            raise DisMixError(
                f"there are {len(images)} images and {len(law)} targets",
                cure="give one target for each image",
            )
        return method(grader, images, law, stage, weights)

    return training_loss
