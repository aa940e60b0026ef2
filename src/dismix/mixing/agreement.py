"""Mixes kept only where an independent grader reads them as they are labelled.

A generator misses the asked rank now and then, and a wrong label teaches worse than none. More
mixes are decoded than are needed, a judge (`dismix.generator.judge`, trained on the training split
alone) reads all of them, and those are kept whose reading is nearest to their label. The choice is
made among mixes of the same rank, so that ranks which are hard to read stay as frequent as they
were drawn.
The paper keeps every mix, and so does `DisMix` unless asked.
"""

import math
from pathlib import Path

import torch
from torch import Tensor

from dismix.data.transforms import to_unit
from dismix.errors import DisMixError
from dismix.generator.judge import JUDGE_FILE, Judge
from dismix.labels import OrdinalTarget


class Agreement:
    """Chooses mixes by what a judge reads.

    Args:
        judge: A grader that took no part in training the generator.
        keep: Share of the decoded mixes that is kept, above 0 and below 1.
    """

    def __init__(self, judge: Judge, keep: float) -> None:
        if not 0 < keep < 1:
            raise DisMixError(
                f"{keep:g} is no share", column="keep", cure="give 0 to 1, or leave it"
            )
        self.judge, self.keep = judge.eval().requires_grad_(False), keep

    def candidates(self, count: int) -> int:
        """Return how many mixes are decoded for ``count`` that are kept."""
        return math.ceil(count / self.keep)

    def best(self, images: Tensor, target: OrdinalTarget, count: int) -> Tensor:
        """Return the rows (count,) of the mixes that are kept, in order.

        Args:
            images: (N, channels, H, W) uint8, on the judge's device.
            target: Their N labels.
            count: How many to keep.
        """
        kind = images.device.type
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            parts = [self.judge.expected_rank(to_unit(part)) for part in torch.split(images, 256)]
        away = (torch.cat(parts).float().cpu() - target.rank.cpu()).abs()
        return nearest_within(away, target.rank.cpu().round().long(), count)


def nearest_within(away: Tensor, groups: Tensor, count: int) -> Tensor:
    """Return the rows (count,) with the least distance, the same share of every group.

    Args:
        away: (N,) distances.
        groups: (N,) whole numbers.
        count: At most N.

    Example:
        >>> away = torch.tensor([0.1, 0.9, 0.2, 2.0, 1.0, 3.0])
        >>> nearest_within(away, torch.tensor([0, 0, 0, 1, 1, 1]), 4).tolist()
        [0, 2, 3, 4]
    """
    place = torch.zeros(len(away))
    for group in torch.unique(groups):
        rows = (groups == group).nonzero().flatten()
        order = away[rows].argsort(stable=True).argsort()
        place[rows] = (order + 0.5) / len(rows)
    return place.argsort(stable=True)[:count].sort().values


def load_agreement(
    judge: str | Path | Judge | None, keep: float, run: str | Path | None, num_ranks: int
) -> Agreement:
    """Return what chooses mixes, with the judge that is given or that lies in the run.

    Args:
        judge: A judge or its file; None takes the run's.
        keep: See `Agreement`.
        run: Run folder of the generator.
        num_ranks: C of the generator.
    """
    if isinstance(judge, Judge):
        judge.require_ranks(num_ranks)
        return Agreement(judge, keep)
    file = judge or (None if run is None else Path(run) / JUDGE_FILE)
    if file is None or not Path(file).is_file():
        raise DisMixError(
            "there is no judge to choose mixes by",
            file=file,
            cure=f"dismix mix quality RUN -o quality.html --judge RUN/{JUDGE_FILE} trains one",
        )
    found = Judge.load(file)
    found.require_ranks(num_ranks, file)
    return Agreement(found, keep)
