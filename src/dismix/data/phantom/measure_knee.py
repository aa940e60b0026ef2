"""Joint-space width of a knee, measured from the picture alone.

The width is not the distance between two edges, which a small or blurred picture does not
have, but the darkness missing across the joint divided by the contrast of bone and soft
tissue: averaging, blurring and resampling all leave that sum as it is. The steps: find the
joint line as the straight dark valley across the picture, turn it level, find the bone's
sides above it, then sum the missing brightness over the load-bearing part of both
compartments. Soft tissue is read where it is always broad, in the notch between the condyles.
"""

import numpy as np
from numpy.typing import NDArray

from dismix.data.phantom.canvas import Array, area_average, as_float

# Degrees, strips of columns, and image sides.
MAX_TILT = 18.0
STRIPS = 16
MAX_SHIFT = 0.26
FLANK_REACH = 0.115
PATCH_ROWS = 0.34
# In bone widths: the load-bearing columns, the rows summed and the rows of reference bone.
LOAD = (0.2, 0.36)
ACROSS = 0.115
FLANK = 0.2


def joint_space_width(images: NDArray[np.float32]) -> NDArray[np.float64]:
    """Measure the mean joint-space width of knees.

    Args:
        images: Grey pictures in [0, 1], (N, S, S).

    Returns:
        Widths in bone widths, (N,).
    """
    height, tilt = _joint_line(images)
    patch = _level(images, height, tilt)
    tissue = _notch_level(patch)
    centre, width = _bone_sides(patch, tissue)
    sides = [_compartment(patch, tissue, centre, width, sign) for sign in (-1.0, 1.0)]
    return np.asarray((sides[0] + sides[1]) / 2 / width, dtype=np.float64)


def _blur(values: Array, sigma: float, axis: int) -> Array:
    """Gaussian smoothing along one axis, edges repeated."""
    from scipy.ndimage import gaussian_filter1d

    smooth: Array = gaussian_filter1d(values, sigma, axis=axis, mode="nearest")
    return smooth


def _joint_line(images: Array) -> tuple[Array, Array]:
    """Find the joint: height at the middle column in (-0.5, 0.5), and slope dy/dx; both (N,)."""
    size = images.shape[-1]
    strips = _blur(images @ area_average(size, STRIPS).T, 0.012 * size, axis=1)
    reach = max(1, round(FLANK_REACH * size))
    padded = np.pad(strips, ((0, 0), (reach, reach), (0, 0)), mode="edge")
    flank = np.minimum(padded[:, : -2 * reach], padded[:, 2 * reach :])
    slopes = np.tan(np.radians(np.linspace(-MAX_TILT, MAX_TILT, 37)))
    score = _line_scores(as_float(np.maximum(flank - strips, 0)), slopes)
    y = (np.arange(size) + 0.5) / size - 0.5
    score[:, :, np.abs(y) > MAX_SHIFT] = 0
    best = score.max(axis=2).argmax(axis=0)
    ridge = score[best, np.arange(len(images))]
    # A wide gap has a flat ridge: its middle counts, not its highest grain of noise.
    weight = np.maximum(ridge - 0.9 * ridge.max(axis=1, keepdims=True), 0) + 1e-9
    return as_float((weight @ y) / weight.sum(axis=1)), as_float(slopes[best])


def _line_scores(valley: Array, slopes: NDArray[np.float64]) -> Array:
    """Sum a valley map (N, S, STRIPS) along straight lines: (slopes, N, S)."""
    size = valley.shape[1]
    x = (np.arange(STRIPS) + 0.5) / STRIPS - 0.5
    rows = np.arange(size)
    score = np.zeros((len(slopes), *valley.shape[:2]), dtype=np.float32)
    # The notch in the middle is dark above the joint line and would bend it.
    for k in np.flatnonzero((np.abs(x) > 0.12) & (np.abs(x) < 0.33)):
        strip = np.ascontiguousarray(valley[:, :, k])
        for i, slope in enumerate(slopes):
            at = np.clip(rows + slope * x[k] * size, 0, size - 1.001)
            low = at.astype(int)
            part = as_float(at - low)
            score[i] += strip[:, low] * (1 - part) + strip[:, low + 1] * part
    return score


def _level(images: Array, height: Array, slope: Array) -> Array:
    """Resample around the joint so that it runs level through the middle row: (N, R, S)."""
    count, size, _ = images.shape
    angle = np.arctan(slope)[:, None, None]
    half = round(PATCH_ROWS * size)
    v = (np.arange(-half, half + 1, dtype=np.float32) / size)[None, :, None]
    u = ((np.arange(size, dtype=np.float32) + 0.5) / size - 0.5)[None, None, :]
    column = (np.cos(angle) * u - np.sin(angle) * v + 0.5) * size - 0.5
    row = (np.sin(angle) * u + np.cos(angle) * v + height[:, None, None] + 0.5) * size - 0.5
    column, row = np.clip(column, 0, size - 1.001), np.clip(row, 0, size - 1.001)
    i, j = row.astype(np.int32), column.astype(np.int32)
    di, dj = row - i, column - j
    index = (np.arange(count, dtype=np.int64)[:, None, None] * size + i) * size + j
    flat = images.ravel()
    top = flat[index] * (1 - dj) + flat[index + 1] * dj
    below = flat[index + size] * (1 - dj) + flat[index + size + 1] * dj
    return as_float(top * (1 - di) + below * di)


def _axes(patch: Array) -> tuple[Array, Array]:
    """Row and column coordinates of a patch in image sides."""
    rows, size = patch.shape[1:]
    v = (np.arange(rows, dtype=np.float32) - rows // 2) / size
    return v, (np.arange(size, dtype=np.float32) + 0.5) / size - 0.5


def _notch_level(patch: Array) -> Array:
    """Brightness of soft tissue, from the darkest part of the notch: (N,)."""
    v, u = _axes(patch)
    size = patch.shape[-1]
    smooth = _blur(_blur(patch, 0.012 * size, 1), 0.012 * size, 2)
    rows = (v > -0.17) & (v < 0.0)
    window = smooth[:, rows][:, :, np.abs(u) < 0.09].reshape(len(patch), -1)
    keep = max(4, round(0.15 * window.shape[1]))
    return as_float(np.partition(window, keep, axis=1)[:, :keep].mean(axis=1))


def _bone_sides(patch: Array, tissue: Array) -> tuple[Array, Array]:
    """Middle and width of the femoral condyles in image sides: two arrays (N,)."""
    v, u = _axes(patch)
    band = as_float(np.median(patch[:, (v > -0.24) & (v < -0.13)], axis=1))
    bone = np.median(band[:, np.abs(u) < 0.22], axis=1)
    profile = as_float(band - ((bone + tissue) / 2)[:, None])
    size = len(u)
    first = u[size // 2] * size
    right = _crossing(profile[:, size // 2 :]) + first
    left = _crossing(profile[:, ::-1][:, size // 2 :]) + first
    return as_float((right - left) / 2 / size), as_float((right + left) / size)


def _crossing(profile: Array) -> Array:
    """First place, in cells and between them, where a profile falls below zero."""
    start = profile.shape[1] // 4
    below = profile < 0
    below[:, :start] = False
    below[:, -1] = True
    first = below.argmax(axis=1)
    rows = np.arange(len(profile))
    before, after = profile[rows, first - 1], profile[rows, first]
    drop = np.maximum(before - after, 1e-6)
    return as_float(first - 1 + np.clip(before / drop, 0, 1))


def _box(axis: Array, low: Array, high: Array, cell: float) -> Array:
    """Share of every cell of ``axis`` that lies in [low, high]: (N, cells)."""
    upper = np.minimum(axis + cell / 2, high[:, None])
    lower = np.maximum(axis - cell / 2, low[:, None])
    return as_float(np.clip((upper - lower) / cell, 0, 1))


def _compartment(patch: Array, tissue: Array, centre: Array, width: Array, sign: float) -> Array:
    """Joint-space width of one compartment in image sides: (N,)."""
    v, u = _axes(patch)
    cell = 1.0 / patch.shape[-1]
    ends = np.sort(np.stack([sign * LOAD[0] * width, sign * LOAD[1] * width]), axis=0) + centre
    columns = _box(u, ends[0], ends[1], cell)
    profile = np.einsum("nrc,nc->nr", patch, columns) / columns.sum(axis=1, keepdims=True)
    middle = np.zeros_like(width)
    for _ in range(3):
        above = _box(v, middle - FLANK * width, middle - ACROSS * width, cell)
        below = _box(v, middle + ACROSS * width, middle + FLANK * width, cell)
        femur = (above * profile).sum(1) / above.sum(1)
        tibia = (below * profile).sum(1) / below.sum(1)
        gap = _box(v, middle - ACROSS * width, middle + ACROSS * width, cell)
        slope = (tibia - femur) / ((ACROSS + FLANK) * width)
        base = ((femur + tibia) / 2)[:, None] + slope[:, None] * (v - middle[:, None])
        missing = gap * (base - profile)
        dark = np.maximum(missing, 0) ** 2
        middle = (dark * v).sum(1) / np.maximum(dark.sum(1), 1e-9)
        middle = np.clip(middle, -0.02, 0.02).astype(np.float32)
    contrast = np.maximum((femur + tibia) / 2 - tissue, 0.02)
    return as_float(missing.sum(axis=1) * cell / contrast)
