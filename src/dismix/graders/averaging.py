"""Averaged weights of a grader, batch statistics included."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from dismix.generator.ema import AveragedWeights


class AveragedState(AveragedWeights):
    """Exponential moving average of parameters and of floating-point buffers.

    Averaged weights with the batch statistics of the present ones would not fit together.

    Args:
        module: Module that is followed.
        decay: Share of the old average that stays at each update.

    Example:
        >>> average = AveragedState(nn.BatchNorm1d(1), decay=0.5)
        >>> sorted(average.tensors)
        ['bias', 'running_mean', 'running_var', 'weight']
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        super().__init__(module, decay)
        self.tensors = {name: t.detach().clone() for name, t in _followed(module).items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take the module's present state into the average."""
        present = [t.detach() for t in _followed(self.module).values()]
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        self.updates += 1
        torch._foreach_lerp_([*self.tensors.values()], present, 1.0 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the module the averaged state inside the block, in evaluation mode."""
        kept = {name: t.detach().clone() for name, t in _followed(self.module).items()}
        training = self.module.training
        self._put(self.tensors)
        self.module.eval()
        try:
            yield
        finally:
            self._put(kept)
            self.module.train(training)

    @torch.no_grad()
    def _put(self, tensors: dict[str, Tensor]) -> None:
        for name, tensor in _followed(self.module).items():
            tensor.copy_(tensors[name])


def _followed(module: nn.Module) -> dict[str, Tensor]:
    kept = module.state_dict(keep_vars=True)
    return {
        name: tensor
        for name, tensor in kept.items()
        if isinstance(tensor, Tensor) and tensor.is_floating_point()
    }
