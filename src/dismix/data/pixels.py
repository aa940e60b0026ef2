"""Whether a batch holds pixels that a network can read: a tensor of [-1, 1], or uint8."""

import torch
from torch import Tensor

from dismix.errors import DisMixError

#: No picture within [-1, 1] comes near it, however it was sharpened.
FAR_OFF = 10.0


def require_pixels(images: Tensor, *, wait: bool = False) -> tuple[float, float] | None:
    """Raise for what is no tensor, and for pixels from 0 to 255 that are not uint8.

    Args:
        images: (B, channels, H, W).
        wait: Look at pixels on a GPU too, which has to wait for the answer.

    Returns:
        The lowest and the highest pixel, where they were looked at.

    Example:
        >>> require_pixels(torch.tensor([[0.0, -0.5], [1.0, 0.25]]))
        (-0.5, 1.0)
        >>> require_pixels(torch.full((1, 1, 2, 2), 255.0))
        Traceback (most recent call last):
        dismix.errors.DisMixError: images have pixels of 255, ... or images / 127.5 - 1
    """
    if not isinstance(images, Tensor):
        raise DisMixError(
            f"images are no tensor but of type {type(images).__name__}",
            cure="give torch.as_tensor(images), uint8 or within [-1, 1], (B, channels, H, W)",
        )
    if not images.is_floating_point() or not images.numel():
        return None
    if images.device.type != "cpu" and not wait:
        return None
    low, high = torch.stack(images.detach().aminmax()).tolist()
    far = max(-low, high)
    # `not far <=` rather than `far >`, so that NaN is caught too.
    if not far <= FAR_OFF:
        raise DisMixError(
            f"images have pixels of {far:g}, and must be uint8 or within [-1, 1]",
            cure="0 to 255 is images.to(torch.uint8), or images / 127.5 - 1",
        )
    return low, high
