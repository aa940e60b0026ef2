"""The random choices of one training step, drawn before anything is computed."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dismix.generator.guide import ViewDraws, draw_views
from dismix.generator.heads import Perturbation
from dismix.generator.model import Generator
from dismix.seeds import rng_of
from dismix.transfer import onto

# Share of the mixes of z_n that are whole swaps, as the policy order_swap makes them.
P_SWAP = 0.4


@dataclass(frozen=True)
class StepDraws:
    """The random choices of one step.

    Attributes:
        uncond: (B,) bool, images encoded without their label.
        asked: (B,) ranks, fractional ones too, at which images are decoded again.
        lam: (B,) share of an image's own z_n when its neighbour's is mixed in; 0 is a swap.
        shift: How far along the batch the neighbour is whose z_n is mixed in. Processes that
            share a batch divide it, so that the neighbours stay the same.
        views: How the guide sees those decodings.
        gains: (B, 3) brightness gains of the channels.
        crop: (2,) place of the crop that LPIPS compares, shares of the room there is.
        perturbation: What the decoder does not see of z_n, or None.
    """

    uncond: Tensor
    asked: Tensor
    lam: Tensor
    views: ViewDraws
    gains: Tensor
    crop: Tensor
    shift: int = 1
    perturbation: Perturbation | None = None

    def shard(self, rank: int, world_size: int) -> "StepDraws":
        """Return the part of process ``rank``, which holds every ``world_size``-th image."""
        part = slice(rank, None, world_size)
        noise = self.perturbation
        if noise is not None:
            noise = replace(
                noise,
                hidden=None if noise.hidden is None else noise.hidden[part],
                noise=None if noise.noise is None else noise.noise[part],
            )
        views = ViewDraws(self.views.matrix[part], self.views.noise[part], self.views.seed + rank)
        return StepDraws(
            self.uncond[part],
            self.asked[part],
            self.lam[part],
            views,
            self.gains[part],
            self.crop,
            max(1, self.shift // world_size),
            noise,
        )

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors, in a fixed order."""
        hidden, views = self.perturbation, self.views
        own = [self.uncond, self.asked, self.lam, self.gains, self.crop, views.matrix]
        more = [views.noise, views.field]
        if hidden is not None:
            more += [hidden.hidden, hidden.noise]
        return [*own, *(x for x in more if x is not None)]

    def with_noise(self, shape: torch.Size, device: torch.device) -> "StepDraws":
        """Draw the noise of the views, for images of a shape on their device."""
        return replace(self, views=self.views.filled(shape, device))

    def to(self, device: torch.device) -> "StepDraws":
        """Move to a device."""
        hidden = self.perturbation
        return replace(
            self,
            uncond=onto(self.uncond, device),
            asked=onto(self.asked, device),
            lam=onto(self.lam, device),
            gains=onto(self.gains, device),
            crop=onto(self.crop, device),
            views=self.views.to(device),
            perturbation=None if hidden is None else hidden.to(device),
        )


def draw_step(model: Generator, batch: int, generator: torch.Generator) -> StepDraws:
    """Draw the choices of a step for a batch of images."""
    uncond = model.draw_uncond(batch, generator)
    # Fractional ranks too: the mixer will ask for them.
    asked = torch.rand(batch, generator=generator) * (model.config.num_ranks - 1)
    swapped = torch.rand(batch, generator=generator) < P_SWAP
    lam = torch.rand(batch, generator=generator).masked_fill(swapped, 0.0)
    gains = torch.randn(batch, 3, generator=generator)
    crop = torch.rand(2, generator=generator)
    perturbation = model.draw_perturbation(batch, generator)
    views = draw_views(batch, generator)
    shift = 8 if batch > 8 else 1
    return StepDraws(uncond, asked, lam, views, gains, crop, shift, perturbation)


def with_gains(images: Tensor, gains: Tensor, strength: float) -> Tensor:
    """Make channels brighter or darker; black stays black.

    Args:
        images: (B, channels, H, W) in [-1, 1].
        gains: (B, 3) standard normal draws.
        strength: Deviation of the logarithm of the gains; 0 changes nothing.

    Example:
        >>> with_gains(torch.tensor([-1.0, 0.0]).view(1, 1, 1, 2), torch.ones(1, 3), 0.1).flatten()
        tensor([-1.0000,  0.1052])
    """
    if not strength:
        return images
    gain = torch.exp(strength * gains[:, : images.shape[1]].to(images))[:, :, None, None]
    return ((images + 1) * gain - 1).clamp(max=1.0)


def cropped(images: Tensor, size: int, place: Tensor) -> Tensor:
    """Return the crop of images (B, channels, H, W) at a place; a size of 0 crops nothing.

    Args:
        images: (B, channels, H, W).
        size: Pixels a side.
        place: (2,) shares of the room there is, from the top and from the left.

    Example:
        >>> cropped(torch.arange(16.0).view(1, 1, 4, 4), 2, torch.tensor([1.0, 0.0])).flatten()
        tensor([ 8.,  9., 12., 13.])
    """
    height, width = images.shape[-2:]
    if not size or size >= min(height, width):
        return images
    # By numbers on the device, so that a recorded step can be replayed with another place.
    steps = torch.arange(size, device=images.device)
    top, left = ((share * room).round().long() for share, room in
                 zip(place.unbind(), (height - size, width - size), strict=True))  # fmt: skip
    return images.index_select(2, top + steps).index_select(3, left + steps)


def step_rng(seed: int, epoch: int, step: int) -> torch.Generator:
    """Return a generator whose stream belongs to one step of one run."""
    return rng_of(seed, epoch, step)
