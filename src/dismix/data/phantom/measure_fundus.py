"""Lesion area of a fundus, measured from the picture alone.

Every pixel is healthy retina mixed with vessel, haemorrhage and exudate. Divided by the
healthy retina's own colour, which is smooth and fitted per picture, three channels give
three equations for the three amounts. They are linear, so averaging, blurring and
resampling leave the summed area as it is.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation, gaussian_filter

from dismix.data.phantom.canvas import Array, as_float
from dismix.data.phantom.fundus import EXUDATE, HAEMORRHAGE, VESSEL

FITS = 8
# Part of the field's radius that is used: the rim darkens as haemorrhages do.
WITHIN = 0.92
# A lesion is seen where its amount, smoothed by BLUR picture sides, exceeds SEEN; it is
# summed there and within NEAR picture sides around.
SEEN, BLUR, NEAR = 0.08, 0.022, 0.02
# Say that pixels near lesions keep in the second fit of healthy retina: with none at all a
# crowded or badly decoded picture would leave too few.
DOUBT = 0.3
# Smoothed amount of vessel colour below which a pixel belongs to the optic disc.
DISC_LEVEL = -0.35
_CROSS = np.array([[[0, 1, 0], [1, 1, 1], [0, 1, 0]]], dtype=bool)


def lesion_area(images: NDArray[np.float32]) -> NDArray[np.float64]:
    """Measure the share of the field that lesions cover.

    Args:
        images: Colour pictures in [0, 1], (N, S, S, 3).

    Returns:
        Shares, (N,).
    """
    inside, area = _field(images)
    _, dark, bright = _amounts(images, inside)
    # Again without the lesions' surroundings: blurred, they tint the healthy retina's fit.
    clear = ~(_stands_out(dark) | _stands_out(bright))
    vessel, dark, bright = _amounts(images, inside * np.where(clear, 1.0, DOUBT))
    used = inside & ~_disc(vessel)
    total = _counted(dark * used) + _counted(bright * used)
    return np.asarray(total / area, dtype=np.float64)


def _amounts(images: Array, trust: NDArray[Any]) -> tuple[Array, Array, Array]:
    """Amounts of vessel, haemorrhage and exudate per pixel: three arrays (N, S, S)."""
    unmix = np.linalg.inv(np.stack([VESSEL, HAEMORRHAGE, EXUDATE], axis=1))
    amounts = as_float((images / _healthy(images, trust) - 1) @ as_float(unmix.T))
    return amounts[..., 0], amounts[..., 1], amounts[..., 2]


def _field(images: Array) -> tuple[NDArray[np.bool_], Array]:
    """Find the lit circle: pixels well within it (N, S, S), and its area in pixels (N,)."""
    red = images[..., 0]
    size = red.shape[-1]
    level = np.quantile(red.reshape(len(red), -1), 0.6, axis=1)
    lit = (red > 0.35 * level[:, None, None]).astype(np.float32)
    area = np.maximum(lit.sum(axis=(1, 2)), 1)
    axis = np.arange(size, dtype=np.float32)
    x = (lit.sum(axis=1) @ axis / area)[:, None, None]
    y = (lit.sum(axis=2) @ axis / area)[:, None, None]
    squared = np.square(axis[None, None, :] - x) + np.square(axis[None, :, None] - y)
    return squared < (WITHIN**2 / np.pi) * area[:, None, None], area


def _healthy(images: Array, trusted: NDArray[Any]) -> Array:
    """Fit the colour of healthy retina: exp of a quadratic in x and y, per channel.

    Reweighted least squares: what differs from the fit, as vessels, lesions and disc do,
    loses its say.
    """
    count, size = images.shape[:2]
    thin = slice(None, None, max(1, size // 64))
    logs = np.log(np.maximum(images[:, thin, thin], 1 / 255)).reshape(count, -1, 3)
    trust = trusted[:, thin, thin].reshape(count, -1).astype(np.float32)
    whole = _quadratic(size)
    basis = whole.reshape(size, size, 6)[thin, thin].reshape(-1, 6)
    pairs = (basis[:, :, None] * basis[:, None, :]).reshape(len(basis), 36)
    middle = np.abs(basis[:, 1:3]).max(axis=1) < 0.55
    weight = trust
    for _ in range(FITS):
        normal = (weight @ pairs).reshape(count, 6, 6) + 1e-4 * np.eye(6, dtype=np.float32)
        right = np.stack([(weight * logs[..., c]) @ basis for c in range(3)], axis=-1)
        fit = np.linalg.solve(normal, right)
        misfit = np.square(logs - basis @ fit).sum(axis=-1)
        # A low quantile: in a crowded picture the typical pixel is no longer healthy.
        spread = np.quantile(misfit[:, middle], 0.3, axis=1, keepdims=True).astype(np.float32)
        weight = trust / np.square(1 + misfit / (3 * spread + 1e-9))
    return np.exp(whole @ fit).reshape(images.shape).astype(np.float32)


def _quadratic(size: int) -> Array:
    """1, x, y, x^2, xy, y^2 at every pixel, x and y in [-1, 1]: (size * size, 6)."""
    axis = np.linspace(-1, 1, size)
    x, y = (plane.ravel() for plane in np.meshgrid(axis, axis))
    return np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], axis=1).astype(np.float32)


def _smooth(amount: Array) -> Array:
    """Gaussian smoothing of (N, S, S) by ``BLUR`` picture sides."""
    sigma = BLUR * amount.shape[-1]
    return as_float(gaussian_filter(amount, (0, sigma, sigma), mode="nearest"))


def _grow(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Add the pixels within ``NEAR`` picture sides: (N, S, S)."""
    near = max(1, round(NEAR * mask.shape[-1]))
    return np.asarray(binary_dilation(mask, _CROSS, iterations=near), dtype=np.bool_)


def _disc(vessel: Array) -> NDArray[np.bool_]:
    """Where the optic disc is: much less than no vessel colour at all."""
    return _grow(_smooth(vessel) < DISC_LEVEL)


def _counted(amount: Array) -> Array:
    """Sum an amount over the pixels near which it stands out, either way: (N,).

    There is no lesion of negative area, but errors of compression or of a decoder have both
    signs: counting both lets them cancel, where counting the positive ones would add them up.
    """
    return as_float((amount * _stands_out(amount)).sum(axis=(1, 2)))


def _stands_out(amount: Array) -> NDArray[np.bool_]:
    """Where an amount is clearly not zero, and around there: (N, S, S)."""
    return _grow(np.abs(_smooth(amount)) > SEEN)
