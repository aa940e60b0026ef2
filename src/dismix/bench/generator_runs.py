"""One run: train (or find) a generator and measure what it separates."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from dismix.bench.artifacts import generator_of
from dismix.bench.clock import Clock
from dismix.bench.folder import BenchFolder
from dismix.bench.memory import PeakMemory
from dismix.bench.sources import FULL
from dismix.generator.evaluation import evaluate_generator
from dismix.generator.model import Generator
from dismix.progress import Progress

_SHORT = {"ordinal": "z_o", "nonordinal": "z_n"}


def run_generator(
    folder: BenchFolder, job: Mapping[str, Any], progress: Progress | None = None
) -> dict[str, Any]:
    """Train and measure; return the record's measured fields.

    Args:
        folder: The benchmark's folder.
        job: {"spec": a `RunSpec`, "generator": a `GeneratorSpec`, "cpu"}.
        progress: Called while it trains.
    """
    spec, cpu = job["spec"], bool(job["cpu"])
    device = torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
    peak = PeakMemory(device)
    shared = generator_of(folder, job, progress)
    assert shared is not None
    clock = Clock(folder.work_dir(spec["id"]) / "clock.json")
    epochs = spec["local"].get("judge_epochs")
    size = Generator.load(folder.generator_dir(spec["generator"])).image_size
    judge = judge_file(folder, spec["data"], size, epochs)
    with folder.lock(f"judge-{judge.stem}"):
        found = evaluate_generator(
            folder.generator_dir(spec["generator"]),
            manifest=folder.manifest_dir(spec["data"]) / FULL, judge=judge,
            judge_epochs=epochs, device=str(device),
            progress=clock.ticking(progress),
        )  # fmt: skip
    return {
        "metrics": generator_metrics(found), "evaluation": found, "predictions": None,
        "wall_s": round(clock.seconds + (shared["seconds"] or 0.0), 3),
        "generator_s": shared["seconds"], "images_seen": spec["images"],
        "peak_memory_mib": peak.mib(),
    }  # fmt: skip


def judge_file(folder: BenchFolder, data: str, size: int, epochs: int | None = None) -> Path:
    """Return where the judge of some data lies, the same for all generators of that size.

    Readings of two judges cannot be compared; judges of another size, and so perhaps another
    kind, or of another length are others.

    Args:
        folder: The benchmark's folder.
        data: Key of the derived data.
        size: Pixels a side of the pictures that it reads.
        epochs: Passes of its training; None is by the number of images.

    Example:
        >>> [judge_file(BenchFolder("b"), "d", 64, epochs).name for epochs in (None, 3)]
        ['d-64px.safetensors', 'd-64px-3.safetensors']
    """
    name = f"{data}-{size}px" + ("" if epochs is None else f"-{epochs}")
    return folder.root / "judges" / f"{name}.safetensors"


def generator_metrics(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of an evaluation by flat names: z_o_linear_accuracy, psnr, ...

    Args:
        found: From `evaluate_generator`.

    Example:
        >>> generator_metrics({"probes": {"ordinal_linear": {"accuracy": 0.65}},
        ...                    "reconstruction": {"psnr": 24.0}})
        {'z_o_linear_accuracy': 0.65, 'psnr': 24.0}
    """
    row: dict[str, Any] = {}
    for probe, result in found.get("probes", {}).items():
        branch, kind = probe.split("_")
        for measure, value in result.items():
            row[f"{_SHORT[branch]}_{kind}_{measure}"] = value
    row |= {k: v for k, v in found.get("reconstruction", {}).items() if _is_number(v)}
    codes = found.get("codebooks", {}).get("nonordinal", {})
    row |= {"z_n_perplexity": codes["perplexity"]} if "perplexity" in codes else {}
    mixing = found.get("mixing_accuracy", {})
    row |= {"mixing_val": mixing["val"]} if "val" in mixing else {}
    slopes = {
        "judge_slope": found.get("rank_control", {}).get("slope"),
        "severity_slope": found.get("severity", {}).get("rank_control", {}).get("slope"),
    }
    return row | {name: value for name, value in slopes.items() if _is_number(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
