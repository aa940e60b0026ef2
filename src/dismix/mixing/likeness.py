"""Partners that are alike: of several drawn, the one whose appearance lies nearest to the anchor's.

Half-way between a left and a right eye a decoder shows both discs, half-way between two knees of
another pose both joint lines. The paper draws any partner of a neighbouring rank; with ``alike=16``
the best of sixteen is taken. What is compared is the layout: non-ordinal codes, pooled to 8 x 8
cells, without their mean, which is tone and brightness. Of the descriptors that were tried it
finds partners whose pictures differ least in layout (`results/mixing`).
"""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from dismix.mixing.partner_index import PartnerIndex

if TYPE_CHECKING:
    from dismix.mixing.engine import MixEngine

CELLS = 8
# Steps of the golden ratio fall evenly into [0, 1), wherever they start.
_GOLDEN = (5**0.5 - 1) / 2
_CHUNK = 256


class Likeness:
    """How far images are from each other in appearance.

    Args:
        layouts: (N, F), see `layout_of`.

    Example:
        >>> known = Likeness(torch.tensor([[0.0], [5.0], [1.0]]))
        >>> known.away(torch.tensor([0, 0]), torch.tensor([1, 2]))
        tensor([25.,  1.])
    """

    def __init__(self, layouts: Tensor) -> None:
        self.layouts = layouts

    @classmethod
    def of(cls, engine: "MixEngine") -> "Likeness":
        """Compare the stored images of an engine."""
        rows = torch.arange(len(engine.store))
        parts = [
            layout_of(engine.stored(part).codes.nonordinal) for part in torch.split(rows, _CHUNK)
        ]
        return cls(torch.cat(parts).cpu())

    def away(self, anchors: Tensor, others: Tensor) -> Tensor:
        """Return squared distances (B,) of rows (B,) to anchors (B,)."""
        return (self.layouts[others] - self.layouts[anchors]).square().sum(-1)


def layout_of(nonordinal: Tensor) -> Tensor:
    """Return where things lie in pictures (B, F) of codes (B, D, h, w).

    Example:
        >>> codes = torch.rand(2, 3, 32, 32)
        >>> torch.allclose(layout_of(codes), layout_of(codes + 1), atol=1e-5)
        True
    """
    cells = F.adaptive_avg_pool2d(nonordinal.float(), CELLS)
    return (cells - cells.mean((2, 3), keepdim=True)).flatten(1)


def alike_partners(
    partners: PartnerIndex, first: Tensor, rows: Tensor, likeness: Likeness, count: int
) -> Tensor:
    """Return the most alike of several partners (B,), all of the rank of the one drawn first.

    Which neighbouring rank it is stays a matter of chance, not of looks.

    Args:
        partners: Images that may be partners.
        first: (B,) the partners that were drawn; the others follow from them.
        rows: (B,) rows of the anchors; where one is -1 the first partner stays.
        likeness: Of the images.
        count: K, how many are looked at.
    """
    rows, best = rows.cpu(), first
    known = rows.clamp_min(0)
    nearest = likeness.away(known, best)
    for step in range(1, count):
        other = partners.of_rank(first, (step * _GOLDEN) % 1)
        away = likeness.away(known, other)
        # An anchor without a neighbouring rank has partners of its own, but is never its own.
        nearer = (away < nearest) & (rows >= 0) & (other != rows)
        best, nearest = torch.where(nearer, other, best), torch.where(nearer, away, nearest)
    return best
