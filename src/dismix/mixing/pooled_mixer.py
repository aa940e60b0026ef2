"""A mixer whose mixes may come from a rotating pool, decoded ahead of time by its own maker."""

import copy
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor

from dismix.mixing.base import Mixer
from dismix.mixing.maker import MixMaker
from dismix.mixing.pool import MixPool, Pooled
from dismix.mixing.serving import PoolService


class PooledMixer(Mixer):
    """Base of `dismix.mixing.dismix.DisMix`: the pool, its place in a checkpoint and its end.

    Attributes:
        served: The pool of this process; size 0 is none.
    """

    served: PoolService
    # Within a list, so that the generator stays out of state_dict and of the optimizer.
    _maker: list[MixMaker]

    @property
    def maker(self) -> MixMaker:
        """What draws, pairs and labels."""
        return self._maker[0]

    @property
    def pool_size(self) -> int:
        """Mixes of a block of the pool; 0 without one."""
        return self.served.size

    @property
    def pool_seed(self) -> int:
        """What decides the mixes of the pool."""
        return self.served.seed

    def pool(self, device: torch.device | str) -> MixPool:
        """Return the rotating pool of this process, started on first use."""
        device = torch.empty(0, device=device).device
        if not self.served.runs_on(device):
            # A block may be in the making, and the generator must not move under it.
            self.served.close()
            self.maker.to(device)
        return self.served.on(device, self.pool_block)

    def pool_block(
        self, seed: int, block: int, stopped: Callable[[], bool] | None = None
    ) -> Pooled:
        """Make a block of the pool; it depends on seed, number and the settings alone."""
        return self.maker.block(self.pool_size, [seed, block, 1], stopped)

    def reseed(self, *seeds: int) -> None:
        """Start the generator and the pool anew from some whole numbers."""
        super().reseed(*seeds)
        self.served.restart(self._drawn_seed())

    def _drawn_seed(self) -> int:
        return int(torch.randint(2**62, (), generator=self.generator))

    def close(self) -> None:
        """Stop the pool's background work."""
        self.served.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get_extra_state(self) -> Tensor:
        """Return the state of the generator and the place in the pool, as bytes."""
        numbers = torch.tensor([self.served.seed, *self.served.place], dtype=torch.long)
        return torch.cat([super().get_extra_state(), numbers.view(torch.uint8)])

    def set_extra_state(self, state: Tensor) -> None:
        """Go on where another mixer of the same settings was."""
        super().set_extra_state(state[:-24])
        seed, block, uses = state[-24:].cpu().clone().view(torch.long).tolist()
        self.served.restart(seed, (block, uses))

    def __getstate__(self) -> dict[str, Any]:
        served = copy.copy(self.served)
        return {**super().__getstate__(), "served": served, "_given_rows": None}
