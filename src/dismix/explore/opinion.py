"""What others say of a picture: a trained grader, and the training images nearest to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dismix.data.rank_names import require_same_order
from dismix.data.transforms import equalize
from dismix.errors import DisMixError
from dismix.explore.library import Library
from dismix.graders.base import Grader, Grades
from dismix.graders.evaluation import grade_batch
from dismix.mixing.nearest import NearestTraining, coarse, fine
from dismix.progress import Progress

# ITU-R 601, as `dismix.data.decode` makes grey from colour.
_LUMINANCE = (0.299, 0.587, 0.114)
_CANDIDATES = 12


class Opinion:
    """Asks a grader about pictures of the generator.

    Args:
        grader: From `Grader.load`.
        ranks: (C) names of the generator's ranks, low to high.
        equalized: The generator's pictures have equalised histograms already.
        run: The generator's folder, for messages.
    """

    def __init__(
        self,
        grader: Grader,
        ranks: Sequence[str],
        *,
        equalized: bool = False,
        run: Path | None = None,
    ) -> None:
        if grader.num_ranks != len(ranks):
            raise DisMixError(
                f"the grader knows {grader.num_ranks} ranks, the generator {len(ranks)}",
                column="--grader", cure="give a grader of the same data",
            )  # fmt: skip
        if "size" not in grader.about:
            raise DisMixError(
                "this grader does not know how its images were read",
                column="--grader", cure="give a run of `dismix grader train`",
            )  # fmt: skip
        require_same_order(
            [str(name) for name in grader.about["ranks"]], ranks, "grader", file=run,
            cure="give --grader one whose ranks are in the generator's order",
        )  # fmt: skip
        self.grader, self.equalized = grader.eval(), equalized

    @property
    def name(self) -> str:
        """The method's name."""
        return self.grader.name

    def __call__(self, pictures: Tensor) -> Grades:
        """Grade pictures (B, channels, H, W) uint8; on the CPU."""
        about, values = self.grader.about, pictures.to(self.grader.device).float()
        if about["grey"] and values.shape[1] == 3:
            weights = torch.tensor(_LUMINANCE, device=values.device).view(1, 3, 1, 1)
            values = (values * weights).sum(1, keepdim=True)
        elif not about["grey"] and values.shape[1] == 1:
            values = values.expand(-1, 3, -1, -1)
        size = int(about["size"])
        if values.shape[-1] != size:
            values = F.interpolate(
                values, (size, size), mode="bicubic", align_corners=False, antialias=True
            )
        whole = values.round().clamp(0, 255).to(torch.uint8)
        if about["equalize"] and not self.equalized:
            whole = equalize(whole)
        return grade_batch(self.grader, whole).to("cpu")


@dataclass(frozen=True)
class Neighbour:
    """A training image near a picture: its key, and the correlation of their fine structure."""

    key: str
    similarity: float


class NearestReal:
    """Finds training images near a picture.

    Args:
        library: The run's images.
        progress: Called while they are looked at.
    """

    def __init__(self, library: Library, progress: Progress | None = None) -> None:
        self._shelf = library.shelves["train"]
        self._library = library
        self._index = NearestTraining(
            self._shelf.store, equalized=library.equalize, progress=progress
        )

    def find(self, picture: Tensor, count: int = 4) -> list[Neighbour]:
        """Return the nearest training images of a picture (channels, H, W) uint8.

        Args:
            picture: As the generator makes it.
            count: How many.
        """
        wanted = fine(picture[None])
        scores = (coarse(wanted) @ self._index.vectors.T)[0]
        rows = np.sort(self._index.rows[np.argsort(-scores, kind="stable")[:_CANDIDATES]])
        close = fine(self._library.prepared(self._shelf.store[rows]))
        exact = close @ wanted[0]
        order = np.argsort(-exact, kind="stable")[:count]
        return [Neighbour(f"train/{rows[i]}", float(exact[i])) for i in order]
