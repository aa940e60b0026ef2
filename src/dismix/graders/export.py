"""A trained grader as ONNX or torch.export file, checked against the model it came from.

The exported network takes images (B, channels, size, size), float32 in [-1, 1], equalised if
the grader's card says so, and gives `probabilities` (B, C), `rank` (B,) and the decision `label`
(B,). B is free, up to 4096.
"""

import copy
import io
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from dismix import atomic
from dismix.errors import DisMixError
from dismix.graders.about import require_grader
from dismix.graders.base import Grader

Format = Literal["onnx", "torch"]
TOLERANCE = 1e-4
OUTPUTS = ("probabilities", "rank", "label")
SUFFIXES: dict[str, Format] = {".onnx": "onnx", ".pt2": "torch"}


class _Exported(nn.Module):
    def __init__(self, grader: Grader) -> None:
        super().__init__()
        self.grader = grader

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        grades = self.grader.grade(images)
        return grades.probabilities, grades.rank, grades.label


def export_grader(
    grader: Grader, path: str | Path, *, size: int | None = None, channels: int | None = None
) -> float:
    """Write a grader as ``.onnx`` or ``.pt2`` (torch.export) and check the file.

    Args:
        grader: Trained, see `Grader.load`.
        path: File; its ending chooses the format.
        size: H and W of the images that the file takes; None takes what ``grader.about`` says.
        channels: Their channels, 1 or 3; None likewise.

    Returns:
        Largest difference between the file's output and the grader's, on random images.

    Raises:
        DisMixError: The method cannot be exported, packages are missing, nobody knows the size of
            the images, or outputs differ by more than 1e-4.
    """
    require_grader(grader)
    path = Path(path)
    form = SUFFIXES.get(path.suffix.lower())
    if form is None:
        raise DisMixError(
            f"cannot tell the format from '{path.suffix}'", file=path, cure="end it .onnx or .pt2"
        )
    if not grader.exportable:
        raise DisMixError(
            f"'{grader.name}' cannot be exported: its predictions loop until they settle",
            cure="use `dismix grader predict`, or train another method",
        )
    if form == "onnx":
        _require("onnx", "onnxscript", "onnxruntime")
    shape = _shape(grader, size, channels)
    # A copy: the caller's grader stays where it is, and goes on learning.
    grader = copy.deepcopy(grader).to("cpu").eval()
    model = _Exported(grader)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with atomic.replacing(path) as temporary, warnings.catch_warnings():
        # torch's exporter warns about its own internals.
        warnings.simplefilter("ignore")
        program = _traced(model, _images(2, shape, seed=0), grader.name)
        if form == "onnx":
            _write_onnx(program, temporary, grader.name)
        else:
            # By way of memory: where the disk is full, torch would abort the process.
            whole = io.BytesIO()
            torch.export.save(program, whole)
            temporary.write_bytes(whole.getbuffer())
        # Another batch size than the traced one, so that a fixed size would show.
        images = _images(3, shape, seed=1)
        gap = _difference(model, images, temporary, form)
        if not gap <= TOLERANCE:
            raise DisMixError(
                f"the exported file's output differs by {gap:.2g}",
                file=path,
                cure="report this with the versions that `dismix doctor` prints",
            )
    return gap


def _shape(grader: Grader, size: int | None, channels: int | None) -> tuple[int, int, int]:
    """Return (channels, size, size) of the images; a file made for others fails on them."""
    about = grader.about
    if channels is None and "grey" in about:
        channels = 1 if about["grey"] else 3
    size = about.get("size") if size is None else size
    if size is None or channels is None:
        raise DisMixError(
            f"this grader does not know the {'size' if size is None else 'channels'} of its images",
            cure="give size= and channels= (1 or 3), or set grader.about = about_images(...)",
        )
    return channels, int(size), int(size)


def _images(count: int, shape: tuple[int, int, int], seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.rand(count, *shape, generator=rng) * 2 - 1


def _require(*packages: str) -> None:
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise DisMixError(
            f"ONNX export needs the package '{missing[0]}'", cure="pip install dismix[export]"
        )


def _traced(model: nn.Module, images: Tensor, name: str) -> Any:
    try:
        shapes = {"images": {0: torch.export.Dim("batch", min=1, max=4096)}}
        with torch.no_grad():
            # First as it is: what the user can repair (no reference images, say) is then said so.
            model(images)
            return torch.export.export(model, (images,), dynamic_shapes=shapes)
    except DisMixError:
        raise
    except Exception as error:  # torch raises many kinds; all mean that tracing failed.
        raise DisMixError(
            f"'{name}' cannot be traced ({str(error).strip().splitlines()[0]})",
            cure="use `dismix grader predict`, or train another method",
        ) from error


def _write_onnx(program: Any, path: Path, name: str) -> None:
    import logging

    # They log every step of rewriting.
    for library in ("torch.onnx", "onnxscript", "onnx_ir"):
        logging.getLogger(library).setLevel(logging.ERROR)
    try:
        made = torch.onnx.export(
            program, (), input_names=["images"], output_names=[*OUTPUTS],
            dynamo=True, verbose=False,
        )  # fmt: skip
    except torch.onnx.errors.OnnxExporterError as error:
        raise DisMixError(
            f"'{name}' uses an operation that ONNX lacks", cure="export it as .pt2"
        ) from error
    assert made is not None
    # One file: weights beside it would be left behind when it is copied.
    made.save(str(path), external_data=False)


def _difference(model: nn.Module, images: Tensor, path: Path, form: Format) -> float:
    with torch.no_grad():
        expected = [part.numpy() for part in model(images)]
        if form == "torch":
            loaded = torch.export.load(str(path)).module()
            found = [part.numpy() for part in loaded(images)]
        else:
            runtime = import_module("onnxruntime")
            session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            found = session.run([*OUTPUTS], {"images": images.numpy()})
    gaps = [np.abs(a - b).max() for a, b in zip(expected, found, strict=True)]
    return float(max(gaps))
