"""The accelerator of a training: one process or several, and how several part at the end."""

import atexit
import sys
from datetime import timedelta
from functools import cache

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs, InitProcessGroupKwargs
from torch import distributed


def make_accelerator(*, cpu: bool = False) -> Accelerator:
    """Return the accelerator: bf16 autocast on a GPU, float32 on a CPU, DDP when launched so.

    Args:
        cpu: Do not use a GPU.
    """
    cpu = cpu or not torch.cuda.is_available()
    # Which terms take part depends on the recipe, so some heads may get no gradient.
    # Each process counts its own use of the codebooks, so buffers are not broadcast.
    unused = DistributedDataParallelKwargs(find_unused_parameters=True, broadcast_buffers=False)
    # One process decodes images and trains the guide while the others wait.
    patience = InitProcessGroupKwargs(timeout=timedelta(hours=6))
    made = Accelerator(
        cpu=cpu, mixed_precision="no" if cpu else "bf16", kwargs_handlers=[unused, patience]
    )
    if made.num_processes > 1:
        _part_at_exit()
    return made


@cache
def _part_at_exit() -> None:
    """Let this process leave the others before Python ends, once."""
    atexit.register(_part)


def _part() -> None:
    """Leave the group of processes, unless an error ends this one.

    Left to the interpreter, threads of the group now and then outlive what they stand on, and abort
    a process whose training is done. After an error others may wait for an answer for ever.
    """
    if distributed.is_initialized() and not hasattr(sys, "last_value"):
        distributed.destroy_process_group()
