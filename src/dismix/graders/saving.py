"""A trained grader as one safetensors file that says by itself how to rebuild it."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dismix import atomic
from dismix.errors import DisMixError
from dismix.generator.reading import reading_of
from dismix.graders.about import about_images, require_grader
from dismix.graders.backbones import Backbone, is_known
from dismix.graders.base import Grader
from dismix.graders.cut_points import DECIDED_BEFORE, nearest_cuts
from dismix.graders.registry import GRADERS, create_grader

if TYPE_CHECKING:
    from dismix.data.manifest import Manifest
    from dismix.graders.settings import TrainSettings

MODEL = "model.safetensors"
_REFERENCE = "reference/"
_EXTRA = "_extra_state"


def plain_state(grader: Grader, *, cpu: bool = True) -> dict[str, Tensor]:
    """Return weights, buffers and reference tensors by name.

    Args:
        grader: Any grader.
        cpu: Return contiguous copies on the CPU; else the tensors as they are.
    """
    state = {k: v for k, v in grader.state_dict().items() if not k.endswith(_EXTRA)}
    state |= {_REFERENCE + name: tensor for name, tensor in grader.reference.items()}
    return _on_cpu(state) if cpu else state


def _on_cpu(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        k: v.detach().cpu().clone(memory_format=torch.contiguous_format) for k, v in state.items()
    }


def about_grader(
    data: "Manifest",
    settings: "TrainSettings",
    seed: int,
    mix: str | None,
    made: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what a grader must know to read new images, and where it comes from.

    Args:
        data: What it is trained on.
        settings: How.
        seed: Of its training.
        mix: The mixer's name, or None.
        made: From `dismix.provenance.provenance`.
    """
    return {
        **about_images(data.meta.ranks, settings.size, **reading_of(data.meta)),
        "source": data.meta.source, "seed": seed, "mix": mix, "provenance": {**made},
    }  # fmt: skip


def describe(grader: Grader) -> dict[str, Any]:
    """Return what `load_grader` needs beside the tensors."""
    return {
        "format": 1,
        "method": grader.name,
        "backbone": grader.backbone.name,
        "num_ranks": grader.num_ranks,
        "hparams": dataclasses.asdict(grader.config),
        "about": grader.about,
    }


def save_grader(grader: Grader, path: str | Path, state: dict[str, Tensor] | None = None) -> None:
    """Write a grader atomically.

    Args:
        grader: Made by `create_grader`. To grade files later it must know how they are read:
            ``grader.about = about_images(...)``.
        path: File, or the folder to put ``model.safetensors`` into.
        state: From an earlier `plain_state`; the present one when None.

    Raises:
        DisMixError: What was written could not be loaded again.
    """
    _require_saveable(grader)
    path = Path(path)
    if path.suffix != ".safetensors":
        path = path / MODEL
    with atomic.replacing(path) as temporary:
        tensors = plain_state(grader) if state is None else _on_cpu(state)
        save_file(tensors, temporary, {"grader": json.dumps(describe(grader))})


def _require_saveable(grader: Grader) -> None:
    """Raise for a grader that its file would not bring back."""
    require_grader(grader)
    if grader.name not in GRADERS:
        raise DisMixError(
            f"a {type(grader).__name__} without a method's name could not be loaded again",
            cure="make graders with create_grader",
        )
    ranks = grader.about.get("ranks", range(grader.num_ranks))
    if len(ranks) != grader.num_ranks:
        raise DisMixError(
            f"about names {len(ranks)} ranks, the grader has {grader.num_ranks}",
            cure="name every rank once, low to high",
        )


def load_grader(
    path: str | Path, device: torch.device | str = "cpu", *, backbone: Backbone | None = None
) -> Grader:
    """Read what `save_grader` wrote, in evaluation mode.

    Args:
        path: The file, or its folder.
        device: Where to put it.
        backbone: What the grader was made with, where that is none that `create_backbone` makes;
            its weights are overwritten.

    Raises:
        DisMixError: No such file, not a grader's, or no such device.
    """
    _require_device(device)
    folder = Path(path)
    path = folder / MODEL if folder.is_dir() else folder
    if not path.is_file() and (seeds := sorted(folder.glob(f"seed_*/{MODEL}"))):
        raise DisMixError(
            "holds several seeds of a grader", file=folder,
            cure=f"give the folder of one, such as {seeds[0].parent}",
        )  # fmt: skip
    if not path.is_file():
        raise DisMixError(
            "no trained grader here", file=path, cure="train one with `dismix grader train`"
        )
    cure = "give the folder that `dismix grader train` filled"
    try:
        with safe_open(str(path), framework="pt") as file:
            notes = json.loads((file.metadata() or {})["grader"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise DisMixError(f"is no trained grader ({error})", file=path, cure=cure) from error
    hparams: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in notes["hparams"].items()
    }
    if hasattr(GRADERS[notes["method"]].make.config_type, "decide"):
        hparams = {"decide": DECIDED_BEFORE} | hparams
    if backbone is None and not is_known(notes["backbone"]):
        raise DisMixError(
            f"was made with a backbone '{notes['backbone']}', which is not known here",
            file=path,
            cure="if it is your own, give it in Python: Grader.load(path, backbone=...)",
        )
    grader = create_grader(
        notes["method"],
        backbone=backbone or notes["backbone"],
        weights=None,
        num_ranks=notes["num_ranks"],
        **hparams,
    )
    put_state(grader, tensors, path)
    grader.about = notes["about"]
    return grader.to(device).eval()


def _require_device(device: torch.device | str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise DisMixError(
            f"there is no device '{device}' here",
            cure='give "cpu", or leave it out; `dismix doctor` lists what there is',
        ) from None


def put_state(grader: Grader, tensors: dict[str, Tensor], file: Path | None = None) -> None:
    """Load tensors from `plain_state` into a grader of the same shape."""
    grader.reference = {
        k.removeprefix(_REFERENCE): v.to(grader.device)
        for k, v in tensors.items()
        if k.startswith(_REFERENCE)
    }
    weights = {k: v for k, v in tensors.items() if not k.startswith(_REFERENCE)}
    # Files of before there were any.
    weights.setdefault("cuts", nearest_cuts(grader.num_ranks))
    try:
        outcome = grader.load_state_dict(weights, strict=False)
        missing = [k for k in outcome.missing_keys if not k.endswith(_EXTRA)]
        if missing or outcome.unexpected_keys:
            raise RuntimeError(f"'{[*missing, *outcome.unexpected_keys][0]}' does not belong")
    except RuntimeError as error:
        raise DisMixError(
            f"holds weights of another grader ({str(error).splitlines()[-1].strip()})",
            file=file,
            cure="use the version of DisMix that wrote it, give backbone= if it had one of your"
            " own, or train again",
        ) from error
