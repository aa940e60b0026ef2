"""One door to both subjects."""

import numpy as np
from numpy.typing import NDArray

from dismix.data.phantom.canvas import MIN_SIZE
from dismix.data.phantom.factors import Factors, FundusFactors, KneeFactors
from dismix.data.phantom.fundus import render_fundus
from dismix.data.phantom.knee import render_knee
from dismix.errors import DisMixError


def render(factors: Factors, size: int = 64) -> NDArray[np.uint8]:
    """Draw a picture from its factors, purely: equal factors give equal pictures.

    To see the same knee or eye at another severity, replace ``severity`` and draw again.

    Args:
        factors: KneeFactors or FundusFactors.
        size: Side of the picture in pixels, at least 32.

    Returns:
        Grey (size, size) for a knee, colour (size, size, 3) for a fundus.

    Raises:
        DisMixError: For a picture that is too small.

    Example:
        >>> from dismix.data.phantom import PhantomSpec, draw_factors
        >>> rng = np.random.default_rng(0)
        >>> render(draw_factors(PhantomSpec(subject="fundus"), 3, rng), 48).shape
        (48, 48, 3)
    """
    if size < MIN_SIZE:
        raise DisMixError(f"{size} pixels are too few", column="size", cure=f"give {MIN_SIZE} up")
    if isinstance(factors, KneeFactors):
        return render_knee(factors, size)
    if isinstance(factors, FundusFactors):
        return render_fundus(factors, size)
    raise TypeError(f"no drawing for {type(factors).__name__}")
