"""What a batch must look like before it is mixed, by its shape alone: no GPU has to wait for it."""

from collections.abc import Sequence

from torch import Tensor

from dismix.errors import DisMixError

#: Channels of pictures: grey, colour, colour with transparency.
CHANNELS = (1, 3, 4)


def require_batch(images: Tensor) -> None:
    """Raise for what is no batch of images.

    Args:
        images: Should be (B, channels, H, W), floating point, B >= 1.

    Example:
        >>> import torch
        >>> require_batch(torch.zeros(3, 64, 64))
        Traceback (most recent call last):
        dismix.errors.DisMixError: ... got torch.float32 (3, 64, 64); ... images.unsqueeze(0) ...
    """
    if not isinstance(images, Tensor):
        raise DisMixError(
            f"images are no tensor but of type {type(images).__name__}",
            cure="give torch.as_tensor(images), floating point (B, channels, H, W)",
        )
    if images.ndim == 4 and images.is_floating_point() and len(images) > 0:
        return
    if images.ndim == 3:
        cure = "give a batch; images.unsqueeze(0) is one of a single image (channels, H, W)"
    elif images.ndim != 4:
        cure = "give a batch of images (B, channels, H, W)"
    elif len(images) == 0:
        cure = "leave empty batches out"
    else:
        cure = "scale whole-number pixels first, for example to [-1, 1]"
    raise DisMixError(
        f"images must be floating point (B >= 1, channels, H, W), got {images.dtype}"
        f" {tuple(images.shape)}",
        cure=cure,
    )


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
