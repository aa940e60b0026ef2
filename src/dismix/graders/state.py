"""The state of a training: what the loop changes, how it is saved and taken back."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from dismix.errors import DisMixError
from dismix.generator.checkpoint import FILE, load_training, save_training
from dismix.generator.run_log import read_metrics
from dismix.graders.averaging import AveragedState
from dismix.graders.base import Grader
from dismix.graders.plan import stage_ends
from dismix.graders.saving import MODEL, save_grader
from dismix.graders.selection import Selector
from dismix.graders.settings import TrainSettings
from dismix.labels import OrdinalTarget

Mixer = Callable[..., tuple[Tensor, OrdinalTarget]]
"""Called as ``mixer(images, target)``, like those of `dismix.mixing`."""


@dataclass
class Training:
    """A training, built once and then changed by the loop.

    Attributes:
        grader: On its device.
        settings: Settings.
        seed: Seed of all choices.
        mixer: Mixes batches in the stages that allow it, or None.
        sample_weights: (N,) weights of the training images, or None.
        mixer_rows: (N,) where the mixer has the training images in store, -1 where it has them
            not; None for mixers that store nothing.
        epoch: Epochs done.
        selectors: One for each rule of the settings.
        best: State of the best checkpoint by rule, since the last saving.
        other_mixers: States of the other processes' mixers after the last epoch.
    """

    grader: Grader
    settings: TrainSettings
    seed: int = 0
    mixer: Mixer | None = None
    sample_weights: Tensor | None = None
    mixer_rows: Tensor | None = None
    epoch: int = 0
    selectors: dict[str, Selector] = field(default_factory=dict)
    best: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    other_mixers: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.selectors = {rule: Selector(rule) for rule in self.settings.select}
        self.ends = stage_ends(self.grader.stages, self.settings.epochs)

    def stage_at(self, epoch: int) -> int:
        """Return the number of the stage that an epoch belongs to."""
        return next(i for i, end in enumerate(self.ends) if epoch < end)


class _Weights(nn.Module):
    """A grader's state without its reference images, which each validation fits anew."""

    def __init__(self, grader: Grader) -> None:
        super().__init__()
        self.grader = grader

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        state = self.grader.state_dict(*args, **kwargs)
        return {k: v for k, v in state.items() if isinstance(v, Tensor)}

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        extra = self.grader.get_extra_state()
        return self.grader.load_state_dict({**state_dict, "_extra_state": extra}, strict, assign)


class _State(nn.Module):
    """A state as a module: that of another process's mixer, as a checkpoint holds it."""

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.state = state or {}

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        return self.state

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        self.state = dict(state_dict)


def _modules(training: Training) -> dict[str, nn.Module]:
    """Return what a checkpoint holds: weights, and the random state of a mixer that has one."""
    modules: dict[str, nn.Module] = {"grader": _Weights(training.grader)}
    if isinstance(training.mixer, nn.Module):
        modules["mixer"] = training.mixer
    return modules


def save_state(
    training: Training, run: Path, optimizer: torch.optim.Optimizer, average: AveragedState
) -> None:
    """Write the best models since the last time, then the state of the training."""
    for number, rule in enumerate(training.settings.select):
        if rule in training.best:
            training.grader.about |= {"select": rule, "epoch": training.selectors[rule].epoch}
            save_grader(training.grader, run / model_file(rule, number), training.best[rule])
    training.best.clear()
    states = {rule: selector.state() for rule, selector in training.selectors.items()}
    notes = {"epoch": training.epoch, "selectors": states}
    modules = _modules(training)
    modules |= {_place(i): _State(s) for i, s in enumerate(training.other_mixers, start=1)}
    save_training(run, modules, {"grader": optimizer}, average, notes)


def restore_state(
    training: Training,
    run: Path,
    optimizer: torch.optim.Optimizer,
    average: AveragedState,
    process: int = 0,
) -> bool:
    """Take back what `save_state` wrote.

    Args:
        training: Built as the one that was saved.
        run: Run folder.
        optimizer: Of the stage of the last epoch done.
        average: Likewise.
        process: Number of this process.

    Returns:
        Whether the mixer goes on as this process's own did.
    """
    modules, own = _modules(training), _State()
    if process:
        modules[_place(process)] = own
    notes = load_training(run, modules, {"grader": optimizer}, average)
    training.epoch = int(notes["epoch"])
    for rule, state in notes["selectors"].items():
        training.selectors[rule].restore(state)
    if process and own.state and isinstance(training.mixer, nn.Module):
        training.mixer.load_state_dict(own.state)
    return process == 0 or bool(own.state)


def _place(process: int) -> str:
    return f"mixer{process}"


def epochs_done(run: Path) -> int:
    """Return the epochs that the checkpoint in a run folder has behind it; 0 without one."""
    path = run / FILE
    if not path.is_file():
        return 0
    try:
        with safe_open(str(path), framework="pt") as file:
            return int(json.loads((file.metadata() or {})["notes"])["epoch"])
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise DisMixError(
            f"not a whole checkpoint ({error})", file=path, cure="delete it to start over"
        ) from error


def model_file(rule: str, number: int) -> str:
    """Return the name of the file of a rule's model; the first rule's is the model.

    Example:
        >>> model_file("accuracy", 0), model_file("loss", 1)
        ('model.safetensors', 'model-loss.safetensors')
    """
    return MODEL if number == 0 else f"model-{rule}.safetensors"


def refuse_unfinished(run: str | Path) -> None:
    """Refuse a folder in which a run was stopped before its first checkpoint.

    Checkpoints are a minute apart (see `dismix.graders.training.run_training`), so what tells of
    such a run are the epochs that it has logged.

    Args:
        run: Folder that is to be filled from the start.

    Raises:
        DisMixError: Epochs were logged there, and neither checkpoint nor model was saved.
    """
    run = Path(run)
    done = len(read_metrics(run))
    if done and not (run / FILE).is_file() and not (run / MODEL).is_file():
        raise DisMixError(
            f"holds a run already ({done} epochs, no checkpoint yet)", file=run,
            cure="add --resume, which begins it anew, or choose another folder",
        )  # fmt: skip
