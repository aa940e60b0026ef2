"""Batched image transforms that run on whatever device holds the images.

Random choices are drawn first, for all images of an epoch if one likes, from an explicit
generator; applying them is pure. Flips and rotation are one resampling.

What a rotation uncovers is black. Repeating or mirroring the border instead would copy
tissue, and a copied lesion can change the grade; black is the background of fundus
photographs, X-rays and torchvision's ``RandomRotation`` alike.

On an accelerator every step is one operation on the whole batch. On a CPU single images go
through a pool of ``torch.get_num_threads()`` threads instead: one image stays within the
caches, and the threads never wait for each other before the batch is done, which on a
shared machine makes several times the difference.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from dismix.errors import DisMixError
from dismix.transfer import onto

T = TypeVar("T")


@dataclass(frozen=True)
class AugmentParams:
    """Random choices for B images: flips are applied first, then the rotation.

    Attributes:
        flip_h: (B,) bool, mirror left and right.
        flip_v: (B,) bool, mirror top and bottom.
        angle: (B,) float32, degrees, counter-clockwise.
    """

    flip_h: Tensor
    flip_v: Tensor
    angle: Tensor

    def __len__(self) -> int:
        return len(self.angle)

    def __getitem__(self, index: Tensor | slice) -> "AugmentParams":
        return AugmentParams(self.flip_h[index], self.flip_v[index], self.angle[index])


def draw_augment(
    count: int,
    generator: torch.Generator,
    *,
    flips: tuple[float, float] = (0.5, 0.5),
    max_degrees: float = 20.0,
) -> AugmentParams:
    """Draw flips and rotations for ``count`` images.

    Args:
        count: Number of images B.
        generator: Source of the draws; the same number is taken whatever the options.
        flips: Chances of a horizontal and of a vertical flip.
        max_degrees: Angles are uniform and strictly smaller than this, either way.

    Example:
        >>> params = draw_augment(3, torch.Generator().manual_seed(0))
        >>> params.flip_h, params.angle
        (tensor([ True, False,  True]), tensor([-0.3963, 15.8578, -1.7749]))
    """
    draws = torch.rand(3, count, dtype=torch.float32, generator=generator, device=generator.device)
    limit = np.nextafter(np.float32(max_degrees), np.float32(0))
    angle = ((2 * draws[2] - 1) * max_degrees).clamp(-float(limit), float(limit))
    return AugmentParams(draws[0] < flips[0], draws[1] < flips[1], angle)


def augment(images: Tensor, params: AugmentParams) -> Tensor:
    """Flip and rotate about the centre, bilinearly, on black.

    Args:
        images: (B, channels, H, W), uint8 or floating point within [-1, 1].
        params: Choices for the B images. Without any rotation flips are exact.

    Returns:
        (B, channels, H, W), float32 within [-1, 1].

    Example:
        >>> params = AugmentParams(torch.tensor([True]), torch.tensor([False]), torch.zeros(1))
        >>> augment(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), params)
        tensor([[[[ 1., -1.]]]])
    """
    _refuse_other_kinds(images)
    if images.ndim != 4:
        raise DisMixError(f"images must be (B, channels, H, W), got {tuple(images.shape)}")
    if len(params) != len(images):
        raise DisMixError(f"{len(params)} augmentations were drawn for {len(images)} images")
    if not bool(params.angle.any()):
        return to_unit(_flipped(images, params))
    matrix = _matrix(params)
    if images.device.type == "cpu" and not images.requires_grad:
        return _resampled_on_cpu(images, matrix.cpu())
    return _resampled(images, onto(matrix, images.device))


def _flipped(images: Tensor, params: AugmentParams) -> Tensor:
    for flip, axis in ((params.flip_h, -1), (params.flip_v, -2)):
        if bool(flip.any()):
            chosen = onto(flip, images.device).view(-1, 1, 1, 1)
            images = torch.where(chosen, images.flip(axis), images)
    return images


def _matrix(params: AugmentParams) -> Tensor:
    """Return (B, 2, 2) maps from offsets in the result to offsets in the source, in pixels."""
    radians = params.angle * (math.pi / 180)
    cos, sin = radians.cos(), radians.sin()
    horizontal, vertical = 1 - 2 * params.flip_h.float(), 1 - 2 * params.flip_v.float()
    rows = [torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)]
    return torch.stack([rows[0] * horizontal[:, None], rows[1] * vertical[:, None]], 1)


def _steps(matrix: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the parts (B, 2, W) and (B, 2, H) whose sums are the sampling grid (x, y).

    Cheaper than torch's own ``affine_grid``, which multiplies a matrix at every place.
    """
    x = torch.arange(width, device=matrix.device, dtype=matrix.dtype) - (width - 1) / 2
    y = torch.arange(height, device=matrix.device, dtype=matrix.dtype) - (height - 1) / 2
    # grid_sample counts from -1 to 1 along either axis, whatever its length in pixels.
    sizes = matrix.new_full((2, 1), 2 / width)
    sizes[1].fill_(2 / height)
    scaled = matrix * sizes
    return scaled[:, :, :1] * x, scaled[:, :, 1:] * y


def _resampled(images: Tensor, matrix: Tensor) -> Tensor:
    """Sample images (B, ch, H, W) through (B, 2, 2) maps; the result is in [-1, 1]."""
    # grid_sample can only fill with zero, so black must be zero while it runs.
    lifted = images.float() if images.dtype == torch.uint8 else images.float() + 1
    along_x, along_y = _steps(matrix, images.shape[-2], images.shape[-1])
    grid = (along_x[:, :, None, :] + along_y[:, :, :, None]).permute(0, 2, 3, 1)
    sampled = grid_sample(lifted, grid, mode="bilinear", align_corners=False)
    if images.dtype == torch.uint8:
        sampled.div_(127.5)
    # Interpolation weights sum to one only up to rounding.
    return sampled.sub_(1).clamp_(-1, 1)


def _resampled_on_cpu(images: Tensor, matrix: Tensor) -> Tensor:
    """Do the same one image at a time; NumPy starts no threads of its own."""
    whole = images.dtype == torch.uint8
    pixels = images.numpy() if whole else images.float().numpy()
    result = np.empty(pixels.shape, np.float32)
    along_x, along_y = (part.numpy() for part in _steps(matrix, *pixels.shape[2:]))

    def resample(i: int) -> None:
        grid = np.empty((1, *pixels.shape[2:], 2), np.float32)
        for axis in range(2):
            np.add(along_x[i, axis], along_y[i, axis, :, None], out=grid[0, :, :, axis])
        lifted = pixels[i : i + 1].astype(np.float32)
        if not whole:
            lifted += 1
        source, where = torch.from_numpy(lifted), torch.from_numpy(grid)
        sampled = grid_sample(source, where, mode="bilinear", align_corners=False).numpy()[0]
        if whole:
            sampled /= 127.5
        sampled -= 1
        np.clip(sampled, -1, 1, out=result[i])

    _in_threads(resample, len(pixels))
    return torch.from_numpy(result)


def _in_threads(work: Callable[[int], T], count: int) -> list[T]:
    threads = min(torch.get_num_threads(), count)
    if threads <= 1:
        return [work(i) for i in range(count)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(count)))


def equalize(images: Tensor) -> Tensor:
    """Equalise the histogram of every channel of every image, as torchvision does.

    Args:
        images: (B, channels, H, W), uint8.

    Returns:
        Images of the same shape, uint8. A channel of a single value stays as it is.

    Example:
        >>> ramp = torch.arange(100, 110, dtype=torch.uint8).repeat(1, 1, 64, 1)
        >>> equalize(ramp)[0, 0, 0]
        tensor([  0,  32,  64,  96, 128, 160, 192, 224, 255, 255], dtype=torch.uint8)
    """
    if images.dtype != torch.uint8 or images.ndim != 4:
        raise DisMixError(
            f"equalize needs uint8 (B, channels, H, W), got {images.dtype} {tuple(images.shape)}"
        )
    planes = images.flatten(2).flatten(0, 1)
    if images.device.type != "cpu":
        # All planes share one table of 256 entries each: one pass serves the whole batch.
        first = 256 * torch.arange(len(planes), device=images.device)
        index = (planes.int() + first.int()[:, None]).flatten()
        counts = torch.bincount(index, minlength=256 * len(planes)).view(-1, 256)
        table = _equalizing_table(counts, planes.shape[1])
        return table.flatten().index_select(0, index).view_as(images)
    histograms = _in_threads(lambda i: torch.bincount(planes[i], minlength=256), len(planes))
    counts = torch.stack(histograms) if histograms else torch.zeros(0, 256, dtype=torch.long)
    tables = _equalizing_table(counts, planes.shape[1]).numpy()
    pixels = planes.numpy()
    result = np.empty_like(pixels)
    # Every index is within the table; mode="raise" would copy everything twice.
    _in_threads(lambda i: np.take(tables[i], pixels[i], out=result[i], mode="clip"), len(planes))
    return torch.from_numpy(result).view(images.shape)


def _equalizing_table(counts: Tensor, pixels: int) -> Tensor:
    """Return the new values (P, 256), uint8, for histograms (P, 256) of planes of pixels."""
    total = counts.cumsum(1)
    # The brightest value in use is not to be spread: it ends at 255 anyway.
    last = counts.gather(1, total.argmax(1, keepdim=True))
    step = (pixels - last).div(255, rounding_mode="floor")
    table = (total - counts + step // 2).div(step.clamp_min(1), rounding_mode="floor")
    same = torch.arange(256, device=counts.device).expand_as(table)
    return torch.where(step == 0, same, table.clamp(0, 255)).to(torch.uint8)


def to_unit(images: Tensor) -> Tensor:
    """Scale uint8 images to float32 within [-1, 1]; floating-point images pass as they are.

    Example:
        >>> to_unit(torch.tensor([0, 51, 255], dtype=torch.uint8))
        tensor([-1.0000, -0.6000,  1.0000])
    """
    _refuse_other_kinds(images)
    if images.dtype != torch.uint8:
        return images.float()
    return _empty(images).copy_(images).div_(127.5).sub_(1)


def from_unit(images: Tensor) -> Tensor:
    """Turn images within [-1, 1] into uint8: rounded, values outside are clamped.

    Example:
        >>> from_unit(torch.tensor([-1.2, -0.6, 1.0]))
        tensor([  0,  51, 255], dtype=torch.uint8)
    """
    return ((images.detach().float() + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)


def _refuse_other_kinds(images: Tensor) -> None:
    """Raise for whole numbers other than uint8, which nobody could tell from [-1, 1]."""
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise DisMixError(
            f"images must be uint8 or floating point, got {images.dtype}",
            cure="8 bits are .to(torch.uint8), 16 bits images.float() / 32767.5 - 1",
        )


def _empty(images: Tensor) -> Tensor:
    """Return an empty float32 tensor of the same shape and device."""
    if images.device.type != "cpu":
        return torch.empty(images.shape, device=images.device)
    # NumPy asks Linux for huge pages, torch does not: far fewer page faults in big batches.
    return torch.from_numpy(np.empty(tuple(images.shape), np.float32))
