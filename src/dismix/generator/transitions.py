"""The paper's figure "order transition".

A picture receives, in steps, the ordinal or the non-ordinal codes of a picture of the same
rank and of a more severe one. If the codes are separated, only the ordinal codes of the more
severe picture change the grade.
"""

import torch
from PIL import Image
from torch import Tensor

from dismix.errors import DisMixError
from dismix.generator.codes import Codes
from dismix.generator.images import SplitImages
from dismix.generator.model import Generator
from dismix.generator.strips import pixels
from dismix.show.headed_grid import headed_grid


def transition_rows(split: SplitImages, rank: int | None = None) -> Tensor:
    """Return rows (first, same rank, most severe) for the figure.

    Args:
        split: Best with two images of some rank and a more severe one.
        rank: Rank of the first picture; by default the lowest rank with two images.
    """
    ranks = split.target.hard.cpu()
    counts = torch.bincount(ranks, minlength=split.target.num_ranks)
    several = torch.nonzero(counts >= 2).flatten()
    if rank is None:
        # Without two of a rank the first stands beside itself.
        rank = int(several[0]) if len(several) else int(ranks.min())
    same = torch.nonzero(ranks == rank).flatten()
    if len(same) == 0:
        raise DisMixError(
            f"no image to show has rank {rank}", column="--rank", cure="choose another rank"
        )
    severe = torch.nonzero(ranks == int(ranks.max())).flatten()
    return torch.stack([same[0], same[-1], severe[0]])


@torch.no_grad()
def transition(model: Generator, first: Codes, giver: Codes, branch: str, lams: Tensor) -> Tensor:
    """Decode the first picture with a growing share of one of the giver's codes.

    Args:
        model: Generator in evaluation mode.
        first: Codes of one picture.
        giver: Codes of another.
        branch: "ordinal" or "nonordinal".
        lams: (R,) shares of the giver.

    Returns:
        (R, channels, H, W).
    """
    made = []
    for lam in lams.tolist():
        parts = {
            name: getattr(first, name) * (1 - lam if name == branch else 1)
            + getattr(giver, name) * (lam if name == branch else 0)
            for name in ("ordinal", "nonordinal")
        }
        made.append(model.decode(Codes(parts["ordinal"], parts["nonordinal"])).float())
    return torch.cat(made)


def draw_transitions(
    model: Generator, split: SplitImages, rank: int | None = None, steps: int = 6
) -> Image.Image:
    """Draw the figure: four rows of steps between the first picture and the giver's codes.

    Args:
        model: Generator in evaluation mode.
        split: See `transition_rows`.
        rank: Likewise.
        steps: Pictures of a row.
    """
    device = next(model.parameters()).device
    rows = transition_rows(split, rank)
    images = split.images(rows, device)
    with torch.no_grad():
        codes = model.encode(images)
    lams = torch.linspace(0, 1, steps)
    grid, captions = [], []
    for name, index in (("same rank", 1), ("more severe", 2)):
        for branch in ("ordinal", "nonordinal"):
            made = transition(model, codes[0:1], codes[index : index + 1], branch, lams)
            grid.append(
                [pixels(images[:1])[0], *pixels(made), pixels(images[index : index + 1])[0]]
            )
            captions.append((branch, f"of {name}"))
    headers = ["first image", *(f"{share:.0%}" for share in lams.tolist()), "other image"]
    return headed_grid(grid, captions, headers)
