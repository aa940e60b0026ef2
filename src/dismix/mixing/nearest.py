"""The training image nearest to a mix: does a released picture give a patient's away?

Pictures are compared as `dismix data check` compares twins: fine structure with brightness and
contrast divided out, 16 x 16 to find candidates, 64 x 64 to judge them. A correlation of 0.85
and more means practically the same picture there, and here.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from dismix.data.looks import SIDE
from dismix.data.store import ImageStore
from dismix.data.transforms import equalize
from dismix.data.twins import COARSE, detail
from dismix.progress import Progress

#: Candidates that are looked at closely.
CANDIDATES = 4
_BLOCK = 512

Floats = NDArray[np.float32]


def thumbnails(images: Tensor) -> NDArray[np.uint8]:
    """Return grey pictures (B, 64, 64) of images (B, channels, H, W) uint8."""
    grey = images.float().mean(1, keepdim=True)
    mode = "area" if min(grey.shape[-2:]) >= SIDE else "bilinear"
    small = F.interpolate(grey, (SIDE, SIDE), mode=mode)
    return small.round().clamp(0, 255).to(torch.uint8)[:, 0].cpu().numpy()


def fine(images: Tensor) -> Floats:
    """Return unit vectors (B, 4096) of the fine structure of images (B, channels, H, W)."""
    return _unit(detail(thumbnails(images)))


def coarse(vectors: Floats) -> Floats:
    """Return unit vectors (B, 256) of fine ones (B, 4096)."""
    pool = SIDE // COARSE
    return _unit(vectors.reshape(-1, COARSE, pool, COARSE, pool).mean(axis=(2, 4)))


def _unit(values: Floats) -> Floats:
    flat = values.reshape(len(values), -1)
    flat = flat - flat.mean(axis=1, keepdims=True)
    unit: Floats = flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-6)
    return unit


@dataclass(frozen=True)
class Nearest:
    """The nearest training images of B pictures.

    Attributes:
        row: (B,) their rows.
        similarity: (B,) correlation of the fine structure, 1 for the same picture.
    """

    row: NDArray[np.int64]
    similarity: Floats


class NearestTraining:
    """Finds the nearest of N training images; keeps 1 KiB for each.

    Args:
        images: The training images; rows that were skipped are never found.
        equalized: They are shown to the generator with equalised histograms.
        progress: Called as ``progress("looking at training images", done, N)``.

    Attributes:
        rows: (N,) rows of the store that hold an image.
        vectors: (N, 256) their coarse structure.
    """

    def __init__(
        self, images: ImageStore, *, equalized: bool = False, progress: Progress | None = None
    ) -> None:
        self.images, self.equalized = images, equalized
        self.rows = images.valid.numpy()
        parts = []
        for start in range(0, len(self.rows), _BLOCK):
            rows = self.rows[start : start + _BLOCK]
            parts.append(coarse(self._fine(rows)))
            if progress is not None:
                progress("looking at training images", start + len(rows), len(self.rows))
        self.vectors = np.concatenate(parts)

    def find(self, pictures: Tensor) -> Nearest:
        """Find the nearest training images of pictures (B, channels, H, W) uint8."""
        wanted = fine(pictures)
        scores = coarse(wanted) @ self.vectors.T
        count = min(CANDIDATES, scores.shape[1])
        candidates = self.rows[np.argpartition(-scores, count - 1, axis=1)[:, :count]]
        unique, where = np.unique(candidates, return_inverse=True)
        close = self._fine(unique)[where.reshape(candidates.shape)]
        exact = np.einsum("bd,bkd->bk", wanted, close)
        best = exact.argmax(axis=1)
        index = np.arange(len(best))
        return Nearest(candidates[index, best].astype(np.int64), exact[index, best])

    def _fine(self, rows: NDArray[np.int64]) -> Floats:
        pixels = self.images[rows]
        return fine(equalize(pixels) if self.equalized else pixels)
