"""The choices of DisMix for one batch, and flips and rotations of what was decoded by them."""

from dataclasses import dataclass

from torch import Tensor

from dismix.data.transforms import AugmentParams, augment
from dismix.mixing.base import Draws
from dismix.mixing.policy_draws import PolicyDraws
from dismix.mixing.pool import Pooled
from dismix.transfer import onto


@dataclass(frozen=True)
class DisMixDraws(Draws):
    """The choices for one batch.

    Attributes:
        known: (M,) long, rows of the store that hold the anchors, -1 where there is none.
        choices: How each mix is made; None when it comes from the pool.
        turns: Flips and rotations after decoding; None for none.
        pooled: Mixes from the pool.
    """

    known: Tensor
    choices: PolicyDraws | None
    turns: AugmentParams | None
    pooled: Pooled | None


def turned(mixes: Tensor, turns: AugmentParams | None, chosen: Tensor) -> Tensor:
    """Flip and rotate the chosen (M,) of mixes (M, channels, H, W)."""
    if turns is None or not bool(chosen.any()):
        return mixes
    if bool(chosen.all()):
        return augment(mixes, turns)
    here = chosen.nonzero().flatten()
    there = onto(here, mixes.device)
    return mixes.index_copy(0, there, augment(mixes[there], turns[here]))
