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
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, TypeAlias

import torch
from torch import Tensor, nn

from dismix.data.transforms import to_unit
from dismix.errors import DisMixError
from dismix.generator.precision import full_precision
from dismix.graders.backbones import Backbone
from dismix.graders.choices import check_settings
from dismix.labels import OrdinalTarget
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
    "nearest_rank",
    "pair_weights",
    "weighted_mean",
]

LabelledBatches: TypeAlias = Iterable[tuple[Tensor, OrdinalTarget]]
"""Clean, not augmented images (B, channels, H, W) in [-1, 1] with their targets."""

_NO_SCALES: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class Grades:
    """What a grader says about B images.

    Attributes:
        probabilities: (B, C), rows sum to one.
        rank: (B,) float, the method's own point estimate.
        label: (B,) long, by the method's decision rule.
        uncertainty: (B,) or None, in the method's own unit; larger is less certain.
    """

    probabilities: Tensor
    rank: Tensor
    label: Tensor
    uncertainty: Tensor | None = None

    @classmethod
    def from_probabilities(
        cls,
        probabilities: Tensor,
        *,
        rule: Literal["argmax", "round"] = "argmax",
        uncertainty: Tensor | None = None,
    ) -> "Grades":
        """Take the expected rank, and the most probable or the nearest rank as decision.

        Example:
            >>> law = torch.tensor([[0.45, 0.1, 0.45, 0.0]])
            >>> Grades.from_probabilities(law, rule="round").label.tolist()
            [1]
        """
        rank = expected_rank(probabilities)
        if rule == "argmax":
            label = probabilities.argmax(-1)
        else:
            label = nearest_rank(rank, probabilities.shape[-1])
        return cls(probabilities, rank, label, uncertainty)

    @staticmethod
    def cat(parts: Iterable["Grades"]) -> "Grades":
        """Concatenate along the batch."""
        listed = list(parts)
        unsure = [p.uncertainty for p in listed if p.uncertainty is not None]
        return Grades(
            torch.cat([p.probabilities for p in listed]),
            torch.cat([p.rank for p in listed]),
            torch.cat([p.label for p in listed]),
            torch.cat(unsure) if len(unsure) == len(listed) else None,
        )

    def to(self, device: torch.device | str) -> "Grades":
        """Move to a device."""
        unsure = None if self.uncertainty is None else self.uncertainty.to(device)
        return Grades(
            self.probabilities.to(device), self.rank.to(device), self.label.to(device), unsure
        )

    def __len__(self) -> int:
        return len(self.label)


@dataclass(frozen=True)
class Stage:
    """A phase of training; the loop runs a grader's stages in order.

    Attributes:
        name: For logs, and for `Grader.training_loss` to tell stages apart.
        share: Fraction of the epochs.
        trainable: Prefixes of parameter names; all others are frozen and their batch
            normalisation keeps its statistics. The empty prefix means everything.
        lr_scale: Factors on the learning rate by prefix, {"head": 10.0}.
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
    lr_scale: Mapping[str, float] = field(default_factory=lambda: _NO_SCALES)
    travel: Mapping[str, float] = field(default_factory=lambda: _NO_SCALES)
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
        exportable: Whether `grade` can be traced (no loop that depends on values).
        config_type: The method's configuration.
        name: The method's name in the registry.
        about: What a trained grader knows of its data: names of the ranks, size of the
            images and the like, see `dismix.graders.saving`.
        reference: Tensors that `fit_reference` leaves behind, of any size: they go into
            ``state_dict`` and follow the module to its device.
    """

    stages: tuple[Stage, ...] = (Stage("fit", 1.0),)
    min_batch: int = 1
    uses_reference: bool = False
    exportable: bool = True
    config_type: ClassVar[type[GraderConfig]] = GraderConfig

    def __init__(self, backbone: Backbone, num_ranks: int, **hparams: Any) -> None:
        super().__init__()
        if num_ranks < 2:
            raise DisMixError(f"an ordinal scale needs at least 2 ranks, got {num_ranks}")
        self.config: Any = make_config(self.config_type, hparams)
        self.backbone, self.num_ranks = backbone, num_ranks
        self.reference: dict[str, Tensor] = {}
        self._draws: torch.Generator | None = None
        self._seed = 0
        self.name = ""
        self.about: dict[str, Any] = {}

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
            target: Targets of the B images.
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
        mode = self.training
        self.eval()
        try:
            return self.grade(to_unit(images))
        finally:
            self.train(mode)

    def forward(self, images: Tensor) -> Tensor:
        """Return probabilities (B, C): what is exported."""
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
    def load(path: str | Path, device: torch.device | str = "cpu") -> "Grader":
        """Load a trained grader from its run folder, ready to predict.

        Args:
            path: Folder that `dismix grader train` filled, or the model file in it.
            device: Where to put it.
        """
        from dismix.graders.saving import load_grader

        return load_grader(path, device)


def expected_rank(probabilities: Tensor) -> Tensor:
    """Return the mean rank (B,) of laws (B, C).

    Example:
        >>> expected_rank(torch.tensor([[0.25, 0.5, 0.25]]))
        tensor([1.])
    """
    ranks = torch.arange(probabilities.shape[-1], device=probabilities.device)
    return (probabilities.float() * ranks).sum(-1)


def nearest_rank(rank: Tensor, num_ranks: int) -> Tensor:
    """Round half up to a whole rank 0..C-1; ``round`` would send 0.5 and 2.5 to even ranks.

    Example:
        >>> nearest_rank(torch.tensor([-0.2, 0.5, 2.5, 9.0]), 4)
        tensor([0, 1, 3, 3])
    """
    return (rank.float() + 0.5).floor().clamp(0, num_ranks - 1).long()


def weighted_mean(values: Tensor, weights: Tensor | None) -> Tensor:
    """Return the weighted mean of values (...); all-zero weights give a connected zero.

    Example:
        >>> weighted_mean(torch.tensor([1.0, 4.0]), torch.tensor([2.0, 1.0]))
        tensor(2.)
    """
    if weights is None:
        return values.mean()
    return (values * weights).sum() / weights.sum().clamp_min(1e-12)


def pair_weights(weights: Tensor | None, count: int, like: Tensor) -> Tensor:
    """Return the weights (B, B) of pairs: the product of those of their two images.

    Args:
        weights: (B,) or None for ones.
        count: B.
        like: A tensor on the wanted device.
    """
    if weights is None:
        return torch.ones(count, count, device=like.device)
    return weights[:, None] * weights[None, :]


def combine_weights(
    target: OrdinalTarget, per_rank: Tensor | None = None, per_sample: Tensor | None = None
) -> Tensor | None:
    """Return one weight (B,) an image: its own times the mean weight of its ranks.

    Args:
        target: Targets of the B images.
        per_rank: (C,) or None.
        per_sample: (B,) or None.

    Example:
        >>> target = OrdinalTarget.from_rank([0.0, 0.5], num_ranks=2)
        >>> combine_weights(target, per_rank=torch.tensor([1.0, 3.0]))
        tensor([1., 2.])
    """
    if per_rank is None:
        return per_sample
    mean = target.probs @ per_rank.to(target.probs)
    return mean if per_sample is None else mean * per_sample
