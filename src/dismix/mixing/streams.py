"""Random streams: processes of one training must not draw the same mixes.

A mixer draws from the stream of one process. Where it finds itself in another one, because it
was made before the processes were started or has taken up what another of them saved, it goes
on with a stream of its own.
"""

import os
from typing import Any

import torch
from torch import Tensor, nn

from dismix.errors import DisMixError
from dismix.seeds import rng_of, seed_of

# What torchrun and accelerate, Slurm, and Lightning tell the processes they start.
_NUMBERS = ("RANK", "SLURM_PROCID", "LOCAL_RANK")
# Of the process number behind a saved state.
_BYTES = 8


def process_number() -> int:
    """Return which process of a training this is, 0 in a training of one.

    That of torch.distributed once it is initialised, else the first of RANK, SLURM_PROCID and
    LOCAL_RANK that is a whole number.

    Example:
        >>> process_number()
        0
    """
    if _distributed():
        return torch.distributed.get_rank()
    found = (_whole_number(name) for name in _NUMBERS)
    return next((number for number in found if number is not None), 0)


def process_count() -> int:
    """Return how many processes share a training: torch.distributed's count, else WORLD_SIZE.

    Slurm's count is not believed: a batch script knows it too, and runs alone.

    Example:
        >>> process_count()
        1
    """
    if _distributed():
        return torch.distributed.get_world_size()
    return _whole_number("WORLD_SIZE") or 1


def _distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _whole_number(name: str) -> int | None:
    # Launchers leave some of them empty, or -1 where there is nothing to say.
    text = os.environ.get(name, "").strip()
    return int(text) if text.isdecimal() else None


class OwnStream(nn.Module):
    """A module with a random stream of its own, which ``state_dict`` holds.

    Args:
        seed: With the number of the process it decides the stream.
        generator: A CPU generator to use instead, the same in all processes if you will.
    """

    method = "none"
    # Whose stream this is; None for a generator that was given.
    _process: int | None = None

    def __init__(self, seed: int, generator: torch.Generator | None) -> None:
        super().__init__()
        if generator is None:
            self._process = process_number()
            generator = rng_of(seed, self._process)
        elif not isinstance(generator, torch.Generator) or generator.device.type != "cpu":
            kind = getattr(generator, "device", type(generator).__name__)
            raise DisMixError(
                f"generator must be a torch.Generator of the CPU, got {kind}",
                cure="give torch.Generator().manual_seed(0), or a seed= instead",
            )
        self.generator = generator

    def reseed(self, *seeds: int) -> None:
        """Start the generator anew from some whole numbers."""
        self.generator.manual_seed(seed_of(*seeds))
        if self._process is not None:
            self._process = process_number()

    def part_streams(self) -> None:
        """Go on with a stream of this process's own where the present one is another's."""
        number = process_number()
        if self._process is not None and self._process != number:
            self.reseed(int(torch.randint(2**62, (), generator=self.generator)), number)

    def get_extra_state(self) -> Tensor:
        """Return the generator's state and its process, so that a resumed run mixes the same."""
        number = process_number() if self._process is None else self._process
        return torch.cat([self.generator.get_state(), torch.tensor([number]).view(torch.uint8)])

    def set_extra_state(self, state: Tensor) -> None:
        """Set the state of the generator; another process's is left at the next draw."""
        size = len(self.generator.get_state())
        if len(state) not in (size, size + _BYTES):
            raise DisMixError(
                f"this is not the random state of a {self.method} mixer",
                cure="resume with the mixer that was used before",
            )
        state = state.cpu().clone()
        self.generator.set_state(state[:size])
        if self._process is None:
            # A generator that was given stays the caller's own.
            return
        # Files of earlier versions do not tell; checkpoints are the first process's.
        self._process = int(state[size:].clone().view(torch.long)) if len(state) > size else 0

    def __getstate__(self) -> dict[str, Any]:
        # Bytes: a tensor made here is gone before a spawned worker could open its memory.
        return {**self.__dict__, "generator": self.generator.get_state().numpy().tobytes()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.generator = torch.Generator()
        numbers = torch.frombuffer(bytearray(state["generator"]), dtype=torch.uint8)
        self.generator.set_state(numbers)
