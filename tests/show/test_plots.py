"""Plots: pictures with something on them, and embeddings that keep neighbours."""

import numpy as np

from dismix.show.plots import embed, lines, rank_scatter


def test_curves_are_drawn():
    blank = np.asarray(lines({}, title="loss"))
    drawn = np.asarray(lines({"loss": ([1, 2, 3], [3.0, 2.0, 1.0])}, title="loss", log=True))
    assert drawn.shape[2] == 3
    assert (drawn != 255).any(axis=2).sum() > (blank != 255).any(axis=2).sum()


def test_embedding_keeps_clusters_apart():
    rng = np.random.default_rng(0)
    features = np.concatenate([rng.normal(m, 0.1, (30, 4, 2, 2)) for m in (0.0, 5.0)])
    points = embed(features)
    centres = points[:30].mean(0), points[30:].mean(0)
    spread = max(points[:30].std(), points[30:].std())
    assert np.linalg.norm(centres[0] - centres[1]) > 2 * spread
    picture = rank_scatter({"codes": points}, np.repeat([0, 1], 30), ["low", "high"])
    assert picture.width > 300


def test_embedding_survives_identical_points():
    points = embed(np.ones((10, 3)))
    assert np.isfinite(points).all()
