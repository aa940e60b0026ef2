"""What an independent grader says about mixes: which are kept, and what they are labelled.

A generator misses the asked rank now and then, and a wrong label teaches worse than none. A judge
(`dismix.generator.judge`, trained on the training split alone) reads the decoded pictures, and

- ``keep``: more mixes are decoded than are needed, and those are kept whose reading is nearest to
  their label. The choice is made among mixes of the same rank, so that ranks which are hard to read
  stay as frequent as they were drawn;
- ``judged``: the label becomes a mean of what was asked for and of what the judge sees. Where both
  agree nothing changes; where the picture shows another rank the label follows it part of the way.
  A label by another network is also distillation (Hinton et al., 2015), so a comparison with mixers
  that have no judge should say so.

The paper keeps every mix as it is labelled, and so does `DisMix` unless asked.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dismix.data.transforms import to_unit
from dismix.errors import DisMixError
from dismix.generator.judge import JUDGE_FILE, Judge
from dismix.labels import OrdinalTarget
from dismix.mixing.pool import Pooled


class Agreement:
    """Chooses and labels mixes by what a judge reads.

    Args:
        judge: A grader that took no part in training the generator.
        keep: Share of the decoded mixes that is kept, above 0; 1 keeps all.
        judged: Share of the judge's reading in a mix's label, 0 to 1.
    """

    def __init__(self, judge: Judge, keep: float = 1.0, judged: float = 0.0) -> None:
        for name, share, right in (
            ("keep", keep, 0 < keep <= 1),
            ("judged", judged, 0 <= judged <= 1),
        ):
            if not right:
                raise DisMixError(
                    f"{share:g} is no share", column=name, cure="give 0 to 1, or leave it"
                )
        self.judge = judge.eval().requires_grad_(False)
        self.keep, self.judged = keep, judged

    def candidates(self, count: int) -> int:
        """Return how many mixes are decoded for ``count`` that are kept."""
        return math.ceil(count / self.keep)

    def applied(self, made: Pooled, count: int) -> Pooled:
        """Return ``count`` of the decoded mixes, labelled.

        Args:
            made: Mixes on the judge's device, with the labels that were asked for.
            count: How many to keep.
        """
        seen = self.read(made.images).to(made.probs)
        if self.keep < 1:
            rows = self.best(seen, OrdinalTarget.from_probs(made.probs), count)
            made, seen = made[rows], seen[rows.to(seen.device)]
        if self.judged > 0:
            mixed = (1 - self.judged) * made.probs + self.judged * seen
            made = Pooled(made.images, mixed, made.fell_back)
        return made

    def read(self, images: Tensor) -> Tensor:
        """Return what the judge sees: laws (N, C) of images (N, channels, H, W), uint8."""
        kind = images.device.type
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            parts = [self.judge.probabilities(to_unit(part)) for part in torch.split(images, 256)]
        return torch.cat(parts).float()

    def best(self, seen: Tensor, target: OrdinalTarget, count: int) -> Tensor:
        """Return the rows (count,) of the mixes that are kept, in order.

        Args:
            seen: (N, C) what the judge sees.
            target: Their N labels.
            count: How many to keep.
        """
        asked = target.rank.cpu()
        away = (OrdinalTarget.from_probs(seen.cpu()).rank - asked).abs()
        return nearest_within(away, asked.round().long(), count)


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


def reads_mixes(options: Mapping[str, Any]) -> bool:
    """Tell whether DisMix with such options needs a judge.

    Example:
        >>> reads_mixes({"keep": 0.5}), reads_mixes({"judged": 0.5}), reads_mixes({"keep": 1})
        (True, True, False)
    """
    return bool(options.get("keep", 1) != 1 or options.get("judged", 0) != 0)


def load_agreement(
    judge: str | Path | Judge | None,
    run: str | Path | None,
    target: OrdinalTarget,
    *,
    keep: float = 1.0,
    judged: float = 0.0,
) -> Agreement:
    """Return what chooses and labels mixes, with the judge that is given or lies in the run.

    Args:
        judge: A judge or its file; None takes the run's.
        run: Run folder of the generator.
        target: Of the training images that are mixed; warns of a judge that learned others.
        keep: See `Agreement`.
        judged: See `Agreement`.
    """
    if isinstance(judge, Judge):
        judge.require_ranks(target.num_ranks)
        judge.warn_of_others(target)
        return Agreement(judge, keep, judged)
    file = judge or (None if run is None else Path(run) / JUDGE_FILE)
    if file is None or not Path(file).is_file():
        raise DisMixError(
            "there is no judge to read mixes",
            file=file,
            cure=f"dismix mix quality RUN -o quality.html --judge RUN/{JUDGE_FILE} trains one",
        )
    found = Judge.load(file)
    found.require_ranks(target.num_ranks, file)
    found.warn_of_others(target, file)
    return Agreement(found, keep, judged)
