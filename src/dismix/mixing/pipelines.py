"""Diffusion pipelines on this machine: read from a folder, told apart by their weights."""

import hashlib
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dismix.errors import DisMixError
from dismix.generator.saving import digest


def load_pipeline(folder: Path, dtype: torch.dtype) -> Any:
    """Read a pipeline from a folder, with weights of a type, or say what is missing."""
    if not folder.is_dir():
        raise DisMixError(
            "there is no saved InstructPix2Pix pipeline here",
            file=folder,
            cure="save one with pipeline.save_pretrained(folder) and give that folder",
        )
    try:
        diffusers = import_module("diffusers")
        kind = diffusers.StableDiffusionInstructPix2PixPipeline
        scheduler = diffusers.EulerAncestralDiscreteScheduler
    except ImportError:
        raise DisMixError(
            "DiffuseMix's editor needs diffusers and transformers",
            cure="pip install 'dismix[diffusemix]'",
        ) from None
    pipeline = kind.from_pretrained(
        folder, torch_dtype=dtype, local_files_only=True, safety_checker=None
    )
    pipeline.scheduler = scheduler.from_config(pipeline.scheduler.config)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def pipeline_name(pipeline: Any, folder: Path | None = None) -> str:
    """Return a name that other weights do not have, wherever the pipeline lies.

    Weights are looked at in half precision, so that a GPU finds what a CPU has made. Where
    there are none, the folder tells pipelines apart.

    Args:
        pipeline: Has its networks as attributes, as those of diffusers have.
        folder: From which it was read.

    Example:
        >>> from types import SimpleNamespace
        >>> pipeline_name(SimpleNamespace(unet=torch.nn.Identity()))
        'SimpleNamespace'
        >>> one, two = (SimpleNamespace(unet=torch.nn.PReLU(init=v)) for v in (0.1, 0.2))
        >>> pipeline_name(one) == pipeline_name(two)
        False
    """
    label = type(pipeline).__name__ if folder is None else folder.resolve().name
    alone = isinstance(pipeline, torch.nn.Module)
    parts = {"pipeline": pipeline} if alone else getattr(pipeline, "__dict__", {})
    prints = [
        f"{part}.{name} {digest({name: tensor.half()})}"
        for part, network in sorted(parts.items())
        if isinstance(network, torch.nn.Module)
        for name, tensor in network.state_dict().items()
        # What waits on the disk until it is called has no values here.
        if isinstance(tensor, Tensor) and not tensor.is_meta
    ]
    if not prints and folder is not None:
        prints = [str(folder.resolve())]
    if not prints:
        return label
    return f"{label}-{hashlib.sha256(repr(prints).encode()).hexdigest()[:12]}"
