"""What the explorer looks at: a picture with or without a grade."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dismix.labels import OrdinalTarget
from dismix.laws import majority_rank

NOTICE = "For research on augmentation, not for diagnosis."
UPLOAD = "upload"


@dataclass(frozen=True)
class Subject:
    """A picture that somebody chose.

    Attributes:
        key: "train/12" for an image of the run's data, "upload/<digest>" for an upload.
        name: What people see; an upload's file name is never kept, it may name a person.
        pixels: (channels, H, W) uint8, as the generator sees it.
        law: What the annotators said, C shares, or None where nobody graded it.
    """

    key: str
    name: str
    pixels: Tensor
    law: tuple[float, ...] | None

    @property
    def split(self) -> str:
        """Where it comes from: "train", "val", "test" or "upload"."""
        return self.key.split("/", 1)[0]

    @property
    def rank(self) -> int | None:
        """Majority of the annotators, by the rule that mixing has for ties; None without any."""
        return None if self.law is None else modal_rank(self.law)

    @property
    def levels(self) -> Tensor | None:
        """Levels (1, C-1) that its codes are conditioned on; None for all but training images.

        What mixing feeds a model is made of training images with their labels; anything held
        out is encoded as an image that nobody graded.
        """
        if self.law is None or self.split != "train":
            return None
        return OrdinalTarget.from_probs(torch.tensor([self.law])).levels


def modal_rank(law: tuple[float, ...]) -> int:
    """Return the most probable rank of C shares, ties as in training.

    Example:
        >>> modal_rank((0.0, 0.4, 0.4, 0.0, 0.2))
        2
    """
    return int(majority_rank(torch.tensor([law]))[0])


def rank_title(rank: float, names: tuple[str, ...]) -> str:
    """Return a rank in words; between two whole ranks both are named.

    A scale that has numbers of its own, such as 1 to 5, is spoken of in these alone.

    Example:
        >>> rank_title(1, ("none", "mild", "severe")), rank_title(1, ("0_none", "1_mild"))
        ('1 · mild', '1_mild')
        >>> rank_title(1.25, ("0", "1", "2")), rank_title(1.25, ("1", "2", "3"))
        ('1.25, between 1 and 2', '2.25, between 2 and 3')
    """
    low = int(rank)
    if rank == low:
        return names[low] if names[low][:1].isdecimal() else f"{low} · {names[low]}"
    first = int(names[0]) if names[0].isdecimal() else 0
    counted = names == tuple(str(first + k) for k in range(len(names)))
    shown = rank + first if counted else rank
    return f"{shown:.3g}, between {names[low]} and {names[low + 1]}"
