"""Nearest neighbours among the reference images, in bounded memory."""

import torch
from torch import Tensor

from dismix.graders.base import full_precision

# Reference rows compared at a time: 2**15 of them take 8 MiB for a batch of 64.
CHUNK = 2**15


def nearest_neighbours(features: Tensor, reference: Tensor, count: int) -> Tensor:
    """Return the positions (B, k) of the nearest reference vectors, nearest first.

    The reference is gone through in chunks, of which the best are kept, so memory does not
    grow with it and the number of steps does not depend on the batch (which may be symbolic
    in an export).

    Args:
        features: (B, D).
        reference: (N, D).
        count: k; no more than N are returned.

    Example:
        >>> nearest_neighbours(torch.tensor([[0.9]]), torch.tensor([[0.0], [1.0], [3.0]]), 2)
        tensor([[1, 0]])
    """
    features, reference = features.float(), reference.float()
    nearest: list[Tensor] = []
    places: list[Tensor] = []
    # A product rounded to bfloat16 would name other neighbours more often than not.
    with full_precision(features):
        for number, chunk in enumerate(torch.split(reference, CHUNK)):
            # The square of the feature itself is the same for every candidate.
            apart = chunk.square().sum(1) - 2.0 * features @ chunk.T
            near, place = apart.topk(min(count, len(chunk)), largest=False)
            nearest.append(near)
            places.append(place + number * CHUNK)
    if len(places) == 1:
        return places[0]
    together = torch.cat(nearest, 1)
    _, kept = together.topk(min(count, len(reference)), largest=False)
    return torch.cat(places, 1).gather(1, kept)
