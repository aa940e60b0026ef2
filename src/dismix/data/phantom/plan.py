"""Which image has which rank, factors and votes: a function of the spec and its own name.

Nothing here depends on how many images there are, so a larger set begins with the images of
a smaller one.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dismix.data.phantom.draw import Side, draw_factors
from dismix.data.phantom.factors import Factors
from dismix.data.phantom.spec import SPLITS, PhantomSpec

SIDES: tuple[Side, Side] = ("left", "right")
# What a generator is for; the last word of its seed.
_PATIENT, _IMAGE, _VOTES, _RANKS = range(4)


@dataclass(frozen=True)
class PlannedImage:
    """One image before it is drawn.

    Attributes:
        image: Path below the set's folder.
        split: "train", "val" or "test".
        group: The patient.
        factors: What to draw.
        votes: One rank per annotator; empty for test images.
    """

    image: str
    split: str
    group: str
    factors: Factors
    votes: tuple[int, ...]


def plan_images(spec: PhantomSpec) -> Iterator[PlannedImage]:
    """Yield every image of a set, split by split, left and right of each patient in turn.

    Example:
        >>> spec = PhantomSpec(train=3, val=0, test=1)
        >>> [planned.image for planned in plan_images(spec)][1:3]
        ['images/train_00000_right.png', 'images/train_00001_left.png']
    """
    for split in SPLITS:
        ranks = np.empty(0, dtype=int)
        for index in range(spec.count(split)):
            if index % spec.num_ranks == 0:
                ranks = _ranks_of_block(spec, split, index // spec.num_ranks)
            yield _plan_image(spec, split, index, int(ranks[index % spec.num_ranks]))


def _rng(spec: PhantomSpec, split: str, number: int, side: int, use: int) -> np.random.Generator:
    return np.random.default_rng([spec.seed, SPLITS.index(split), number, side, use])


def _ranks_of_block(spec: PhantomSpec, split: str, block: int) -> np.ndarray:
    """Ranks of C consecutive images: one each when balanced, else one draw per C-quantile."""
    rng = _rng(spec, split, block, 0, _RANKS)
    places = (rng.permutation(spec.num_ranks) + rng.random(spec.num_ranks)) / spec.num_ranks
    if spec.rank_balance is None:
        return np.floor(places * spec.num_ranks).astype(int)
    ends = np.cumsum(spec.rank_balance)
    return np.searchsorted(ends / ends[-1], places, side="right").clip(max=spec.num_ranks - 1)


def _plan_image(spec: PhantomSpec, split: str, index: int, rank: int) -> PlannedImage:
    patient, side = divmod(index, 2)
    factors = draw_factors(
        spec,
        rank,
        _rng(spec, split, patient, side, _IMAGE),
        patient_rng=_rng(spec, split, patient, 0, _PATIENT),
        side=SIDES[side],
    )
    votes: tuple[int, ...] = ()
    if split != "test":
        ends = np.cumsum(spec.confusion_matrix()[rank])
        draws = _rng(spec, split, patient, side, _VOTES).random(spec.annotators)
        found = np.searchsorted(ends / ends[-1], draws, side="right")
        votes = tuple(int(vote) for vote in found)
    name = f"{split}_{patient:05d}"
    return PlannedImage(f"images/{name}_{SIDES[side]}.png", split, name, factors, votes)
