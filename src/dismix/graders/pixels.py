"""Images to be graded: what cannot be meant is an error, what hardly can be a warning."""

import warnings

import torch
from torch import Tensor

from dismix.data.pixels import require_pixels

#: Sharpened pictures stay within; those of ImageNet's normalisation do not.
BEYOND = 2.0


class PixelCheck:
    """Looks at images before they are graded, and warns once of what looks wrong.

    Example:
        >>> PixelCheck()(torch.full((1, 3, 8, 8), 255.0))
        Traceback (most recent call last):
        dismix.errors.DisMixError: images have pixels of 255, ... or images / 127.5 - 1
    """

    def __init__(self) -> None:
        self._looked = False
        self._sized = False

    def __call__(self, images: Tensor, size: int | None = None) -> None:
        """Raise, warn, or do nothing.

        Args:
            images: Should be (B, channels, H, W), uint8 or within [-1, 1].
            size: H and W of the training images, if known.
        """
        # A compiled step would break where values are looked at.
        found = None
        if not (self._looked and torch.compiler.is_compiling()):
            found = require_pixels(images, wait=not self._looked)
        height, width = images.shape[-2:] if images.ndim == 4 else (size, size)
        if size is not None and not self._sized and (height, width) != (size, size):
            self._sized = True
            _warn(
                f"these images are {height} x {width} px, and this grader learned from {size} x"
                f" {size}: resize them, or give their files to predict_files"
            )
        if found is None or self._looked:
            return
        low, high = found
        if max(-low, high) > BEYOND or 0 <= low < high <= 1:
            _warn(
                f"these images have pixels from {low:.3g} to {high:.3g}, which does not look like"
                " [-1, 1]: give uint8, or scale them (0 to 1 is images * 2 - 1)"
            )
        # One constant batch, as of a trial run, says nothing of those that follow.
        self._looked = low < high


def _warn(text: str) -> None:
    # Of the one who calls `Grader.predict`, which torch.no_grad wraps.
    warnings.warn(text, stacklevel=5)
