"""Everything an interrupted training needs, in one file that is whole or absent.

Random choices of a step depend on (seed, epoch, step) alone, so no random state is kept but that
of a grader's mixer, which is one of its modules: a run that continues from here ends with the
weights of one that was never interrupted.
"""

import json
import time
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from dismix import atomic
from dismix.errors import DisMixError
from dismix.generator.ema import AveragedWeights

FILE = "last.safetensors"
#: Most of the time between two checkpoints that writing one may take.
SAVING_SHARE = 0.05


class SavingTime:
    """Tells when a checkpoint is due: so seldom that saving stays cheap.

    An epoch on a few hundred images may take a second, and writing its state a good part of
    that; a kill costs the epochs since, which a resumed run does again.

    Args:
        least: Seconds between two, and before the first; 0 saves every time, cheap or not.
            None saves at once, and then as seldom as is cheap.

    Example:
        >>> saving = SavingTime()
        >>> saving.due
        True
        >>> with saving:
        ...     time.sleep(0.01)
        >>> saving.due
        False
    """

    def __init__(self, least: float | None = None) -> None:
        self.least, self._began = least, time.monotonic()
        self._next = self._began + (least or 0.0)

    @property
    def due(self) -> bool:
        """Whether enough time has passed."""
        return time.monotonic() >= self._next

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        ended = time.monotonic()
        cheap = 0.0 if self.least == 0 else (ended - self._began) / SAVING_SHARE
        self._next = ended + max(self.least or 0.0, cheap)


def save_training(
    run: Path,
    modules: dict[str, nn.Module],
    optimizers: dict[str, Optimizer],
    average: AveragedWeights,
    notes: dict[str, Any],
) -> None:
    """Write the state of a training atomically.

    Args:
        run: Run folder.
        modules: Modules by name.
        optimizers: Optimizers by name.
        average: Averaged weights.
        notes: JSON: epoch, best score and the like.
    """
    tensors: dict[str, Tensor] = {}
    for name, module in modules.items():
        tensors |= {f"module/{name}/{key}": value for key, value in module.state_dict().items()}
    for name, optimizer in optimizers.items():
        for index, slots in optimizer.state_dict()["state"].items():
            for slot, value in slots.items():
                tensors[f"optimizer/{name}/{index}/{slot}"] = torch.as_tensor(value)
    tensors |= {f"average/{key}": value for key, value in average.tensors.items()}
    plain = {
        key: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for key, value in tensors.items()
    }
    with atomic.replacing(run / FILE) as temporary:
        written = {**notes, "updates": average.updates}
        save_file(plain, temporary, metadata={"notes": json.dumps(written)})


def load_training(
    run: Path,
    modules: dict[str, nn.Module],
    optimizers: dict[str, Optimizer],
    average: AveragedWeights,
) -> dict[str, Any]:
    """Load what `save_training` wrote into the same objects and return its notes.

    Raises:
        DisMixError: The file is damaged or belongs to another model.
    """
    path = run / FILE
    cure = "delete it to start over, or restore the file"
    try:
        with safe_open(str(path), framework="pt") as file:
            notes: dict[str, Any] = json.loads((file.metadata() or {})["notes"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise DisMixError(f"not a whole checkpoint ({error})", file=path, cure=cure) from error
    try:
        for name, module in modules.items():
            module.load_state_dict(_below(tensors, f"module/{name}/"))
        for name, optimizer in optimizers.items():
            _load_optimizer(optimizer, _below(tensors, f"optimizer/{name}/"))
        for key, value in _below(tensors, "average/").items():
            average.tensors[key].copy_(value)
        average.updates = int(notes["updates"])
    except (RuntimeError, KeyError) as error:
        raise DisMixError(
            f"belongs to another model ({str(error).splitlines()[0]})", file=path, cure=cure
        ) from error
    return notes


def chosen_epoch(run: Path) -> int | None:
    """Return the epoch of the chosen weights, or None where the training's state is gone."""
    try:
        with safe_open(str(run / FILE), framework="pt") as file:
            return int(json.loads((file.metadata() or {})["notes"])["best"]["epoch"])
    except (SafetensorError, OSError, ValueError, KeyError):
        return None


def load_last(run: Path, model: nn.Module) -> int:
    """Give a generator the averaged weights of the last epoch and return that epoch.

    Args:
        run: Run folder.
        model: Generator of that run, as `Generator.load` reads it.
    """
    path = run / FILE
    try:
        with safe_open(str(path), framework="pt") as file:
            notes: dict[str, Any] = json.loads((file.metadata() or {})["notes"])
            names = [*file.keys()]
            prefix = "module/objective/model."
            state = {
                name.removeprefix(prefix): file.get_tensor(name)
                for name in names
                if name.startswith(prefix)
            }
            state |= {
                name.removeprefix("average/"): file.get_tensor(name)
                for name in names
                if name.startswith("average/")
            }
        model.load_state_dict(state)
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError) as error:
        raise DisMixError(
            f"not a checkpoint of this generator ({str(error).splitlines()[0]})",
            file=path,
            cure="judge the best checkpoint, or train again",
        ) from error
    return int(notes["epoch"])


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _load_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, slot = key.split("/")
        state.setdefault(int(index), {})[slot] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    for parameter, slots in optimizer.state.items():
        for slot, value in slots.items():
            if value.shape == parameter.shape:
                # Fused Adam wants moments laid out in memory as the weights are.
                slots[slot] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
