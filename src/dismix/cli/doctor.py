"""`dismix doctor`: what is installed, what is missing, and how to get it."""

import json
import os
import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from dismix.cli.options import AsJson

EXTRAS = {
    "dicom": ("pydicom", "read DICOM files"),
    "parquet": ("pyarrow", "read and write Parquet manifests"),
    "annotators": ("krippendorff", "cross-check of Krippendorff's alpha"),
    "tensorboard": ("tensorboard", "training curves in TensorBoard"),
    "export": ("onnxruntime", "write graders as ONNX files"),
    "explore": ("gradio", "see and steer a run in the browser"),
    "ray": ("ray", "run the benchmark on a cluster"),
    "diffusemix": ("diffusers", "the mixer DiffuseMix"),
    "docs": ("mkdocs-material", "build the documentation site"),
    "oracles": ("diffusers", "reference implementations for the tests"),
}
PACKAGES = ("torch", "torchvision", "timm", "accelerate", "lpips", "numpy", "scipy",
            "scikit-learn", "pandas", "pillow", "safetensors")  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One line of the report: what, whether it is there, and what to do if not."""

    kind: str
    name: str
    found: str | None
    remark: str = ""


def doctor(
    as_json: AsJson = False,
    fetch: Annotated[
        bool,
        typer.Option("--fetch", help="First download missing weights, those that packages have."),
    ] = False,
) -> None:
    """Print versions, devices, weights and extras, and how to get what is missing."""
    if fetch:
        _fetch()
    trouble = _torch_trouble()
    found = (
        [*_devices(), *_weights()] if trouble is None else [Entry("device", "any", None, trouble)]
    )
    entries = [*_software(), *found, *_extras()]
    if as_json:
        typer.echo(json.dumps([asdict(entry) for entry in entries], indent=2))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("kind", box=None, pad_edge=False)
    # Files have to be called so: a name is never cut short.
    table.add_column("name", no_wrap=True)
    table.add_column("found")
    table.add_column("remark", overflow="fold")
    for entry in entries:
        table.add_row(
            entry.kind, entry.name, entry.found or "[yellow]missing", escape(entry.remark)
        )
    Console().print(table)


def _fetch() -> None:
    """Download what is missing and say so; on stderr, so that --json stays JSON."""
    from dismix.generator.fetching import fetch, missing

    for name in missing():
        typer.echo(f"downloading {name} ...", err=True)
        typer.echo(f"{name} -> {fetch(name)}", err=True)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _software() -> list[Entry]:
    import dismix

    entries = [
        Entry("software", "dismix", dismix.__version__),
        Entry("software", "python", platform.python_version(), platform.platform()),
    ]
    for package in PACKAGES:
        cure = "" if _version(package) else f"pip install {package}"
        entries.append(Entry("software", package, _version(package), cure))
    return entries


def _torch_trouble() -> str | None:
    """Return why torch cannot be used, without which neither devices nor weights are known."""
    try:
        import torch  # noqa: F401
    except (ImportError, OSError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        return f"torch does not load ({reason}): pip install --force-reinstall torch"
    return None


def _devices() -> list[Entry]:
    import torch

    entries = [Entry("device", "cpu", f"{os.cpu_count()} cores", f"{_memory_gib()} GiB memory")]
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        memory = f"{properties.total_memory / 2**30:.0f} GiB"
        entries.append(Entry("device", f"cuda:{index}", properties.name, memory))
    if torch.backends.mps.is_available():
        entries.append(Entry("device", "mps", "Apple GPU"))
    if len(entries) == 1:
        entries.append(
            Entry("device", "gpu", None, "the CPU is enough for the demo and 64 px runs")
        )
    return entries


def _memory_gib() -> Any:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30
    except (AttributeError, ValueError, OSError):
        return "?"


def _weights() -> list[Entry]:
    from dismix.generator.weights import FETCHED_BY, KNOWN_WEIGHTS, find_weights

    entries = []
    for name, purpose in KNOWN_WEIGHTS.items():
        path = find_weights(name)
        ways = "put the file into the folder $DISMIX_WEIGHTS"
        ways += ", or run `dismix doctor --fetch`" if name in FETCHED_BY else ""
        remark = purpose if path else f"{purpose}; {ways}"
        entries.append(Entry("weights", name, _size(path) if path else None, remark))
    return entries


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 2**20:.0f} MiB"


def _extras() -> list[Entry]:
    entries = []
    for extra, (package, purpose) in EXTRAS.items():
        cure = "" if _version(package) else f": pip install 'dismix[{extra}]'"
        entries.append(Entry("extra", extra, _version(package), purpose + cure))
    return entries
