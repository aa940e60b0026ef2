"""Tensor files that are whole or refused: safetensors with a digest of their contents."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from dismix import atomic
from dismix.errors import DisMixError

DIGEST_KEY = "sha256"


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of names, types, shapes and bytes.

    Example:
        >>> digest({"a": torch.zeros(2)})[:8] == digest({"a": torch.ones(2)})[:8]
        False
    """
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def save_tensors(
    path: str | Path, tensors: Mapping[str, Tensor], dtype: torch.dtype | None = None
) -> None:
    """Write tensors atomically.

    Args:
        path: File to write.
        tensors: Tensors by name.
        dtype: Type to store floating-point tensors in; None keeps theirs.
    """
    plain = {
        # A copy each: safetensors refuses tensors that share memory.
        name: tensor.detach()
        .to("cpu", dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype)
        .clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    with atomic.replacing(path) as temporary:
        save_file(plain, temporary, metadata={DIGEST_KEY: digest(plain)})


def load_tensors(path: str | Path) -> dict[str, Tensor]:
    """Read tensors; a missing, damaged or changed file is an error that names it.

    A file without a digest, written by another tool, is read as it is.
    """
    cure = "write or copy it again"
    if not Path(path).is_file():
        raise DisMixError("no such file", file=path, cure="check the folder, or train first")
    try:
        with safe_open(str(path), framework="pt") as file:
            expected = (file.metadata() or {}).get(DIGEST_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise DisMixError(
            f"not a whole safetensors file ({error})", file=path, cure=cure
        ) from error
    if expected is not None and expected != digest(tensors):
        raise DisMixError("contents do not match their digest", file=path, cure=cure)
    return tensors


def fill(module: nn.Module, tensors: Mapping[str, Tensor], path: str | Path, cure: str) -> None:
    """Load every tensor of a module, or raise an error that names the first one at fault.

    Args:
        module: Module to load into.
        tensors: All its parameters and saved buffers, by name.
        path: Where they come from, for the message.
        cure: What to do when they do not fit.
    """
    wanted = {name: tensor.shape for name, tensor in module.state_dict().items()}
    given = {name: tensor.shape for name, tensor in tensors.items()}
    wrong = [name for name in sorted({*wanted, *given}) if wanted.get(name) != given.get(name)]
    if wrong:
        raise DisMixError(
            f"{len(wrong)} tensors are missing, unknown or of another shape, first '{wrong[0]}'",
            file=path,
            cure=cure,
        )
    module.load_state_dict(dict(tensors))
