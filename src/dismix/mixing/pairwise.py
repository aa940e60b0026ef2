"""Other mixers on chosen pairs and ratios, to be set beside DisMix on the very same ones."""

import torch
import torch.nn.functional as F
from torch import Tensor

from dismix.labels import OrdinalTarget
from dismix.mixing.base import Draws
from dismix.mixing.pairs import PairMixer
from dismix.mixing.registry import MIXERS

#: Mixers of whole batches, or of an image with itself, that need neither model nor generator.
BATCH_MIXERS = ("comixup", "filtermix")


def local_contrast(images: Tensor, target: object = None) -> Tensor:
    """Return a saliency (B, H, W) without a model: how much a point differs from around it."""
    grey = images.float().mean(1, keepdim=True)
    around = F.avg_pool2d(grey, 9, 1, 4, count_include_pad=False)
    return F.avg_pool2d((grey - around).abs(), 9, 1, 4, count_include_pad=False)[:, 0]


def pair_mixers() -> list[str]:
    """Return the mixers of two images, by name, that need no generator."""
    return [
        name for name in MIXERS if name != "dismix" and issubclass(MIXERS[name].load(), PairMixer)
    ]


def mix_pairs(
    name: str, first: Tensor, second: Tensor, target: OrdinalTarget, lam: Tensor, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Mix given pairs at given ratios.

    Args:
        name: A mixer of two images.
        first: (B, channels, H, W).
        second: (B, channels, H, W).
        target: Targets (2B, C) of both, the first ones first.
        lam: (B,) share of the first.
        seed: Of what else the mixer draws, such as the place of a box.

    Returns:
        Mixes (B, channels, H, W), and the share (B,) of the first that the picture shows.
    """
    count = len(first)
    mixer = MIXERS[name].load()(target.num_ranks, p=1.0, seed=seed, saliency_fn=local_contrast)
    assert isinstance(mixer, PairMixer)
    images = torch.cat([first, second])
    rows = torch.arange(count)
    none = torch.zeros(count, dtype=torch.bool)
    draws = mixer.draw_more(images, Draws(rows, rows + count, lam.float(), none))
    mixed = mixer.replay(images, target, draws, mixer.access())
    return mixed.images[:count], mixed.info.lam[:count]


def mixer_pictures(
    images: Tensor, target: OrdinalTarget, lam: float, seed: int
) -> dict[str, Tensor]:
    """Return the mixes (channels, H, W) of two images (2, channels, H, W) by every mixer.

    Mixers of more than two images get the pair as their batch and draw their own shares. Those
    that mix inside a model make no picture and are not here.
    """
    share = torch.tensor([lam])
    made = {
        name: mix_pairs(name, images[:1], images[1:], target, share, seed)[0][0]
        for name in pair_mixers()
    }
    for name in BATCH_MIXERS:
        mixer = MIXERS[name].load()(target.num_ranks, p=1.0, seed=seed, saliency_fn=local_contrast)
        made[name] = mixer(images, target)[0][0]
    return made
