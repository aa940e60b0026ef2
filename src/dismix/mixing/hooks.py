"""Mixing inside a network: the call arms a hook, the next training pass meets it.

    images, targets = mix(images, targets, model=model)   # images unchanged, targets mixed
    loss = loss_fn(model(images), targets)                 # a hidden layer mixes its output

The hook acts once and then goes away. It does nothing to a model in evaluation mode (a frozen
layer of a model in training is mixed), and a new call takes back a hook that was never met,
with a warning: labels were mixed then, and features were not.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dismix.errors import DisMixError
from dismix.mixing.base import Draws, ModelAccess
from dismix.mixing.pairs import RowMixer
from dismix.registry import near_names
from dismix.transfer import onto

Mixing = Callable[[Tensor], Tensor]
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def _has_convolution(module: nn.Module) -> bool:
    return any(isinstance(m, _CONVOLUTIONS) for m in module.modules())


def hidden_layers(model: nn.Module) -> list[str]:
    """Return the names of a network's stages, in the order of the code.

    Those that timm names, else the first children that hold convolutions, looked for further
    inside while there is only one.

    Example:
        >>> net = nn.Sequential(nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.Conv2d(1, 1, 1)))
        >>> hidden_layers(net)
        ['0.0', '0.2']
    """
    prefix, inner = "", model
    while True:
        named = _timm_stages(inner)
        found = [(n, c) for n, c in inner.named_children() if _has_convolution(c)]
        if named:
            return [prefix + name for name in named]
        if len(found) != 1 or isinstance(found[0][1], _CONVOLUTIONS):
            return [prefix + name for name, _ in found]
        prefix, inner = f"{prefix}{found[0][0]}.", found[0][1]


def _timm_stages(model: nn.Module) -> list[str]:
    """Return the stages that timm lists, or nothing for other networks."""
    info: Any = getattr(model, "feature_info", None)
    if info is None:
        return []
    # A list of dicts, or timm's FeatureInfo round such a list.
    entries = getattr(info, "info", info)
    names = [entry["module"] for entry in entries if isinstance(entry, dict)]
    known = {name for name, _ in model.named_modules()}
    return names if set(names) <= known else []


def find_layer(model: nn.Module, name: str) -> nn.Module:
    """Return a layer by its name, or say which names there are."""
    layers: dict[str, nn.Module] = dict(model.named_modules())
    if name not in layers or not name:
        known = hidden_layers(model) or [n for n in layers if n]
        raise DisMixError(f"the model has no layer '{name}'", cure=near_names(name, known))
    return layers[name]


class OneShot:
    """A forward hook that mixes the output of a layer once."""

    def __init__(self, model: nn.Module, name: str, mixing: Mixing, batch: int) -> None:
        self.model, self.mixing, self.batch, self.name = model, mixing, batch, name
        self.met = False
        self.handle = find_layer(model, name).register_forward_hook(self)

    def __call__(self, layer: nn.Module, inputs: Any, output: Any) -> Any:
        """Mix the output, unless the model is being evaluated."""
        if not self.model.training:
            return None
        self.met = True
        self.handle.remove()
        if not isinstance(output, Tensor) or not len(output) or len(output) % self.batch:
            shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise DisMixError(
                f"layer '{self.name}' gave {shape}, expected a tensor of {self.batch} images",
                cure="name another layer, and pass the batch through the model once a step",
            )
        if len(output) == self.batch:
            return self.mixing(output)
        # Several views of each image, side by side: all of them show the same mix.
        views = output.reshape(self.batch, -1, *output.shape[1:]).unbind(1)
        return torch.stack([self.mixing(view) for view in views], 1).flatten(0, 1)


class HiddenMixer(RowMixer):
    """Base of mixers that act on a hidden layer.

    Args:
        num_ranks: C.
        **options: See :class:`~dismix.mixing.base.Mixer`; a ``model`` is needed.
    """

    needs_saliency = True

    def __init__(self, num_ranks: int | None = None, **options: Any) -> None:
        super().__init__(num_ranks, **options)
        self._armed: list[OneShot] = []
        self._warned = False

    def disarm(self) -> None:
        """Take back a hook that was not met, and say so the first time."""
        for hook in self._armed:
            hook.handle.remove()
            if not hook.met and not self._warned:
                self._warned = True
                self._warn(hook.name)
        self._armed = []

    def _warn(self, layer: str) -> None:
        warnings.warn(
            f"{self.method}: no training pass went through layer '{layer}' of the model, so labels"
            " were mixed and features were not; pass each mixed batch through that model in"
            " training mode, with gradient checkpointing switched off, which goes past layers,"
            " or name a layer that is called",
            stacklevel=2,
        )

    def arm(self, model: nn.Module, name: str, mixing: Mixing, batch: int) -> None:
        """Let a layer mix its output at the next training pass."""
        self.disarm()
        self._armed = [OneShot(model, name, mixing, batch)]

    def needed_model(self, access: ModelAccess) -> nn.Module:
        """Return the model whose layers can be mixed, or say that one is needed."""
        model = access.needed_model(self.method, "whose features it mixes")
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module
        if hasattr(model, "_orig_mod"):
            # Its code was made without the hook and would pass it by, with mixed labels.
            raise DisMixError(
                f"{self.method} cannot mix inside what torch.compile(model) returned",
                cure="use model.compile() instead, or another mixer",
            )
        return model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Mix a batch, see :meth:`Mixer.forward`; a hook left from before is taken back."""
        self.disarm()
        return super().forward(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        # A copy has no hook in the model; this one keeps its own.
        return {**super().__getstate__(), "_armed": []}


def blend_rows(features: Tensor, draws: Draws, lam: Tensor, other: Tensor) -> Tensor:
    """Return features whose drawn rows are ``lam`` of themselves and the rest of others.

    Args:
        features: (B, ...).
        draws: Rows and partners.
        lam: (M,) ratios on the features' device.
        other: (M, ...) what is mixed in.
    """
    rows = onto(draws.rows, features.device)
    weight = lam.to(features.dtype).view(-1, *[1] * (features.ndim - 1))
    mixes = weight * features[rows] + (1 - weight) * other
    # A clone keeps the memory format, which index_copy itself does not.
    return features.clone().index_copy_(0, rows, mixes.to(features.dtype))


def spread_layers(names: Sequence[str], count: int) -> list[str]:
    """Choose ``count`` layers from the first two thirds, evenly.

    Example:
        >>> spread_layers(["conv1", "layer1", "layer2", "layer3", "layer4"], 2)
        ['layer1', 'layer3']
    """
    if len(names) <= count:
        return list(names)
    places = torch.linspace(0, len(names) - 1, count + 2)[1:-1]
    return [names[int(p + 0.5)] for p in places]
