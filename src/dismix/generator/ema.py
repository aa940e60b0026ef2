"""Averaged weights: calmer than the raw ones, and what is saved and judged."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from dismix.modes import evaluating


class AveragedWeights:
    """Exponential moving average of a module's parameters.

    Args:
        module: Module whose parameters are followed.
        decay: Share of the old average that stays at each update; 0 follows exactly. The
            first updates keep less, so that a short training is not an average of its start.

    Example:
        >>> layer = nn.Linear(1, 1, bias=False)
        >>> average = AveragedWeights(layer, decay=0.5)
        >>> with torch.no_grad():
        ...     _ = layer.weight.zero_()
        >>> before = average.tensors["weight"].clone()
        >>> average.update()
        >>> torch.allclose(average.tensors["weight"], before / 10)
        True
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.module, self.decay, self.updates = module, decay, 0
        self.tensors = {name: t.detach().clone() for name, t in self.followed().items()}

    def followed(self) -> dict[str, Tensor]:
        """Return what is averaged, by name."""
        return dict(self.module.named_parameters())

    @torch.no_grad()
    def update(self) -> None:
        """Take the module's present state into the average."""
        present = [t.detach() for t in self.followed().values()]
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        self.updates += 1
        torch._foreach_lerp_([*self.tensors.values()], present, 1.0 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the module the averaged weights inside the block, in evaluation mode."""
        kept = {name: t.detach().clone() for name, t in self.followed().items()}
        self._put(self.tensors)
        try:
            with evaluating(self.module):
                yield
        finally:
            self._put(kept)

    @torch.no_grad()
    def _put(self, tensors: dict[str, Tensor]) -> None:
        for name, tensor in self.followed().items():
            tensor.copy_(tensors[name])
