"""How long trainings are: a usual length, or what fits into the user's minutes; equal for all."""

from dataclasses import asdict, dataclass
from typing import Any

from dismix.bench.durations import in_words
from dismix.errors import DisMixError
from dismix.study.choices import Choices, Settled

#: Usual passes of a grader: from nothing, and from pretrained weights.
EPOCHS_FROM_NOTHING, EPOCHS_PRETRAINED = 60, 40
#: Images that a generator usually sees, with bounds on its passes: tiny, and larger ones.
TINY_IMAGES, TINY_EPOCHS = 8_000, (8, 40)
LIGHT_IMAGES, LIGHT_EPOCHS = 80_000, (20, 400)
TINY_GUIDE, LIGHT_GUIDE = 500, 1000
#: Shorter than these shares of the usual, the answer would be about haste and not about mixing.
LEAST_EPOCHS, LEAST_GENERATOR_EPOCHS, LEAST_GUIDE = 8, 2, 60
#: A generous budget lengthens trainings up to this; more only overfits.
MOST = 2.0
REPEATS = 3
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
        share: Length as a share of the usual.
        capped: The minutes given would have allowed more than is useful.
    """

    epochs: int
    generator_epochs: int
    guide_steps: int
    repeats: int
    train: int
    seconds: float
    generator_seconds: float
    share: float
    capped: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def usual(settled: Settled, train: int) -> tuple[int, int, int]:
    """Return the usual passes of a grader and of a generator, and the guide's steps.

    Args:
        settled: Networks.
        train: Training images of a fold.

    Example:
        >>> usual(Settled("cpu", "tiny", "tiny", 64), 200)
        (60, 40, 500)
    """
    epochs = EPOCHS_FROM_NOTHING if settled.backbone == "tiny" else EPOCHS_PRETRAINED
    images, (low, high) = (
        (LIGHT_IMAGES, LIGHT_EPOCHS) if settled.light else (TINY_IMAGES, TINY_EPOCHS)
    )
    generator = min(high, max(low, round(images / max(train, 1))))
    return epochs, generator, LIGHT_GUIDE if settled.light else TINY_GUIDE


def expected(
    speed: Speed, folds: int, train: int, lengths: tuple[int, int, int], repeats: int
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
        return Budget(*base, repeats, train, total, builds, 1.0)
    seconds = 60 * choices.budget
    for tried in [repeats] if choices.repeats else [*range(repeats, 0, -1)]:
        share = _share(speed, choices.folds, train, base, tried, seconds)
        # Fewer repeats rather than trainings of less than half their usual length.
        if share is not None and (share >= 0.5 or tried == 1 or choices.repeats):
            lengths = _scaled(base, share)
            total, builds = expected(speed, choices.folds, train, lengths, tried)
            return Budget(*lengths, tried, train, total, builds, share, share >= MOST)
    least, _ = expected(speed, choices.folds, train, _scaled(base, 0.0), choices.repeats or 1)
    raise DisMixError(
        f"{choices.budget:g} minutes are too few for {images:,} images in {choices.folds} folds",
        column="--budget",
        cure=f"give {least / 60 + 1:.0f} or more ({in_words(least)} at least), or fewer --folds",
    )


def _scaled(base: tuple[int, int, int], share: float) -> tuple[int, int, int]:
    epochs, generator, guide = base
    return (
        max(LEAST_EPOCHS, int(epochs * share)),
        max(LEAST_GENERATOR_EPOCHS, int(generator * share)),
        # A guide is trained to its usual end at most: more steps do not make it better.
        min(guide, max(LEAST_GUIDE, int(guide * share))),
    )


def _share(
    speed: Speed, folds: int, train: int, base: tuple[int, int, int], repeats: int, seconds: float
) -> float | None:
    """Return the largest share of the usual length that fits, None if not even the least does."""
    if expected(speed, folds, train, _scaled(base, 0.0), repeats)[0] > seconds:
        return None
    low, high = 0.0, MOST
    if expected(speed, folds, train, _scaled(base, high), repeats)[0] <= seconds:
        return high
    for _ in range(40):
        middle = (low + high) / 2
        fits = expected(speed, folds, train, _scaled(base, middle), repeats)[0] <= seconds
        low, high = (middle, high) if fits else (low, middle)
    return low
