"""Fractal pictures made here, from random affine maps; no download, no licence.

An iterated function system of 2 to 8 contractions is run as a chaos game; visits are counted,
taken the logarithm of, and coloured. Pictures that fill little of the frame are drawn anew.
"""

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]

_LEAST_FILL = 0.1
_WALKERS = 1000
_WARM = 20


def random_maps(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return 2 to 8 contractions of the plane: matrices (K, 2, 2) and shifts (K, 2)."""
    count = int(rng.integers(2, 9))
    turn = rng.uniform(0, 2 * np.pi, (2, count))
    # Singular values below one make a contraction; the larger, the more it fills.
    size = rng.uniform(0.3, 0.9, (count, 2)) * rng.choice([-1.0, 1.0], (count, 2))
    turns = [np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]]) for t in turn]
    left, right = (t.transpose(2, 0, 1) for t in turns)
    return left @ (size[:, :, None] * right), rng.uniform(-1, 1, (count, 2))


def visits(matrices: Floats, shifts: Floats, size: int, rng: np.random.Generator) -> Floats:
    """Play the chaos game and count visits (size, size), about two for each pixel."""
    weights = np.abs(np.linalg.det(matrices)) + 0.02
    steps = _WARM + max(1, 2 * size * size // _WALKERS)
    choice = rng.choice(len(matrices), (steps, _WALKERS), p=weights / weights.sum())
    place = np.zeros((_WALKERS, 2))
    trail = np.empty((steps, _WALKERS, 2))
    for step in range(steps):
        k = choice[step]
        place = np.einsum("wij,wj->wi", matrices[k], place) + shifts[k]
        trail[step] = place
    points = trail[_WARM:].reshape(-1, 2)
    low, high = points.min(0), points.max(0)
    cell = ((points - low) / np.maximum(high - low, 1e-9) * (size - 1e-6)).astype(np.int64)
    counts = np.bincount(cell[:, 0] * size + cell[:, 1], minlength=size * size)
    return counts.reshape(size, size).astype(np.float64)


@lru_cache(maxsize=256)
def fractal(size: int, seed: int) -> Tensor:
    """Return a fractal (3, size, size) in [0, 1], the same for the same seed.

    Example:
        >>> picture = fractal(64, seed=0)
        >>> picture.shape, bool((picture == fractal(64, seed=0)).all())
        (torch.Size([3, 64, 64]), True)
    """
    best, most = np.zeros((size, size)), -1.0
    for attempt in range(20):
        rng = np.random.default_rng([seed, attempt])
        counts = visits(*random_maps(rng), size, rng)
        fill = float((counts > 0).mean())
        if fill > most:
            best, most = counts, fill
        if fill >= _LEAST_FILL:
            break
    tone = np.log1p(best)
    tone = tone / max(tone.max(), 1e-9)
    rng = np.random.default_rng([seed, 1000])
    phase, speed = rng.uniform(0, 2 * np.pi, 3), rng.uniform(2, 8, 3)
    colour = 0.5 + 0.5 * np.cos(speed[:, None, None] * tone + phase[:, None, None])
    return torch.from_numpy((colour * (tone > 0)).astype(np.float32))


@lru_cache(maxsize=256)
def _fractal_on(size: int, seed: int, device: torch.device) -> Tensor:
    return fractal(size, seed).to(device)


def fractal_like(images: Tensor, seeds: Tensor) -> Tensor:
    """Return fractals (M, channels, H, W) as large as some images, one for each seed (M,)."""
    channels, height, width = images.shape[1:]
    size = max(height, width)
    listed = [_fractal_on(size, seed, images.device) for seed in seeds.tolist()]
    made = torch.stack(listed)[:, :, :height, :width]
    if channels != 3:
        made = made.mean(1, keepdim=True).expand(-1, channels, -1, -1)
    return made.to(images)
