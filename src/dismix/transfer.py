"""Small tensors on their way to a GPU, without waiting for it.

A plain copy from ordinary memory waits until the GPU has done all it was told before; in a step
of many small launches a handful of such copies leave it idle most of the time.
"""

import torch
from torch import Tensor


def onto(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Copy a small tensor to a device without waiting for what the device is doing.

    Example:
        >>> onto(torch.ones(2), "cpu")
        tensor([1., 1.])
    """
    device = torch.device(device)
    if device.type == "cuda" and tensor.device.type == "cpu":
        # Pinned memory cannot be filled through strides of 0, as expanded numbers have them.
        return tensor.contiguous().pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
