"""Manifold Mixup (Verma et al., ICML 2019): mixup of a hidden layer, drawn for each batch.

And ``OrdinalManifoldMixup``, our own definition: partners at most one rank away, targets with
one peak. The literature has a method of a like name (Manifold Ordinal-Mixup, MICCAI 2020)
whose text we did not have; nothing here claims to be it.

How ours differs from the releases: no change to the network, a hook that acts once does it; a
ratio for each pair; by default two layers are chosen from the network's stages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.base import Draws, ModelAccess
from dismix.mixing.hooks import HiddenMixer, blend_rows, hidden_layers, spread_layers
from dismix.mixing.info import Mixed
from dismix.mixing.pairs import Blend, draw_beta
from dismix.mixing.targets import smoothed
from dismix.transfer import onto


@dataclass(frozen=True)
class LayerDraws(Draws):
    """Draws with the layer, a number in [0, 1) that picks one of those there are."""

    layer: float


def mix_features(features: Tensor, draws: Draws) -> Tensor:
    """Return features (B, ...) whose drawn rows are mixed with their partners'."""
    partner = onto(draws.partner, features.device)
    return blend_rows(features, draws, onto(draws.lam, features.device), features[partner])


class ManifoldMixup(HiddenMixer):
    """Mix the input or a hidden layer.

    Args:
        num_ranks: C.
        layers: Names of layers as in ``model.named_modules()``; two stages by default.
        alpha: Of Beta(alpha, alpha); the authors use 2.
        include_input: Whether the input is one of the layers.
        **options: See :class:`~dismix.mixing.base.Mixer`; a ``model`` is needed.
    """

    method = "manifold_mixup"

    def __init__(
        self,
        num_ranks: int | None = None,
        *,
        layers: Sequence[str] | None = None,
        alpha: float = 2.0,
        include_input: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(num_ranks, **options)
        draw_beta(alpha, 0, torch.Generator())
        if isinstance(layers, str):
            raise DisMixError("layers must be a list of names", cure=f"write ['{layers}']")
        self.layers = None if layers is None else tuple(layers)
        self.alpha, self.include_input = alpha, include_input

    def draw_lam(self, count: int) -> Tensor:
        """Draw from the Beta law."""
        return draw_beta(self.alpha, count, self.generator)

    def draw_more(self, images: Tensor, draws: Draws) -> Draws:
        """Draw the layer."""
        layer = torch.rand(1, dtype=torch.float32, generator=self.generator)
        return LayerDraws(**vars(draws), layer=float(layer))

    def blend(
        self, images: Tensor, target: OrdinalTarget, draws: Draws, access: ModelAccess
    ) -> Blend:
        """Mix the images, or arm the layer that was drawn."""
        assert isinstance(draws, LayerDraws)
        model = self.needed_model(access)
        names = self.layers if self.layers is not None else spread_layers(hidden_layers(model), 2)
        places = ([None] if self.include_input else []) + list(names)
        if not places:
            raise DisMixError("no layer to mix was found in the model", cure="name them in layers")
        chosen = places[int(draws.layer * len(places))]
        rows = onto(draws.rows, images.device)
        if chosen is None:
            return Blend(mix_features(images, draws)[rows], draws.lam)
        self.arm(model, chosen, partial(mix_features, draws=draws), len(images))
        return Blend(images[rows], draws.lam)


class OrdinalManifoldMixup(ManifoldMixup):
    """Manifold mixup of neighbouring ranks, with targets of one peak (our definition).

    Args:
        num_ranks: C.
        smoothing: Deviation in ranks of a Gaussian that spreads the targets of mixes.
        **options: See :class:`ManifoldMixup`; ``pairing`` is "near" and ``target`` "unimodal"
            unless said otherwise.
    """

    method = "ordinal_manifold_mixup"

    def __init__(
        self, num_ranks: int | None = None, *, smoothing: float = 0.0, **options: Any
    ) -> None:
        super().__init__(num_ranks, **{"pairing": "near", "target": "unimodal"} | options)
        if smoothing < 0:
            raise DisMixError(f"smoothing must not be negative, got {smoothing}")
        self.smoothing = smoothing

    def finish(self, mixed: Mixed) -> OrdinalTarget:
        """Return targets of one peak, spread if asked."""
        return smoothed(super().finish(mixed), mixed.info.mixed, self.smoothing)
