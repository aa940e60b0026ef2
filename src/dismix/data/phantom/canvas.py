"""Drawing surface shared by both subjects: unit coordinates, soft edges, lattice noise.

Everything is drawn in units of the image side, on a grid several times finer than the
picture, and averaged down. Averaging keeps areas: a gap two thirds of a pixel wide darkens
its pixel by exactly two thirds, which is what makes measuring from small pictures possible.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

MIN_SIZE = 32
TEXTURE = 256


def as_float(values: Any) -> Array:
    """Return values as a float32 array, without a copy where they already are."""
    return np.asarray(values, dtype=np.float32)


def supersampling(size: int, fine: int = 192) -> int:
    """Return how many fine cells per pixel side to draw with.

    Example:
        >>> [supersampling(size) for size in (32, 64, 128, 256)]
        [6, 3, 2, 2]
    """
    return max(2, math.ceil(fine / size))


def unit_grid(size: int, factor: int) -> tuple[Array, Array]:
    """Return x (1, n) and y (n, 1) of the fine cells' centres in (-0.5, 0.5), y downwards.

    Example:
        >>> x, y = unit_grid(2, 1)
        >>> x.tolist(), y.tolist()
        ([[-0.25, 0.25]], [[-0.25], [0.25]])
    """
    n = size * factor
    axis = ((np.arange(n, dtype=np.float32) + 0.5) / n - 0.5).astype(np.float32)
    return axis[None, :], axis[:, None]


def place(
    x: Array,
    y: Array,
    *,
    rotation: float,
    zoom: float,
    offset: tuple[float, float],
    mirror: bool,
) -> tuple[Array, Array]:
    """Map picture coordinates to the subject's own frame.

    Args:
        x: Picture coordinates, (1, n).
        y: Picture coordinates, (n, 1).
        rotation: Degrees the subject is turned by in the picture.
        zoom: Magnification of the subject in the picture.
        offset: Where the subject's origin lies in the picture.
        mirror: Whether the subject is seen left-right reversed.

    Returns:
        The two coordinates in the subject's frame, each (n, n).
    """
    angle = math.radians(rotation)
    cos, sin = math.cos(angle) / zoom, math.sin(angle) / zoom
    dx, dy = x - offset[0], y - offset[1]
    across = cos * dx + sin * dy
    return as_float(-across if mirror else across), as_float(cos * dy - sin * dx)


def step(value: Array, width: float) -> Array:
    """Return 0 below ``-width``, 1 above ``width`` and a smooth rise between.

    Example:
        >>> step(np.array([-1, 0, 1], dtype=np.float32), 0.5).tolist()
        [0.0, 0.5, 1.0]
    """
    ramp = np.clip(value * np.float32(0.5 / width) + np.float32(0.5), 0, 1)
    return as_float(ramp * ramp * (3 - 2 * ramp))


def bump(value: Array, centre: float, width: float) -> Array:
    """Return a Gaussian bell of height one."""
    return as_float(np.exp(-np.square((value - np.float32(centre)) / np.float32(width))))


def lattice_noise(cells: tuple[int, int], rng: np.random.Generator) -> Array:
    """Return smooth noise of about unit variance on the texture grid.

    Args:
        cells: Number of random values along and across, each at most ``TEXTURE``.
        rng: Their source.

    Returns:
        Random values interpolated linearly to (TEXTURE, TEXTURE).
    """
    noise = rng.standard_normal(cells, dtype=np.float32)
    for axis, count in enumerate(cells):
        if count < TEXTURE:
            at = np.linspace(0, count - 1.001, TEXTURE)
            low = at.astype(int)
            part = np.expand_dims(as_float(at - low), 1 - axis)
            noise = noise.take(low, axis) * (1 - part) + noise.take(low + 1, axis) * part
            # Linear interpolation averages the variance down to two thirds.
            noise *= np.float32(1.5**0.5)
    return as_float(noise)


def spread(texture: Array, x: Array, y: Array, reach: float) -> Array:
    """Sample a texture that covers [-reach, reach] squared at coordinates of the subject.

    The texture lives in the subject's frame, so the same one is drawn at any size.
    """
    last = texture.shape[0] - 1
    scale = np.float32(last / (2 * reach))
    u = np.clip((x + np.float32(reach)) * scale, 0, last - 0.001)
    v = np.clip((y + np.float32(reach)) * scale, 0, last - 0.001)
    column, row = u.astype(np.int32), v.astype(np.int32)
    du, dv = u - column, v - row
    index = row * np.int32(last + 1) + column
    flat = texture.ravel()
    top = flat.take(index)
    top += (flat.take(index + 1) - top) * du
    below = flat.take(index + (last + 1))
    below += (flat.take(index + (last + 2)) - below) * du
    return as_float(top + (below - top) * dv)


def shrink(fine: NDArray[Any], factor: int) -> Array:
    """Average blocks of ``factor`` x ``factor`` cells: (n, n, ...) to (n/factor, n/factor, ...).

    Example:
        >>> shrink(np.arange(16.0).reshape(4, 4), 2).tolist()
        [[2.5, 4.5], [10.5, 12.5]]
    """
    n, m, *rest = fine.shape
    blocks = fine.reshape(n // factor, factor, m // factor, factor, *rest)
    return as_float(blocks.mean(axis=(1, 3), dtype=np.float32))


def area_average(size: int, parts: int) -> Array:
    """Return the matrix that averages ``size`` cells into ``parts`` equal ones: (parts, size).

    Example:
        >>> area_average(4, 2).tolist()
        [[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]]
    """
    edges = np.arange(parts + 1) * (size / parts)
    cells = np.arange(size)
    cover = np.minimum(edges[1:, None], cells + 1) - np.maximum(edges[:-1, None], cells)
    return as_float(np.clip(cover, 0, 1) * (parts / size))


def to_bytes(picture: Array, noise: float, seed: int) -> NDArray[np.uint8]:
    """Add sensor noise of standard deviation ``noise`` and round to 8 bits."""
    grain = np.random.default_rng(seed).standard_normal(picture.shape, dtype=np.float32)
    levels = np.clip(np.rint((picture + noise * grain) * 255), 0, 255)
    return np.asarray(levels, dtype=np.uint8)
