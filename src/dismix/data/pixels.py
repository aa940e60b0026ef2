"""Whether a batch holds pixels that a network can read: a tensor of [-1, 1], or uint8."""

from torch import Tensor

from dismix.errors import DisMixError

#: Farther from zero than that no pixel of [-1, 1] lies, whatever was added to it.
FAR_OFF = 10.0


def require_pixels(images: Tensor) -> None:
    """Raise for what is no tensor, and for pixels from 0 to 255 that are not uint8.

    Args:
        images: (B, channels, H, W). Pixels on a GPU are not looked at: it would have to wait for
            the answer.

    Example:
        >>> import torch
        >>> require_pixels(torch.full((1, 1, 2, 2), 255.0))
        Traceback (most recent call last):
        dismix.errors.DisMixError: images have pixels of 255, and must be uint8 or within [-1, 1]; \
0 to 255 is images.to(torch.uint8), or images / 127.5 - 1
    """
    if not isinstance(images, Tensor):
        raise DisMixError(
            f"images are no tensor but of type {type(images).__name__}",
            cure="give torch.as_tensor(images), uint8 or within [-1, 1], (B, channels, H, W)",
        )
    if images.device.type == "cpu" and images.is_floating_point() and images.numel():
        far = float(images.detach().abs().max())
        if not far <= FAR_OFF:
            raise DisMixError(
                f"images have pixels of {far:g}, and must be uint8 or within [-1, 1]",
                cure="0 to 255 is images.to(torch.uint8), or images / 127.5 - 1",
            )
