"""Float32 islands inside mixed-precision code."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def full_precision(tensor: Tensor) -> AbstractContextManager[object]:
    """Return a context in which autocast leaves the operations on ``tensor`` alone.

    Inputs are not converted: call ``.float()`` inside. A no-op on devices that have no
    autocast, such as ``meta``.

    Example:
        >>> x = torch.ones(2, 2)
        >>> with torch.autocast("cpu", dtype=torch.bfloat16):
        ...     with full_precision(x):
        ...         print((x @ x).dtype)
        torch.float32
    """
    device_type = tensor.device.type
    if not torch.amp.is_autocast_available(device_type):
        return nullcontext()
    return torch.autocast(device_type, enabled=False)
