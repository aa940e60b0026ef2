"""The rank factor read off a picture: which severity does it show?

Later parts of the package decode, traverse and mix pictures; these functions say what
severity came out, without a trained model in between. They hold for mirrored, turned,
zoomed, differently exposed and noisy pictures and bear moderate blur.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dismix.data.phantom import measure_fundus, measure_knee
from dismix.data.phantom.canvas import area_average
from dismix.data.phantom.spec import Subject
from dismix.errors import DisMixError

# Beyond this the picture is averaged down: it costs time and adds nothing.
LARGEST = 128
_CHUNK = 256
# What the two measures read at a severity fraction t, as c0 + c1 t + c2 t^2. It is not quite
# the drawn width or area: bright joint surfaces fill in some of the gap, tone curves stretch
# contrasts. `benchmarks/phantom_learnability.py --calibrate` prints these anew.
_CURVES: dict[str, tuple[float, float, float]] = {
    "knee": (0.12474, -0.13364, -0.00259),
    "fundus": (-0.00008, 0.09029, -0.00113),
}


def joint_space_width(images: ArrayLike) -> NDArray[np.float64]:
    """Measure the joint-space width of knees, mean of both compartments.

    Args:
        images: Bytes or numbers in [0, 1]; (H, W), (N, H, W), or with 1 or 3 channels last
            or, for stacks, first.

    Returns:
        Width in bone widths, shape () or (N,).

    Example:
        >>> from dismix.data.phantom import PhantomSpec, draw_factors, render
        >>> knee = draw_factors(PhantomSpec(), 0, np.random.default_rng(0))
        >>> bool(0.1 < joint_space_width(render(knee, 64)) < 0.15)
        True
    """
    return _in_chunks(images, "knee")


def lesion_area(images: ArrayLike) -> NDArray[np.float64]:
    """Measure the share of the lit field that lesions cover in fundus pictures.

    Args:
        images: Bytes or numbers in [0, 1]; (H, W, 3) or (N, H, W, 3), or channels first
            for stacks.

    Returns:
        Share, shape () or (N,).
    """
    return _in_chunks(images, "fundus")


def measured_severity(images: ArrayLike, subject: Subject, num_ranks: int) -> NDArray[np.float64]:
    """Measure the severity that pictures show, in rank units.

    Args:
        images: As for :func:`joint_space_width` or :func:`lesion_area`.
        subject: "knee" or "fundus".
        num_ranks: Number of ranks C of the set.

    Returns:
        Severity, shape () or (N,); in [0, C-1] but for errors of measuring, which are not
        cut off.

    Example:
        >>> from dismix.data.phantom import PhantomSpec, draw_factors, render
        >>> knee = draw_factors(PhantomSpec(), 3, np.random.default_rng(0))
        >>> bool(abs(measured_severity(render(knee, 128), "knee", 5) - knee.severity) < 0.4)
        True
    """
    reading = _in_chunks(images, subject)
    c0, c1, c2 = _CURVES[subject]
    progress = np.linspace(-0.5, 1.5, 401)
    curve = c0 + c1 * progress + c2 * progress**2
    order = np.argsort(curve)
    inverse = np.interp(reading, curve[order], progress[order])
    return np.asarray(inverse * (num_ranks - 1), dtype=np.float64)


def _in_chunks(images: ArrayLike, subject: str) -> NDArray[np.float64]:
    stack, single = _as_stack(np.asarray(images), subject)
    measure = measure_knee.joint_space_width if subject == "knee" else measure_fundus.lesion_area
    parts = [
        measure(_shrunk(_as_unit(stack[i : i + _CHUNK]))) for i in range(0, len(stack), _CHUNK)
    ]
    found = np.concatenate(parts) if parts else np.empty(0)
    return np.asarray(found[0] if single else found, dtype=np.float64)


def _as_stack(images: NDArray[Any], subject: str) -> tuple[NDArray[Any], bool]:
    """Bring pictures to (N, H, W) for knees or (N, H, W, 3), and say if it was just one."""
    last = images.ndim >= 3 and images.shape[-1] in {1, 3}
    if not last and images.ndim == 4 and images.shape[1] in {1, 3}:
        images, last = np.moveaxis(images, 1, -1), True
    single = images.ndim == (3 if last else 2)
    stack = images[None] if single else images
    if subject == "knee" and last:
        stack = _as_unit(stack).mean(axis=-1)
    colours = () if subject == "knee" else (3,)
    if stack.ndim < 3 or stack.shape[1] != stack.shape[2] or stack.shape[3:] != colours:
        raise DisMixError(
            f"pictures of shape {images.shape} cannot be measured as {subject}",
            cure="give square pictures, colour for the fundus",
        )
    return stack, single


def _as_unit(images: NDArray[Any]) -> NDArray[np.float32]:
    """Bytes or numbers to float32 in [0, 1]."""
    if images.dtype == np.uint8:
        return images.astype(np.float32) / np.float32(255)
    values = images.astype(np.float32)
    # Decoders overshoot a little; a range of [-1, 1] or [0, 255] is a mistake.
    if values.size and (values.min() < -0.5 or values.max() > 1.5):
        raise DisMixError(
            f"pixel values run from {values.min():g} to {values.max():g}",
            cure="give bytes, or numbers in [0, 1]",
        )
    return np.clip(values, 0, 1)


def _shrunk(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Average pictures down to ``LARGEST`` pixels per side; smaller ones stay."""
    size = images.shape[1]
    if size <= LARGEST:
        return images
    weights = area_average(size, LARGEST)
    path = "ai,nij...,bj->nab..."
    return np.asarray(np.einsum(path, weights, images, weights, optimize=True), dtype=np.float32)
