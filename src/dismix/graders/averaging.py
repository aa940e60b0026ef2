"""Averaged weights of a grader, batch statistics included."""

from torch import Tensor

from dismix.generator.ema import AveragedWeights
from dismix.generator.processes import average


class AveragedState(AveragedWeights):
    """Exponential moving average of parameters and of floating-point buffers.

    Averaged weights with the batch statistics of the present ones would not fit together.

    Args:
        module: Module that is followed.
        decay: Share of the old average that stays at each update.

    Example:
        >>> from torch import nn
        >>> average = AveragedState(nn.BatchNorm1d(1), decay=0.5)
        >>> sorted(average.tensors)
        ['bias', 'running_mean', 'running_var', 'weight']
    """

    def followed(self) -> dict[str, Tensor]:
        """Return parameters and floating-point buffers by name."""
        kept = self.module.state_dict(keep_vars=True)
        return {
            name: tensor
            for name, tensor in kept.items()
            if isinstance(tensor, Tensor) and tensor.is_floating_point()
        }

    def share_statistics(self) -> None:
        """Give all processes the mean of their batch statistics, present and averaged ones.

        Each process sees its own part of every batch. Unshared, each would judge by statistics of
        its own, and fit a head to features of its own once their encoder is frozen. What is in
        evaluation mode has not moved and is left alone.
        """
        names = [
            f"{name}.{kind}"
            for name, module in self.module.named_modules()
            if module.training and getattr(module, "running_mean", None) is not None
            for kind in ("running_mean", "running_var")
        ]
        average([source[n] for source in (self.followed(), self.tensors) for n in names])
