"""What a batch must look like before it is mixed, by its shape alone: no GPU has to wait for it."""

from collections.abc import Sequence

from torch import Tensor

from dismix.errors import DisMixError

#: Channels of pictures: grey, colour, colour with transparency.
CHANNELS = (1, 3, 4)


def require_channels_first(images: Tensor, channels: Sequence[int] = ()) -> None:
    """Raise for images (B, H, W, channels), which would be mixed into something silent and wrong.

    Args:
        images: Four-dimensional.
        channels: Numbers of channels that a mixer takes; any when left out, as long as the shape
            cannot only be that of channels that come last.

    Example:
        >>> import torch
        >>> require_channels_first(torch.zeros(2, 64, 64, 3))
        Traceback (most recent call last):
        dismix.errors.DisMixError: images of shape (2, 64, 64, 3) look like (B, H, W, channels); ...
    """
    second, third, last = images.shape[1:]
    # A map of features may well be 3 or 4 wide; a picture's H and W are larger.
    if last in CHANNELS and second not in CHANNELS and min(second, third) > max(CHANNELS):
        raise DisMixError(
            f"images of shape {tuple(images.shape)} look like (B, H, W, channels)",
            cure="give images.permute(0, 3, 1, 2)",
        )
    if channels and second not in channels:
        raise DisMixError(
            f"images of shape {tuple(images.shape)} have {second} channels, not"
            f" {' or '.join(map(str, channels))}",
            cure="give grey or RGB images as (B, channels, H, W)",
        )
