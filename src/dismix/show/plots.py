"""Plots as pictures; the only importer of matplotlib."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

#: Low ranks blue, high ranks red: an order the eye reads without a legend.
RANK_COLOURS = "coolwarm"
DPI = 110


def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    title: str,
    x: str = "epoch",
    y: str = "",
    log: bool = False,
) -> Image.Image:
    """Draw curves.

    Args:
        series: Name -> (x values, y values).
        title: Above the plot.
        x: Below it.
        y: Beside it.
        log: Logarithmic vertical axis.
    """
    figure = Figure(figsize=(6.2, 3.4), layout="constrained")
    axes = figure.add_subplot()
    for name, (xs, ys) in series.items():
        axes.plot(xs, ys, label=name, linewidth=1.4, marker="." if len(xs) < 30 else None)
    axes.set(title=title, xlabel=x, ylabel=y)
    if log:
        axes.set_yscale("log")
    axes.grid(alpha=0.25)
    if series:
        axes.legend(fontsize=7, ncols=2, frameon=False)
    return _picture(figure)


def rank_scatter(
    panels: Mapping[str, NDArray[np.float64]], ranks: NDArray[np.int64], names: Sequence[str]
) -> Image.Image:
    """Draw points coloured by rank, a panel each.

    Args:
        panels: Title -> points (N, 2).
        ranks: (N,).
        names: Names of the C ranks.
    """
    figure = Figure(figsize=(5.2 * len(panels), 4.6), layout="constrained")
    for place, (title, points) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), place)
        dots = axes.scatter(
            points[:, 0], points[:, 1], c=ranks, cmap=RANK_COLOURS, s=12,
            vmin=0, vmax=len(names) - 1, linewidths=0,
        )  # fmt: skip
        axes.set(title=title, xticks=[], yticks=[])
    legend = figure.colorbar(dots, ax=figure.axes, ticks=range(len(names)), shrink=0.8)
    legend.ax.set_yticklabels(names)
    return _picture(figure)


def _picture(figure: Figure) -> Image.Image:
    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())
    return Image.fromarray(pixels).convert("RGB")


def embed(features: NDArray[np.float64], seed: int = 0) -> NDArray[np.float64]:
    """Return a t-SNE of features (N, F) as points (N, 2); small sets get a small perplexity."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    flat = features.reshape(len(features), -1)
    if flat.shape[1] > 50:
        flat = PCA(min(50, len(flat) - 1), random_state=seed).fit_transform(flat)
    # Discrete codes coincide, and scikit-learn's tree cannot hold many equal points (it has
    # crashed the process): a hair of noise keeps them apart.
    rng = np.random.default_rng(seed)
    flat = flat + 1e-4 * (flat.std() or 1.0) * rng.standard_normal(flat.shape)
    perplexity = min(30.0, (len(flat) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, init="pca", random_state=seed)
    points: NDArray[np.float64] = tsne.fit_transform(flat).astype(np.float64)
    return points
