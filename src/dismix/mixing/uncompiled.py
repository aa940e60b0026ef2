"""Functions that a compiled training step must not trace, marked without loading the compiler."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")
# Looks for the compiler when it is called, not when it decorates; `torch.compiler.disable` loads
# it at once, which takes seconds of every start.
_disable = getattr(torch, "_disable_dynamo", torch.compiler.disable)


def uncompiled(function: Callable[P, T]) -> Callable[P, T]:
    """Keep a function, and what it calls, out of compiled graphs, as `torch.compiler.disable` does.

    Args:
        function: Any.

    Example:
        >>> uncompiled(lambda x: x + 1)(1)
        2
    """
    outside: Callable[P, T] = _disable(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        # Where the compiler was never loaded, nothing is being compiled.
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        return outside(*args, **kwargs)

    return call
