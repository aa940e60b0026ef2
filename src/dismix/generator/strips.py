"""The picture strip a training draws every few epochs."""

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from dismix.data.transforms import from_unit
from dismix.generator.images import SplitImages
from dismix.generator.model import Generator
from dismix.generator.traverse import nonordinal_traverse, ordinal_traverse
from dismix.show.headed_grid import headed_grid


def pixels(images: Tensor) -> list[NDArray[np.uint8]]:
    """Return images (B, channels, H, W) in [-1, 1] as uint8 arrays (H, W, channels)."""
    return list(from_unit(images.cpu()).permute(0, 2, 3, 1).numpy())


def spread_rows(split: SplitImages, count: int) -> Tensor:
    """Return ``count`` rows spread over the ranks, low to high."""
    order = torch.argsort(split.target.rank.cpu(), stable=True)
    return order[torch.linspace(0, len(order) - 1, count).long()]


def draw_strip(model: Generator, split: SplitImages, count: int = 5) -> Image.Image:
    """Draw a row an image: original, reconstruction, at every rank, with another row's appearance.

    Args:
        model: Generator in evaluation mode.
        split: Where the images come from.
        count: Number of images.
    """
    device = next(model.parameters()).device
    rows = spread_rows(split, count)
    images = split.images(rows, device)
    ranks = torch.arange(model.config.num_ranks, dtype=torch.float32)
    shares = torch.tensor([0.33, 0.67, 1.0])
    with torch.no_grad():
        rebuilt = model.decode(model.encode(images)).float()
    at_ranks = ordinal_traverse(model, images, ranks)
    looks = nonordinal_traverse(model, images, images.flip(0), None, shares)
    columns = [images, rebuilt, *at_ranks, *looks]
    headers = ["image", "rebuilt", *(f"made: {name}" for name in split.names)]
    headers += [f"{share:.0%} other look" for share in shares.tolist()]
    as_pixels = [pixels(column) for column in columns]
    grid = [[column[i] for column in as_pixels] for i in range(count)]
    shown = split.target[rows.to(split.target.probs.device)]
    agreed = (shown.probs.max(dim=1).values > 1 - 1e-6).tolist()
    captions = [
        (split.names[rank], "its grade" if alone else "most of its votes")
        for rank, alone in zip(shown.hard.tolist(), agreed, strict=True)
    ]
    return headed_grid(grid, captions, headers)
