"""What every grader shares: one interface to train on soft labels and to predict with.

A method implements `Grader.training_loss` and `Grader.grade`; the loop in
`dismix.graders.training` knows nothing else about it. Mixing stays outside: a method sees
images and an `OrdinalTarget`, never which mixer made them.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import torch
from torch import Tensor, nn

from dismix.data.transforms import to_unit
from dismix.errors import DisMixError
from dismix.generator.precision import full_precision
from dismix.graders.backbones import Backbone
from dismix.graders.choices import check_settings
from dismix.graders.cut_points import first_cuts, rule_of
from dismix.graders.grades import Grades, expected_rank
from dismix.graders.inputs import given_laws
from dismix.graders.pixels import PixelCheck
from dismix.graders.weighting import combine_weights, weighted_mean, without_ignored
from dismix.labels import OrdinalTarget
from dismix.modes import evaluating
from dismix.registry import near_names

__all__ = [
    "Grader",
    "GraderConfig",
    "Grades",
    "LabelledBatches",
    "Stage",
    "combine_weights",
    "expected_rank",
    "full_precision",
    "make_config",
    "weighted_mean",
    "without_ignored",
]

LabelledBatches: TypeAlias = Iterable[tuple[Tensor, OrdinalTarget]]
"""Clean, not augmented images (B, channels, H, W) in [-1, 1] with their targets."""


@dataclass(frozen=True)
class Stage:
    """A phase of training; the loop runs a grader's stages in order.

    Attributes:
        name: For logs, and for `Grader.training_loss` to tell stages apart.
        share: Fraction of the epochs.
        trainable: Prefixes of parameter names; all others are frozen and their batch
            normalisation keeps its statistics. The empty prefix means everything.
        lr_scale: Factors on the learning rate by prefix, {"head": 10.0}.
        lr_most: Largest learning rate of Adam by prefix, for what does not learn above it.
        travel: By prefix, how far Adam may carry a parameter over the whole stage: its learning
            rate follows from the number of steps, whatever that of the network is. For what
            is pushed one way all the time and would go farther the longer a training is.
        views: Augmented views of each image.
        mixing: Whether mixers act in this stage.
        warmup: Fraction of this stage's steps over which the learning rate grows from zero.
    """

    name: str
    share: float
    trainable: tuple[str, ...] = ("",)
    lr_scale: Mapping[str, float] = field(default_factory=dict)
    lr_most: Mapping[str, float] = field(default_factory=dict)
    travel: Mapping[str, float] = field(default_factory=dict)
    views: int = 1
    mixing: bool = True
    warmup: float = 0.0


@dataclass(frozen=True)
class GraderConfig:
    """Hyper-parameters of a method; each method has its own subclass."""

    def __post_init__(self) -> None:
        check_settings(self)


def make_config(kind: type[GraderConfig], hparams: Mapping[str, Any]) -> GraderConfig:
    """Build a configuration; an unknown name offers near ones."""
    known = [f.name for f in dataclasses.fields(kind)]
    for name in hparams:
        if name not in known:
            cure = near_names(name, known) if known else "this method has no settings"
            raise DisMixError(f"unknown setting '{name}'", cure=cure)
    return kind(**hparams)


class Grader(nn.Module, ABC):
    """A network that gives images a rank.

    Args:
        backbone: Feature extractor.
        num_ranks: C.
        **hparams: Fields of the method's ``config_type``.

    Attributes:
        stages: Phases of training; may be set in ``__init__`` from the configuration.
        min_batch: Fewest images that a training step needs.
        uses_reference: Whether predictions need `fit_reference`.
        by_rank: Whether decisions are made where the expected rank lies between `cuts`.
        by_rank_with: For methods that do so with one of their settings only: its name and values.
        exportable: Whether `grade` can be traced (no loop that depends on values).
        config_type: The method's configuration.
        name: The method's name in the registry.
        about: What a trained grader knows of its data: names of the ranks, size of the
            images and the like, see `dismix.graders.about.about_images`.
        cuts: (C-1,) where the expected rank goes over to the next grade, for those that decide so:
            half-way, until training fits them (`dismix.graders.cut_points`). NaN: the most
            probable rank decides after all.
        reference: Tensors that `fit_reference` leaves behind, of any size: they go into
            ``state_dict`` and follow the module to its device.
    """

    stages: tuple[Stage, ...] = (Stage("fit", 1.0),)
    min_batch: int = 1
    uses_reference: bool = False
    by_rank: bool = False
    by_rank_with: ClassVar[tuple[str, tuple[str, ...]] | None] = None
    exportable: bool = True
    config_type: ClassVar[type[GraderConfig]] = GraderConfig
    cuts: Tensor

    def __init_subclass__(cls, **options: Any) -> None:
        """Let a method's `training_loss` take labels and laws too, and see an `OrdinalTarget`."""
        super().__init_subclass__(**options)
        if "training_loss" in vars(cls):
            cls.training_loss = given_laws(cls.training_loss)  # type: ignore[method-assign]

    def __init__(self, backbone: Backbone, num_ranks: int, **hparams: Any) -> None:
        super().__init__()
        if not isinstance(backbone, Backbone):
            raise DisMixError(
                f"the backbone is a {type(backbone).__name__}, not a Backbone",
                cure='wrap it: Backbone(network, "its name", out_dim, relu_out=False), from'
                " dismix.graders.backbones",
            )
        if num_ranks < 2:
            raise DisMixError(f"an ordinal scale needs at least 2 ranks, got {num_ranks}")
        self.config: Any = make_config(self.config_type, hparams)
        self.by_rank = self.decides_by_rank(self.config)
        self.backbone, self.num_ranks = backbone, num_ranks
        self.reference: dict[str, Tensor] = {}
        self.register_buffer("cuts", first_cuts(num_ranks, rule_of(self.config)))
        self._draws: torch.Generator | None = None
        self._seed = 0
        self._check_pixels = PixelCheck()
        self.name = ""
        self.about: dict[str, Any] = {}

    @classmethod
    def decides_by_rank(cls, config: GraderConfig) -> bool:
        """Tell whether the expected rank decides or may do so, and not the most probable one.

        Args:
            config: Of the class's ``config_type``.
        """
        if cls.by_rank_with is None:
            return cls.by_rank
        name, values = cls.by_rank_with
        return getattr(config, name) in values

    @property
    def deciding_cuts(self) -> Tensor | None:
        """Cut points (C-1,), or None where the most probable rank decides."""
        return self.cuts if self.by_rank else None

    @abstractmethod
    def training_loss(
        self, images: Tensor, target: OrdinalTarget, stage: Stage, weights: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return "loss" and named scalar parts of it.

        Never NaN and never an error on a degenerate batch (one grade, two images, all
        mixed): a zero that is connected to the graph instead.

        Args:
            images: (B, channels, H, W) in [-1, 1], or (B, V, channels, H, W) when the
                stage asks for V views.
            target: Targets of the B images. Callers may give labels (B,) or laws (B, C) as well:
                whatever a method defines gets an `OrdinalTarget` of them.
            stage: The present stage.
            weights: (B,) non-negative weights of the images, see `combine_weights`; None
                is all ones.
        """

    @abstractmethod
    def grade(self, images: Tensor) -> Grades:
        """Return grades of images (B, channels, H, W) in [-1, 1]; `predict` calls this.

        Must be deterministic: what is sampled comes from a generator seeded here.
        """

    @torch.no_grad()
    def predict(self, images: Tensor) -> Grades:
        """Return grades, in evaluation mode and without gradients.

        Args:
            images: (B, channels, H, W), uint8 or within [-1, 1]. Histograms must have been
                equalised if they were in training; `dismix.graders.predict` does all that
                from files.
        """
        self._check_pixels(images, self.about.get("size"))
        with evaluating(self):
            return self.grade(to_unit(images))

    def forward(self, images: Tensor) -> Tensor:
        """Return probabilities (B, C)."""
        return self.grade(images).probabilities

    def fit_reference(
        self, batches: LabelledBatches, validation: LabelledBatches | None = None
    ) -> None:
        """Take in the clean training images; does nothing unless ``uses_reference``.

        Called in evaluation mode without gradients.

        Args:
            batches: Training images.
            validation: Images to choose settings on, such as the number of neighbours.
        """
        return

    def on_stage_start(self, stage: Stage) -> None:
        """Prepare for a stage, also when a run resumes inside it: freeze margins and so on."""

    def start_epoch(self, seed: int) -> None:
        """Seed `draws` for an epoch; what a method remembers between steps is dropped here.

        Nothing but weights and buffers may pass from one epoch to the next, or a resumed
        run would differ from one that was not interrupted.
        """
        self._seed, self._draws = seed, None

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    @property
    def draws(self) -> torch.Generator:
        """Source of random choices in training, on the module's device."""
        if self._draws is None or self._draws.device != self.device:
            self._draws = torch.Generator(self.device).manual_seed(self._seed)
        return self._draws

    def require_reference(self) -> dict[str, Tensor]:
        """Return the reference tensors, or say that they have to be fitted first."""
        if not self.reference:
            raise DisMixError(
                f"the grader '{self.name or type(self).__name__}' has no reference images yet",
                cure="call fit_reference with the clean training images first",
            )
        return self.reference

    def get_extra_state(self) -> dict[str, Tensor]:
        """Return the reference tensors, for ``state_dict``."""
        return dict(self.reference)

    def set_extra_state(self, state: Mapping[str, Tensor]) -> None:
        """Take the reference tensors from a ``state_dict``."""
        self.reference = {name: tensor.to(self.device) for name, tensor in state.items()}

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        self.reference = {name: fn(tensor) for name, tensor in self.reference.items()}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    @staticmethod
    def load(
        path: str | Path, device: torch.device | str = "cpu", *, backbone: Backbone | None = None
    ) -> "Grader":
        """Load a trained grader from its run folder, ready to predict.

        Args:
            path: Folder that `dismix grader train` or `save_grader` filled, or the model file.
            device: Where to put it.
            backbone: What the grader was made with, where that is no backbone known by name; the
                file's weights are put into it.
        """
        from dismix.graders.saving import load_grader

        return load_grader(path, device, backbone=backbone)
