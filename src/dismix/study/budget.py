"""How long trainings are: a usual length, or what fits into the user's minutes; equal for all."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from dismix.errors import DisMixError
from dismix.study.choices import Choices, Settled

#: Usual passes of a grader: from nothing, and from pretrained weights.
EPOCHS_FROM_NOTHING, EPOCHS_PRETRAINED = 60, 40
#: Images that a generator usually sees, with bounds on its passes: tiny, tiny on photographs (as
#: the one of `results/tried.md` saw), and larger ones.
#: Few images need as many steps as many do: after a few hundred steps nothing is separated yet.
TINY_IMAGES, TINY_EPOCHS = 8_000, (8, 300)
PHOTO_IMAGES = 32_000
LIGHT_IMAGES, LIGHT_EPOCHS = 80_000, (20, 400)
TINY_GUIDE, LIGHT_GUIDE = 500, 1000
#: Shorter than these shares of the usual, the answer would be about haste and not about mixing.
LEAST_EPOCHS, LEAST_GENERATOR_EPOCHS, LEAST_GUIDE = 8, 2, 60
#: A generous budget lengthens trainings up to this; more only overfits.
MOST = 2.0
#: Graders get at most this part of a budget before generators get theirs.
GRADERS_PART = 0.4
REPEATS = 3
Lengths = tuple[int, int, int]
#: Seconds around a training that do not depend on its length.
_AROUND_GRADER, _AROUND_GENERATOR, _PAGE = 1.0, 4.0, 10.0


@dataclass(frozen=True)
class Speed:
    """Measured seconds on this machine.

    Attributes:
        grader: An image seen by a grader without mixing.
        dismix: The same with DisMix, whose pictures have to be decoded.
        generator: An image seen by a generator.
        guide: A step of the small grader that guides a generator.
        decode: Reading and decoding a file.
        hardware: What was measured.
    """

    grader: float
    dismix: float
    generator: float
    guide: float
    decode: float
    hardware: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Budget:
    """Lengths of all trainings of a study.

    Attributes:
        epochs: Passes of every grader, whatever the mixer.
        generator_epochs: Passes of every generator.
        guide_steps: Steps of what guides a generator.
        repeats: Trainings of each mixer in each fold.
        train: Training images of a fold, about.
        seconds: Expected, all together.
        generator_seconds: Of these, for generators.
        share: Passes of graders as a share of the usual ones.
        generator_share: Passes of generators as a share of the usual ones.
    """

    epochs: int
    generator_epochs: int
    guide_steps: int
    repeats: int
    train: int
    seconds: float
    generator_seconds: float
    share: float = 1.0
    generator_share: float = 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def usual(settled: Settled, train: int) -> Lengths:
    """Return the usual passes of a grader and of a generator, and the guide's steps.

    Args:
        settled: Networks.
        train: Training images of a fold.

    Example:
        >>> usual(Settled("cpu", "tiny", "tiny", 64), 200)
        (60, 40, 500)
        >>> usual(Settled("cpu", "tiny", "tiny", 64), 27)
        (60, 296, 500)
        >>> usual(Settled("cpu", "tf_efficientnet_lite0", "tiny", 128), 500)
        (40, 64, 500)
    """
    epochs = EPOCHS_FROM_NOTHING if settled.backbone == "tiny" else EPOCHS_PRETRAINED
    images, (low, high) = (
        (LIGHT_IMAGES, LIGHT_EPOCHS) if settled.light else (TINY_IMAGES, TINY_EPOCHS)
    )
    if settled.photographs:
        images = PHOTO_IMAGES
    generator = min(high, max(low, round(images / max(train, 1))))
    return epochs, generator, LIGHT_GUIDE if settled.light else TINY_GUIDE


def expected(
    speed: Speed, folds: int, train: int, lengths: Lengths, repeats: int
) -> tuple[float, float]:
    """Return the seconds of a study, and those of them that go into generators.

    Args:
        speed: Of this machine.
        folds: k.
        train: Training images of a fold.
        lengths: Passes of graders, of generators, steps of the guide.
        repeats: Trainings of each mixer in each fold.
    """
    epochs, generator_epochs, guide = lengths
    one = _AROUND_GENERATOR + guide * speed.guide + generator_epochs * train * speed.generator
    seen = epochs * train
    graders = 3 * _AROUND_GRADER + seen * (2 * speed.grader + speed.dismix)
    decoding = 1.5 * train * speed.decode
    builds = folds * one
    return folds * (repeats * graders + decoding) + builds + _PAGE, builds


def choose(choices: Choices, settled: Settled, images: int, speed: Speed) -> Budget:
    """Return lengths that were asked for, that are usual, or that fit into a budget.

    Args:
        choices: What is asked for.
        settled: Networks.
        images: N.
        speed: Of this machine.

    Raises:
        DisMixError: A budget in which nothing would be learned.
    """
    train = max(2, round(images * (choices.folds - 1) / choices.folds * 0.85))
    base = usual(settled, train)
    base = (choices.epochs or base[0], choices.generator_epochs or base[1], base[2])
    repeats = choices.repeats or REPEATS
    if choices.budget is None:
        total, builds = expected(speed, choices.folds, train, base, repeats)
        return Budget(*base, repeats, train, total, builds)
    return _fitted(choices, images, train, base, repeats, speed, 60 * choices.budget)


def _fitted(
    choices: Choices,
    images: int,
    train: int,
    base: Lengths,
    repeats: int,
    speed: Speed,
    seconds: float,
) -> Budget:
    """Fill some seconds: graders first, for one that learned nothing tells nothing."""
    folds = choices.folds

    def total(grader: float, generator: float, tried: int) -> tuple[float, float]:
        return expected(speed, folds, train, _scaled(base, grader, generator), tried)

    def graders(share: float, tried: int) -> float:
        every, builds = total(share, 0.0, tried)
        return every - builds

    tries = [repeats] if choices.repeats else [*range(repeats, 0, -1)]
    most = GRADERS_PART * seconds
    tried = next((n for n in tries if graders(1.0, n) <= most), tries[-1])
    grader = _largest(lambda x: graders(x, tried) <= most, 1.0) or 0.0
    generator = _largest(lambda x: total(grader, x, tried)[0] <= seconds, MOST)
    if generator is None:
        found = _largest(lambda x: total(x, 0.0, tried)[0] <= seconds, grader)
        if found is None:
            least = total(0.0, 0.0, tried)[0]
            raise DisMixError(
                f"{choices.budget:g} minutes are too few for {images:,} images in {folds} folds",
                column="--budget",
                cure=f"give {math.ceil(1.05 * least / 60)} or more, or fewer --folds",
            )
        grader, generator = found, 0.0
    if generator >= MOST:
        grader = _largest(lambda x: total(x, MOST, tried)[0] <= seconds, MOST) or grader
    every, builds = total(grader, generator, tried)
    lengths = _scaled(base, grader, generator)
    return Budget(*lengths, tried, train, every, builds, min(grader, 1.0), min(generator, 1.0))


def _scaled(base: Lengths, grader: float, generator: float) -> Lengths:
    return (
        max(LEAST_EPOCHS, int(base[0] * grader)),
        max(LEAST_GENERATOR_EPOCHS, int(base[1] * generator)),
        # A guide is trained to its usual end at most: more steps do not make it better.
        min(base[2], max(LEAST_GUIDE, int(base[2] * generator))),
    )


def _largest(fits: Callable[[float], bool], most: float) -> float | None:
    """Return the largest number up to ``most`` that fits, None where not even 0 does."""
    if not fits(0.0):
        return None
    if fits(most):
        return most
    low, high = 0.0, most
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
