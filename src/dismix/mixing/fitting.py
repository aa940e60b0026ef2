"""Between the caller's images and the generator's: normalisation, size and channels."""

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from dismix.errors import DisMixError
from dismix.transfer import onto

if TYPE_CHECKING:
    from dismix.generator.model import Generator

#: Pixels beyond this, and beyond so many times what black and white become, are an error: 0 to 255
#: among [-1, 1] or ImageNet's normalisation, say.
FAR, FAR_TIMES = 10.0, 4.0


class Normalisation:
    """How the caller's pixels relate to a scale of 0 to 1: ``(pixel - mean) / std``.

    Args:
        mean: One number or one a channel.
        std: Likewise; above 0.

    Example:
        >>> norm = Normalisation(0.5, 0.5)  # the package's own [-1, 1]
        >>> norm.restored(torch.full((1, 1, 2, 2), 0.25), torch.zeros(1, 3, 2, 2)).shape
        torch.Size([1, 3, 2, 2])
    """

    def __init__(self, mean: float | Sequence[float], std: float | Sequence[float]) -> None:
        self.mean = torch.as_tensor(mean, dtype=torch.float32).view(1, -1, 1, 1)
        self.std = torch.as_tensor(std, dtype=torch.float32).view(1, -1, 1, 1)
        if not bool((self.std > 0).all()):
            raise DisMixError(f"std is {std}", cure="give numbers above 0")
        # The package's own scale of [-1, 1], on which there is nothing to do.
        self.own = bool((self.mean == 0.5).all() and (self.std == 0.5).all())
        self._looked = False

    def for_generator(self, images: Tensor, model: "Generator") -> Tensor:
        """Return images as the generator takes them: [-1, 1], its size, its channels.

        Args:
            images: (B, channels, H, W) in the caller's normalisation.
            model: The generator.
        """
        self._check(images)
        unit = images.float()
        if not self.own:
            unit = 2 * (unit * onto(self.std, unit.device) + onto(self.mean, unit.device)) - 1
        if unit.shape[1] != model.in_channels:
            unit = _channels(unit, model.in_channels)
        return _sized(unit, (model.image_size, model.image_size)).clamp(-1, 1)

    def restored(self, mixes: Tensor, like: Tensor) -> Tensor:
        """Return mixes (M, channels, H, W) in [-1, 1] as the caller's images are.

        Args:
            mixes: Decoded pictures.
            like: Images whose channels, size, type and device are wanted.
        """
        self._check(like)
        mixes = mixes.to(like.device)
        if mixes.shape[1] != like.shape[1]:
            mixes = _channels(mixes, like.shape[1])
        mixes = _sized(mixes, (like.shape[2], like.shape[3]))
        if not self.own:
            mixes = ((mixes + 1) / 2 - onto(self.mean, like.device)) / onto(self.std, like.device)
        return mixes.to(like.dtype)

    def unit(self, images: Tensor) -> Tensor:
        """Return the caller's images (B, channels, H, W) as pixels of 0 to 1, float32."""
        self._check(images)
        std, mean = onto(self.std, images.device), onto(self.mean, images.device)
        return (images.float() * std + mean).clamp(0, 1)

    def from_unit(self, pixels: Tensor, like: Tensor) -> Tensor:
        """Return pixels (M, channels, H, W) of 0 to 1 in the normalisation and type of others."""
        std, mean = onto(self.std, pixels.device), onto(self.mean, pixels.device)
        return ((pixels.clamp(0, 1) - mean) / std).to(like.dtype)

    def _check(self, images: Tensor) -> None:
        channels = images.shape[1]
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values.shape[1] not in (1, channels):
                raise DisMixError(
                    f"{name} has {values.shape[1]} numbers for images of {channels} channels",
                    cure="give one number, or one a channel",
                )
        # Looking makes a GPU wait, so there only the first batch is looked at; and a compiled step
        # would break at it.
        if not self._looked or (images.device.type == "cpu" and not torch.compiler.is_compiling()):
            self._refuse_far(images)
        if not self._looked:
            self._looked = True
            self._look(images)

    def _refuse_far(self, images: Tensor) -> None:
        """Raise for pixels that no picture of this normalisation has, and for NaN."""
        low, high = torch.stack(images.detach().aminmax()).tolist()
        if not (math.isfinite(low) and math.isfinite(high)):
            raise DisMixError(
                "images hold pixels that are NaN or infinite", cure="look at what made them"
            )
        # Of black and of white; sharpened or standardised pictures go beyond, but not so far.
        ends = torch.maximum(self.mean.abs(), (1 - self.mean).abs()) / self.std
        if max(-low, high) > max(FAR, FAR_TIMES * float(ends.max())):
            raise DisMixError(
                f"images have pixels from {low:.3g} to {high:.3g}, far outside of [-1, 1] or the"
                " given mean and std",
                cure="scale them, or give the mixer the mean and std of yours",
            )

    def _look(self, images: Tensor) -> None:
        """Warn of pixels on another scale, once."""
        unit = images.float() * self.std.to(images.device) + self.mean.to(images.device)
        low, high = (float(v) for v in unit.aminmax())
        if low < -0.5 or high > 1.5 or (self.own and 0.5 <= low < high <= 1):
            found = f"{float(images.min()):.3g} to {float(images.max()):.3g}"
            warnings.warn(
                f"these images have pixels from {found}, which does not look like [-1, 1] or the"
                " given mean and std; scale them, or give the mixer the mean and std of yours",
                stacklevel=2,
            )


def _channels(images: Tensor, wanted: int) -> Tensor:
    if wanted == 1:
        return images.mean(1, keepdim=True)
    if images.shape[1] == 1:
        return images.expand(-1, wanted, -1, -1)
    raise DisMixError(
        f"images have {images.shape[1]} channels, {wanted} are wanted",
        cure="give grey or RGB images, as the generator was trained on",
    )


def _sized(images: Tensor, size: tuple[int, int]) -> Tensor:
    if tuple(images.shape[2:]) == size:
        return images
    return F.interpolate(images, size, mode="bilinear", antialias=True, align_corners=False)
