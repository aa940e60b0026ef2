"""The graders by name, with the settings each is trained with.

A method's module registers its class::

    @register_grader("poe", "probabilistic embeddings", reference=Preset("vgg16", epochs=50, ...))
    class POE(Grader): ...

Modules are imported when the registry is first asked.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import torch

from dismix.graders.backbones import Backbone, create_backbone
from dismix.graders.base import Grader
from dismix.registry import Registry

MODULES = (
    "cross_entropy", "or_cnn", "coral", "corn", "sord",
    "poe", "gol", "mwr", "rnc", "ord2seq", "cloc",
)  # fmt: skip
"""Modules of this package that register methods."""

OptimizerName = Literal["adam", "adamw", "sgd"]
Schedule = Literal["cosine", "constant", "step"]


@dataclass(frozen=True)
class Preset:
    """How a method is trained.

    Attributes:
        backbone: Name for `create_backbone`.
        epochs: Passes over the training split, all stages together.
        batch_size: Images a step.
        lr: Learning rate.
        weight_decay: Weight decay.
        optimizer: "adam", "adamw" or "sgd" (momentum 0.9).
        schedule: "cosine" to ``final_lr * lr`` within each stage, "constant", or "step":
            a tenth after 60 % of the stage.
        final_lr: Last learning rate of "cosine" as a share of the first.
        hparams: Fields of the method's configuration.
    """

    backbone: str = "vgg16"
    epochs: int = 200
    batch_size: int = 64
    lr: float = 1e-4
    weight_decay: float = 1e-4
    optimizer: OptimizerName = "adam"
    schedule: Schedule = "cosine"
    final_lr: float = 0.0
    hparams: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """An entry of `GRADERS`.

    Attributes:
        make: The class.
        summary: One line about it.
        presets: "reference" (the authors') and "dismix" (the paper's: Adam, 200 epochs,
            batches of 64).
    """

    make: type[Grader]
    summary: str
    presets: Mapping[str, Preset]


class _Graders(Registry[Method]):
    """A registry that imports the methods when it is first asked."""

    _loaded = False

    def _load(self) -> None:
        if not self._loaded:
            # Set first: the modules import this one.
            self._loaded = True
            for name in MODULES:
                importlib.import_module(f"dismix.graders.{name}")

    def __getitem__(self, name: str) -> Method:
        self._load()
        return super().__getitem__(name)

    def __iter__(self) -> Iterator[str]:
        self._load()
        return super().__iter__()

    def __contains__(self, name: object) -> bool:
        self._load()
        return super().__contains__(name)

    def __len__(self) -> int:
        self._load()
        return super().__len__()


GRADERS = _Graders("grader")
"""All methods by name."""

G = TypeVar("G", bound=type[Grader])


def register_grader(
    name: str, summary: str, *, reference: Preset | None = None, dismix: Preset | None = None
) -> Callable[[G], G]:
    """Return a class decorator that adds a method.

    Args:
        name: Lower case.
        summary: One line.
        reference: The authors' settings; without them both presets are the same.
        dismix: Differs from `Preset()` where the method needs it.
    """
    common = dismix or Preset()
    presets = {"dismix": common, "reference": reference or common}

    def add(make: G) -> G:
        GRADERS.register(name)(Method(make, summary, presets))
        return make

    return add


def create_grader(
    name: str,
    *,
    backbone: Backbone | str = "tiny",
    num_ranks: int,
    weights: str | None = "auto",
    seed: int = 0,
    **hparams: Any,
) -> Grader:
    """Build an untrained grader.

    Args:
        name: Method, see `GRADERS`.
        backbone: A backbone, or its name.
        num_ranks: C.
        weights: Of a backbone given by name, see `create_backbone`.
        seed: Seed of the first weights.
        **hparams: The method's settings.

    Example:
        >>> grader = create_grader("ce", num_ranks=5)
        >>> grader.predict(torch.zeros(2, 3, 32, 32)).probabilities.shape
        torch.Size([2, 5])
    """
    method = GRADERS[name]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if isinstance(backbone, str):
            backbone = create_backbone(backbone, weights=weights)
        grader = method.make(backbone, num_ranks, **hparams)
    grader.name = name
    return grader
