"""The decision rule, fixed before any number is seen, and what it says of some intervals."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dismix.bench.statistics import Interval

Finding = Literal["helps", "hurts", "no gain", "cannot tell"]
Answer = Literal["yes", "no", "cannot tell"]
#: Of each of the two intervals that decide; 1 - 0.05 / 2.
LEVEL = 0.975
#: The rule as the page prints it; `judged` and `decide` are the same in code.
RULE = (
    "If none of the three is shown to be better than giving every image one and the same grade (95 "
    "% interval), it is open whether anything was learned that mixing could help with: one cannot "
    "tell.",
    "Mixup and DisMix are each compared with training without mixing, on the same held-out "
    "images. Two questions are asked, so each interval is a 97.5 % one: the chance of a false "
    "answer to either stays near 5 % or below, with three folds or more.",
    "A mixer helps if its whole interval of gains lies above zero. It hurts if the whole interval "
    "lies below zero. It brings no gain if the interval ends below the smallest gain worth having "
    "({worth}). Otherwise one cannot tell.",
    "The answer is yes if a mixer helps: train with that one. If both help, DisMix is recommended "
    "only if it is better than Mixup by the same rule; else Mixup, which needs no generator.",
    "The answer is no if each of them hurts or brings no gain. In all other cases it is "
    "\u201ccannot tell\u201d, and nothing is recommended over training without mixing.",
)
NAMES = {"none": "no mixing", "mixup": "Mixup", "dismix": "DisMix"}


@dataclass(frozen=True)
class Comparison:
    """One mixer against another; gains are positive when the first is better.

    Attributes:
        mixer: The first.
        against: The second.
        gain: Mean gain with its interval, in the metric's unit.
        by_fold: Gain in each fold.
        finding: By the rule.
        needed: About how many images would be needed to see a gain of the smallest size.
        values: The metric of the first and of the second.
    """

    mixer: str
    against: str
    gain: Interval
    by_fold: tuple[float, ...]
    finding: Finding
    needed: int
    values: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Verdict:
    """The answer.

    Attributes:
        answer: "yes", "no" or "cannot tell".
        mixer: What to train with.
        headline: A few words.
        sentences: The reasons and their uncertainty.
    """

    answer: Answer
    mixer: str
    headline: str
    sentences: tuple[str, ...]


def judged(gain: Interval, worth: float) -> Finding:
    """Return what an interval of gains says.

    Args:
        gain: Positive is better.
        worth: Smallest gain worth having.

    Example:
        >>> judged(Interval(0.05, 0.01, 0.09), 0.03), judged(Interval(0.0, -0.02, 0.02), 0.03)
        ('helps', 'no gain')
    """
    if gain.low > 0:
        return "helps"
    if gain.high < 0:
        return "hurts"
    return "no gain" if gain.high < worth else "cannot tell"


def images_needed(gain: Interval, worth: float, images: int) -> int:
    """Return about how many images an interval needs to be as narrow as a gain worth having.

    Widths shrink with the square root of the number of images.

    Example:
        >>> images_needed(Interval(0.0, -0.06, 0.06), 0.03, 300)
        1200
    """
    half = (gain.high - gain.low) / 2
    wanted = images * (half / max(worth, 1e-9)) ** 2
    digits = max(0, math.floor(math.log10(max(wanted, 1))) - 1)
    # Rounding noise must not make 30 a 31.
    return int(math.ceil(round(wanted / 10**digits, 6)) * 10**digits)


def decide(
    comparisons: Mapping[tuple[str, str], Comparison], *, learned: bool = True
) -> tuple[Answer, str]:
    """Return the answer and the mixer to train with.

    Args:
        comparisons: By (mixer, against): both against "none", and DisMix against Mixup.
        learned: Whether any grader is better than one and the same grade for all.
    """
    if not learned:
        return "cannot tell", "none"
    mixup, dismix = (comparisons[name, "none"].finding for name in ("mixup", "dismix"))
    if mixup == "helps" and dismix == "helps":
        better = comparisons["dismix", "mixup"].finding == "helps"
        return "yes", "dismix" if better else "mixup"
    if "helps" in (mixup, dismix):
        return "yes", "dismix" if dismix == "helps" else "mixup"
    settled = ("hurts", "no gain")
    if mixup in settled and dismix in settled:
        return "no", "none"
    return "cannot tell", "none"
