"""The choices of DisMix for one batch, and what becomes of the pictures decoded by them."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dismix.data.transforms import AugmentParams, augment
from dismix.labels import OrdinalTarget
from dismix.mixing.base import Draws
from dismix.mixing.info import Mixed, MixInfo
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
        own: (M,) share of the replaced image itself, laid over its mix; None is none.
    """

    known: Tensor
    choices: PolicyDraws | None
    turns: AugmentParams | None
    pooled: Pooled | None
    own: Tensor | None = None


def turned(mixes: Tensor, turns: AugmentParams | None, chosen: Tensor) -> Tensor:
    """Flip and rotate the chosen (M,) of mixes (M, channels, H, W)."""
    if turns is None or not bool(chosen.any()):
        return mixes
    if bool(chosen.all()):
        return augment(mixes, turns)
    here = chosen.nonzero().flatten()
    there = onto(here, mixes.device)
    return mixes.index_copy(0, there, augment(mixes[there], turns[here]))


def laid_over(
    images: Tensor, target: OrdinalTarget, draws: DisMixDraws, mixes: Tensor, probs: Tensor
) -> tuple[Tensor, Tensor]:
    """Return mixes and labels with a share of the images that they replace, as Mixup would.

    # paper: mixes are what the decoder shows. It leaves detail out, so graders may tell decoded
    # pictures from photographs and learn less of either; what is half a photograph is neither.

    Args:
        images: (B, channels, H, W).
        target: Their targets.
        draws: Which M of them are replaced, and the shares.
        mixes: (M, channels, H, W), as the images are.
        probs: (M, C) labels of the mixes.
    """
    if draws.own is None:
        return mixes, probs
    rows, own = onto(draws.rows, images.device), onto(draws.own, images.device)
    share = own.view(-1, 1, 1, 1).to(images.dtype)
    labels = own[:, None] * target.probs[rows] + (1 - own)[:, None] * probs.to(images.device)
    return share * images[rows] + (1 - share) * mixes, labels


def placed(
    method: str,
    images: Tensor,
    target: OrdinalTarget,
    draws: DisMixDraws,
    mixes: Tensor,
    probs: Tensor,
) -> Mixed:
    """Return the batch in which the drawn images are replaced by their mixes.

    Args:
        method: Name of the mixer.
        images: (B, channels, H, W).
        target: Their targets.
        draws: Which M of them are replaced.
        mixes: (M, channels, H, W), as the images are.
        probs: (M, C) labels of the mixes.
    """
    device = images.device
    rows = onto(draws.rows, device)
    clean = target.clean.index_fill(0, rows, False)
    made = OrdinalTarget(target.probs.index_copy(0, rows, probs.to(device)), clean)
    info = MixInfo.unchanged(method, target)
    info = replace(
        info,
        target=made,
        lam=info.lam.index_copy(0, rows, onto(draws.lam, device)),
        index=info.index.index_fill(0, rows, -1),
        mixed=info.mixed.index_fill(0, rows, True),
        fell_back=torch.zeros_like(info.mixed).index_copy(0, rows, onto(draws.fell_back, device)),
    )
    # A clone keeps the memory format, which index_copy itself does not.
    return Mixed(images.clone().index_copy_(0, rows, mixes), made, info)
