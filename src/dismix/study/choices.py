"""What a user asks of a study, and what "auto" comes to on this machine."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dismix.errors import DisMixError

#: What is compared, and in which order it is shown.
MIXERS = ("none", "mixup", "dismix")
#: Minutes below which no study can be more than haste: trainings alone need seconds to start.
LEAST_MINUTES = 2
TINY_SIZE, PHOTO_SIZE, LIGHT_SIZE = 64, 128, 256
#: Pretrained backbones that a GPU is worth, the first whose weights are found.
ON_A_GPU = ("vgg16", "tf_efficientnet_lite0")
#: The one that a CPU can train, and the weights of a guide that reads photographs.
ON_A_CPU, GUIDE_WEIGHTS = "tf_efficientnet_lite0", "tf_efficientnet_lite0_imagenet"
#: Weights that a generator of the architecture "light" cannot do without.
LIGHT_NEEDS = ("vgg16_imagenet_features_and_lpips_heads", GUIDE_WEIGHTS)


@dataclass(frozen=True)
class Metric:
    """A number that every single image has, so that graders can be compared image by image.

    Attributes:
        name: As in `dismix.graders.metrics`.
        title: For tables.
        words: For sentences.
        lower: Whether less is better.
        worth: Smallest gain worth having, where the user names none.
        scale: What tables multiply it by.
        unit: After the number.
        gain_unit: After a difference of two numbers: 62 % less 60 % are 2 points, not 2 %.
        step: Least that an image decided otherwise differs by; 0 if not of decisions.
    """

    name: str
    title: str
    words: str
    lower: bool
    worth: float
    scale: float = 1.0
    unit: str = ""
    gain_unit: str = ""
    step: float = 1.0


METRICS = {
    "mae": Metric("mae", "Mean error", "mean error in grades", True, 0.03),
    "accuracy": Metric("accuracy", "Accuracy", "accuracy", False, 0.02, 100.0, " %", " points"),
    "rps": Metric("rps", "RPS", "ranked probability score", True, 0.01, step=0.0),
}


@dataclass(frozen=True)
class Choices:
    """What is asked for; None leaves it to `settle`.

    Attributes:
        folds: Number of folds k.
        repeats: Trainings of each mixer in each fold; None is 3, or 1 in a tight budget.
        grader: Name of the grading method.
        metric: Name in `METRICS` that decides.
        worth: Smallest gain worth having, in the metric's own unit.
        epochs: Passes of every grader over its training images.
        generator_epochs: Passes of the generators.
        backbone: Network of the graders.
        arch: Architecture of the generators.
        size: Pixels a side, of graders and generators.
        budget: Minutes that the whole study may take, about.
        without_test: Leave rows marked "test" out.
        on_error: What to do with images that cannot be read.
        cpu: Do not use a GPU.
        changes: Further settings, as `dismix bench run --set` takes them.
    """

    folds: int = 5
    repeats: int | None = None
    grader: str = "ce"
    metric: str = "mae"
    worth: float | None = None
    epochs: int | None = None
    generator_epochs: int | None = None
    backbone: str | None = None
    arch: str | None = None
    size: int | None = None
    budget: float | None = None
    without_test: bool = False
    on_error: Literal["stop", "skip"] = "stop"
    cpu: bool = False
    changes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            from dismix.registry import near_names

            raise DisMixError(
                f"'{self.metric}' is no metric of single images", column="--metric",
                cure=near_names(self.metric, [*METRICS]),
            )  # fmt: skip
        if self.worth is not None:
            _refuse_worth(self.worth, METRICS[self.metric])
        if self.folds < 2:
            raise DisMixError(f"{self.folds} folds", column="--folds", cure="give 2 or more")
        if self.budget is not None and (self.epochs or self.generator_epochs):
            raise DisMixError(
                "a budget chooses the epochs itself", column="--budget",
                cure="give either --budget or --epochs and --generator-epochs",
            )  # fmt: skip
        if self.budget is not None and self.budget < LEAST_MINUTES:
            # Now, and not after the machine was measured for a fifth of that time.
            raise DisMixError(
                f"{self.budget:g} minutes are too few for any study", column="--budget",
                cure="leave it out: --plan then says how long a study of usual length takes",
            )  # fmt: skip
        _refuse_factors(self.changes)

    @property
    def smallest(self) -> float:
        """The smallest gain worth having."""
        return METRICS[self.metric].worth if self.worth is None else self.worth

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return dataclasses.asdict(self)


def _refuse_worth(worth: float, metric: Metric) -> None:
    """Refuse a gain that nothing could reach: all smaller ones would then be "no gain"."""
    share = metric.name == "accuracy"
    # `not inside` rather than `outside`, so that NaN is caught too.
    if not 0 <= worth < (1 if share else math.inf):
        raise DisMixError(
            f"{worth:g} is no gain in {metric.words}", column="--worth",
            cure="give a share of the images, 0.02 for 2 points" if share else "give 0 or more",
        )  # fmt: skip


def _refuse_factors(changes: Mapping[str, str]) -> None:
    """Refuse to change what a study itself compares or repeats: it could not be analysed."""
    from dismix.bench.plan_checks import DEFAULTS

    own = {
        "grader": "--grader", "seed": "--repeats", "fold": "--folds", "epochs": "--epochs",
        "generator.epochs": "--generator-epochs", "backbone": "--backbone", "size": "--size",
        "generator.arch": "--arch", "generator.size": "--size",
    }  # fmt: skip
    for name in changes:
        if name in DEFAULTS or name in own:
            instead = f"use {own[name]}" if name in own else "`dismix bench run` takes it"
            raise DisMixError(
                f"'{name}' is fixed by a study", column="--set",
                cure=f"{instead}; a study compares {', '.join(MIXERS)} with all else equal",
            )  # fmt: skip


@dataclass(frozen=True)
class Settled:
    """What "auto" came to.

    Attributes:
        device: "cpu" or "cuda".
        backbone: Network of the graders.
        arch: Architecture of the generators.
        size: Pixels a side.
        notes: What had to be chosen otherwise than usual, for the page.
        guided: Whether tiny generators have a guide from ImageNet, see `photographs`.
    """

    device: str
    backbone: str
    arch: str
    size: int
    notes: tuple[str, ...] = ()
    guided: bool = False

    @property
    def light(self) -> bool:
        """Whether generators are larger than the tiny ones for CPUs."""
        return self.arch != "tiny"

    @property
    def photographs(self) -> bool:
        """Whether pretrained graders are compared under tiny generators: photographs on a CPU.

        A small guide that begins from nothing hardly reads them, and pictures of so small a
        decoder are told from them (`results/tried.md`, few real knees).
        """
        return not self.light and self.backbone != "tiny"


def settle(choices: Choices) -> Settled:
    """Choose what was left open by what this machine has.

    Args:
        choices: What is asked for.

    Raises:
        DisMixError: An unknown architecture, or a size that it cannot have.

    Example:
        >>> settle(Choices(cpu=True)).backbone, settle(Choices(cpu=True)).size
        ('tiny', 64)
    """
    import torch

    from dismix.generator.architectures import ARCHITECTURES
    from dismix.generator.pretrained import PRETRAINED
    from dismix.generator.weights import find_weights

    device = "cuda" if torch.cuda.is_available() and not choices.cpu else "cpu"
    notes, arch, backbone = list[str](), choices.arch, choices.backbone
    if arch is None:
        missing = [name for name in LIGHT_NEEDS if find_weights(name) is None]
        arch = "light" if device == "cuda" and not missing else "tiny"
        if device == "cuda" and missing:
            notes.append(
                f"The generators are tiny (64 px) although there is a GPU: the weights {missing[0]}"
                " were not found (set DISMIX_WEIGHTS to their folder)."
            )
    start = PRETRAINED.get(arch)
    if start is not None and find_weights(start) is None:
        notes.append(
            f"The generators start from nothing, which costs them detail: {start} was not found"
            " (set DISMIX_WEIGHTS to its folder)."
        )
    if backbone is None:
        backbone = "tiny" if device == "cpu" or arch == "tiny" else _pretrained()
    found = Settled(device, backbone, arch, 0)
    tiny_size = PHOTO_SIZE if found.photographs else TINY_SIZE
    size = choices.size or (ARCHITECTURES[arch].image_size if found.light else tiny_size)
    # Before images are decoded and a trial fails for it.
    ARCHITECTURES[arch].resized(size)
    here = find_weights(GUIDE_WEIGHTS) is not None
    if here and device == "cpu" and choices.backbone is None and not found.light:
        notes.append(
            "Graders are tiny and begin from nothing, which is quick. A pretrained one reads far "
            f"more in photographs, and takes far longer: `--backbone {ON_A_CPU}`, whose weights "
            "are here."
        )
    guided = found.photographs and here
    return dataclasses.replace(found, size=size, notes=tuple(notes), guided=guided)


def _pretrained() -> str:
    from dismix.generator.weights import find_weights
    from dismix.graders.backbones import FILES

    return next((name for name in ON_A_GPU if find_weights(FILES[name])), "tiny")
