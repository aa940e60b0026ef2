"""One run: train a grader as a plan says, choose its checkpoint on validation, test it once."""

import contextlib
from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load_file

from dismix.accelerators import make_accelerator
from dismix.bench.artifacts import generator_of
from dismix.bench.clock import Clock
from dismix.bench.folder import BenchFolder
from dismix.bench.memory import PeakMemory
from dismix.bench.mixer_runs import build_mixer, shared_mixing
from dismix.bench.warm import Warm
from dismix.data.draws import image_keys
from dismix.data.manifest import Manifest
from dismix.generator.images import SplitImages
from dismix.graders.base import Grader, Grades
from dismix.graders.checks import check_training
from dismix.graders.evaluation import evaluate, grade_split
from dismix.graders.metrics import grade_metrics, ranked_probability_score
from dismix.graders.registry import create_grader
from dismix.graders.saving import about_grader, put_state
from dismix.graders.settings import TrainSettings
from dismix.graders.start_run import mixer_rows
from dismix.graders.state import model_file
from dismix.graders.training import Training, run_training
from dismix.progress import Progress


def run_grader(
    folder: BenchFolder,
    job: Mapping[str, Any],
    warm: Warm,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train and test; return the record's measured fields.

    Args:
        folder: The benchmark's folder.
        job: {"spec": a `RunSpec`, "generator": a `GeneratorSpec` or None, "cpu"}.
        warm: What this process keeps between runs.
        progress: Called while it trains.
    """
    spec, cpu = job["spec"], bool(job["cpu"])
    shared = generator_of(folder, job, progress)
    run, accelerator = folder.work_dir(spec["id"]), make_accelerator(cpu=cpu)
    settings = settings_of(spec["local"]["settings"])
    data = warm.manifest(folder, spec["data"])
    splits = {
        name: warm.images(folder, spec["data"], name, settings.size, accelerator.device, progress)
        for name in ("train", "val", "test")
    }
    mixing = shared_mixing(folder, spec, shared, warm, accelerator.device, progress)
    # From here on: what is loaded once for many runs is no run's own time.
    clock, peak = Clock(run / "clock.json"), PeakMemory(accelerator.device)
    grader = build_grader(spec, settings, data, warm, cpu=cpu)
    mixer = build_mixer(spec, data.num_ranks, mixing)
    training = Training(
        grader.to(accelerator.device), settings, spec["seed"], mixer=mixer,
        mixer_rows=_rows(mixer, data, spec, warm),
    )  # fmt: skip
    with contextlib.closing(mixer) if hasattr(mixer, "close") else contextlib.nullcontext():
        run_training(
            training, splits["train"], splits["val"], run, accelerator, resume=True,
            progress=clock.ticking(progress),
        )  # fmt: skip
    # Names without the folder above the data: a record is the same on every machine.
    names = image_keys(data.split("test").image_paths, spec["local"]["parts"])
    found = _tested(training, run / model_file(settings.select[0], 0), splits, names)
    return {
        **found, "wall_s": round(clock.seconds, 3), "images_seen": spec["images"],
        "generator_s": None if shared is None else shared["seconds"],
        "peak_memory_mib": peak.mib(),
    }  # fmt: skip


def settings_of(plain: Mapping[str, Any]) -> TrainSettings:
    """Return settings from the plain values that workers get."""
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()}
    values["hparams"] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in plain["hparams"].items()
    }
    return TrainSettings(**values)


def build_grader(
    spec: Mapping[str, Any], settings: TrainSettings, data: Manifest, warm: Warm, *, cpu: bool
) -> Grader:
    """Return an untrained grader, after checking that the data can train it.

    Args:
        spec: A `RunSpec`, as workers get it.
        settings: Of its training.
        data: All splits.
        warm: What this process keeps between runs.
        cpu: Whether a GPU, if there is one, is left alone.
    """
    weights = spec["local"]["weights"]
    grader = create_grader(
        settings.method, backbone=warm.backbone(settings.backbone, weights),
        weights=settings.weights, num_ranks=data.num_ranks, seed=spec["seed"],
        **settings.hparams,
    )  # fmt: skip
    checked = (spec["data"], settings.method, settings.backbone, settings.size, settings.batch_size)

    def check() -> bool:
        target = data.split("train").target()
        check_training(
            grader, settings, target, data, allow_missing=True, batch_option="--set batch_size="
        )
        return True

    warm.keep("seen", checked, check)
    grader.about = about_grader(
        data, settings, spec["seed"], spec["factors"]["mixer"], warm.provenance(cpu=cpu)
    )
    return grader


def _rows(mixer: Any, data: Manifest, spec: Mapping[str, Any], warm: Warm) -> Any:
    """Return where the mixer has the training images; checks that it has no others' codes."""
    if not getattr(mixer, "takes_rows", False):
        return None
    key = (str(data.path), spec["generator"])
    return warm.keep("rows", key, lambda: mixer_rows(mixer, data))


def _tested(
    training: Training, file: Any, splits: Mapping[str, SplitImages], names: list[str]
) -> dict[str, Any]:
    """Grade the test images once, with the model that validation chose."""
    grader = training.grader
    put_state(grader, load_file(str(file)), file)
    grader.eval()
    validation = evaluate(grader, splits["val"])
    grades = grade_split(grader, splits["test"])
    law = grades.probabilities.double().numpy()
    target = splits["test"].target.to("cpu")
    metrics = grade_metrics(
        grades.label.numpy(), target.hard.numpy(), grader.num_ranks,
        probabilities=law, rank=grades.rank.double().numpy(),
    )  # fmt: skip
    metrics["loss"] = ranked_probability_score(law, target.probs.double().numpy())
    rule = training.settings.select[0]
    return {
        "epoch": training.selectors[rule].epoch, "select": rule, "metrics": metrics,
        "validation": validation, "predictions": _predictions(grades, target.hard, names),
    }  # fmt: skip


def _predictions(grades: Grades, truth: torch.Tensor, names: list[str]) -> dict[str, Any]:
    return {
        "image": names,
        "grade": truth.tolist(),
        "label": grades.label.tolist(),
        "probabilities": [[round(p, 4) for p in row] for row in grades.probabilities.tolist()],
    }
