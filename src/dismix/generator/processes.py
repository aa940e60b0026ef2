"""Several processes that train one generator: what they must agree on."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from torch import Tensor, distributed, nn

from dismix.generator.saving import fill, load_tensors, save_tensors

Module = TypeVar("Module", bound=nn.Module)


def in_company() -> bool:
    """Tell whether this process trains together with others."""
    return distributed.is_available() and distributed.is_initialized()


@torch.no_grad()
def share(tensor: Tensor) -> None:
    """Give all processes the first one's tensor, in place: rounding may differ."""
    if in_company():
        # Sent as it lies in memory, which may be another layout elsewhere (`dismix.layout`).
        sent = tensor.detach().contiguous()
        distributed.broadcast(sent, 0)
        tensor.data.copy_(sent)


def agree(flags: Tensor) -> Tensor:
    """Return the largest of all processes' flags (n,), the same everywhere."""
    if in_company():
        distributed.all_reduce(flags, distributed.ReduceOp.MAX)
    return flags


@torch.no_grad()
def average(tensors: Sequence[Tensor]) -> None:
    """Give all processes the mean of theirs, in place and in one message.

    Args:
        tensors: Of the same shapes in all processes, on one device.
    """
    if not in_company() or not tensors:
        return
    flat = torch.cat([tensor.detach().float().flatten() for tensor in tensors])
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    for tensor, mean in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
        tensor.copy_(mean.view_as(tensor))


def gathered_states(module: object) -> list[dict[str, Any]]:
    """Return the state of every process's own module; nothing where one trains alone.

    Args:
        module: One for each process, such as a mixer with a random stream; what is no module
            has no state.
    """
    if not in_company() or not isinstance(module, nn.Module):
        return []
    states: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(states, module.state_dict())
    return states


def trained_once(
    path: Path,
    train: Callable[[], Module],
    blank: Callable[[], Module],
    accelerator: Accelerator,
) -> Module:
    """Return a network that the main process trained, equal in all processes, frozen.

    It is kept in a file, so that a resumed run learns under the very same network.

    Args:
        path: Where it is kept.
        train: Trains it, on the accelerator's device.
        blank: Builds one of the same shape.
        accelerator: Who takes part.
    """
    known = path.is_file()
    accelerator.wait_for_everyone()
    if accelerator.is_main_process and not known:
        network = train()
        save_tensors(path, network.state_dict())
    else:
        network = blank().to(accelerator.device)
        if accelerator.is_main_process:
            fill(network, load_tensors(path), path, cure="delete it to train it again")
    for tensor in network.state_dict().values():
        share(tensor)
    return network.eval().requires_grad_(False)
