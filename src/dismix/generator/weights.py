"""Finding and reading pretrained weights; nothing ever falls back to random silently.

Files are safetensors, or torch pickles opened with `weights_only=True`, which runs no code from
the file. What they mean to a network: `dismix.generator.pretrained`.
"""

import os
import pickle
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from dismix.errors import DisMixError

KNOWN_WEIGHTS: dict[str, str] = {
    "vq-f8": "autoencoder of the paper: CompVis/latent-diffusion, first-stage model vq-f8",
    "taef2_f8c32_autoencoder": "light autoencoder: madebyollin/taesd, taef2, see join_halves()",
    "vgg16_imagenet_features_and_lpips_heads": "LPIPS, judges, VGG16 graders: torchvision, lpips",
    "tf_efficientnet_lite0_imagenet": "guide and ordinal trunk: timm, tf_efficientnet_lite0",
}
"""File names without suffix, and what each is for."""

FETCHED_BY: dict[str, str] = {
    "vgg16_imagenet_features_and_lpips_heads": "dismix.generator.perceptual:download",
    "tf_efficientnet_lite0_imagenet": "dismix.generator.trunk:download",
}
"""Which of them `dismix doctor --fetch` can download, and the function that does."""

_SUFFIXES = ("", ".safetensors", ".ckpt", ".pt", ".pth", ".bin")

# Old Lightning checkpoints name this class as a dictionary key; an empty class of that name lets
# `weights_only` read them, while every other class in a file is still refused.
_LightningCallback = type(
    "ModelCheckpoint", (), {"__module__": "pytorch_lightning.callbacks.model_checkpoint"}
)


def weight_folders() -> list[Path]:
    """Return the folders searched for weights, first the one named by `DISMIX_WEIGHTS`."""
    named = os.environ.get("DISMIX_WEIGHTS")
    folders = [Path(named).expanduser()] if named else []
    return [*folders, Path.home() / ".cache" / "dismix" / "weights"]


def find_weights(name: str) -> Path | None:
    """Return the first file of that name, with or without a usual suffix, or None.

    Example:
        >>> find_weights("no-such-weights") is None
        True
    """
    for folder in weight_folders():
        for suffix in _SUFFIXES:
            path = folder / f"{name}{suffix}"
            if path.is_file():
                return path
    return None


def require_weights(name: str) -> Path:
    """Return the file as `find_weights` does; say where to put it when there is none.

    Example:
        >>> require_weights("no-such-weights")
        Traceback (most recent call last):
        dismix.errors.DisMixError: weights 'no-such-weights' not found; put ...
    """
    path = find_weights(name)
    if path is None:
        known = f" ({KNOWN_WEIGHTS[name]})" if name in KNOWN_WEIGHTS else ""
        raise DisMixError(f"weights '{name}' not found{known}", cure=how_to_get(name))
    return path


def how_to_get(name: str) -> str:
    """Return how weights come to this machine.

    Example:
        >>> how_to_get("vq-f8").endswith(", or set DISMIX_WEIGHTS to its folder")
        True
        >>> how_to_get("tf_efficientnet_lite0_imagenet").split(", or ")[-1]
        'download it: `dismix doctor --fetch`'
    """
    places = " or ".join(str(folder) for folder in weight_folders())
    ways = [f"put {name}.safetensors into {places}", "set DISMIX_WEIGHTS to its folder"]
    if name in FETCHED_BY:
        ways.append("download it: `dismix doctor --fetch`")
    return ", ".join(ways[:-1]) + f", or {ways[-1]}"


def load_weights(path: str | Path) -> dict[str, Tensor]:
    """Read named tensors, in the precision they are stored in, on the CPU.

    Args:
        path: A safetensors file, or a torch pickle of tensors, bare or under `state_dict` as
            Lightning writes it.

    Returns:
        Tensors by name.
    """
    path = Path(path)
    if not path.is_file():
        raise DisMixError("no such weight file", file=path, cure="check the path")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            raise DisMixError(
                f"not a whole safetensors file ({error})", file=path, cure="download it again"
            ) from error
    return _tensors(_load_pickle(path), path)


def _load_pickle(path: Path) -> object:
    try:
        with torch.serialization.safe_globals([_LightningCallback]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        refused = re.search(r"GLOBAL (\S+)", str(error))
        if refused is None:
            raise DisMixError(
                "not a whole torch weight file", file=path, cure="download it again"
            ) from error
        output = path.with_suffix(".safetensors").name
        raise DisMixError(
            f"refused, as reading it would run '{refused[1]}'",
            file=path,
            cure="if you trust its source, convert it once: import torch, safetensors.torch as s; "
            f"s.save_file({{k: v.contiguous() for k, v in torch.load('{path.name}', "
            f"weights_only=False)['state_dict'].items()}}, '{output}')",
        ) from error


def _tensors(content: object, path: Path) -> dict[str, Tensor]:
    state = content.get("state_dict", content) if isinstance(content, Mapping) else None
    if not isinstance(state, Mapping):
        raise DisMixError("holds no dictionary of tensors", file=path, cure="give a state dict")
    tensors = {str(key): value for key, value in state.items() if isinstance(value, Tensor)}
    if not tensors:
        raise DisMixError("holds no tensors", file=path, cure="give a state dict")
    return tensors
