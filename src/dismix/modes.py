"""A network in evaluation mode for a while; what stayed frozen before is frozen after."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluate a module, and give each of its parts its own mode back.

    ``module.train(mode)`` would set all parts alike: normalisation that its user keeps frozen in
    evaluation mode would begin to move.

    Example:
        >>> network = nn.Sequential(nn.BatchNorm2d(3).eval(), nn.Dropout())
        >>> with evaluating(network):
        ...     network.training
        False
        >>> network.training, network[0].training, network[1].training
        (True, False, True)
    """
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
