"""A study as a plan of the benchmark: its runs, records and generators are the benchmark's."""

import warnings
from pathlib import Path
from typing import Any

from dismix.bench.folder import BenchFolder
from dismix.bench.plan import Plan, change_plan, make_plan
from dismix.bench.resolve import resolve
from dismix.bench.specs import Study
from dismix.errors import DisMixError
from dismix.graders.settings import usual_batch
from dismix.progress import Progress
from dismix.study.budget import Budget, Speed
from dismix.study.choices import MIXERS, Choices, Settled

#: Said on the page in better words, and once instead of once a fold.
_SAID = ("fewer than .* groups hold", "a single group of images holds")

#: What small networks need on photographs: a guide that reads them, and mixes that are not the
#: decoder's alone. Both were measured on 591 real knees (`results/tried.md`).
PHOTO_GUIDE = {"guide_kind": "lite0", "guide_lr": 1e-3, "seen": 0}
PHOTO_MIXES = {"blend": 1, "labels": "votes"}


def study_plan(
    choices: Choices, settled: Settled, budget: Budget, *, votes: bool, speed: Speed | None = None
) -> Plan:
    """Return the plan of a study.

    Args:
        choices: What is asked for.
        settled: Networks.
        budget: Lengths of trainings; the same for all mixers.
        votes: Train on votes; else on single grades as they are.
        speed: For estimates of the time left.
    """
    content: dict[str, Any] = {
        "title": "Does mixing help here",
        "kind": "grader",
        "factors": {
            "fold": [f"{i + 1}/{choices.folds}" for i in range(choices.folds)],
            "mixer": [*MIXERS], "grader": [choices.grader], "seed": [*range(budget.repeats)],
            # Nobody's votes are simulated: single grades are taken as they are.
            "labels": ["votes" if votes else "clean"],
            "variability": ["own" if votes else "auto"],
        },
        "settings": {
            "backbone": settled.backbone, "size": settled.size, "epochs": budget.epochs,
            "batch_size": usual_batch(budget.train),
        },
        "mixers": {
            "dismix": {
                "pool": pool_size(budget.train), "reuse": 4,
                **(PHOTO_MIXES if settled.photographs else {}),
            }
        },
        "generator": {
            "arch": settled.arch, "size": settled.size, "weights": "auto",
            "settings": {
                "epochs": budget.generator_epochs, "guide_steps": budget.guide_steps,
                "strip_every": 0, **(PHOTO_GUIDE if settled.guided else {}),
            },
        },
    }  # fmt: skip
    if speed is not None:
        content["cost"] = {
            "images_per_s": 1 / speed.grader, "generator_images_per_s": 1 / speed.generator,
            "mixers": {"dismix": speed.dismix / speed.grader}, "hardware": speed.hardware,
        }  # fmt: skip
    return change_plan(make_plan(content, "study"), choices.changes)


def pool_size(train: int) -> int:
    """Return how many mixes DisMix holds ready.

    Example:
        >>> pool_size(200), pool_size(100_000)
        (100, 1024)
    """
    return min(1024, max(16, train // 2))


def resolved(
    plan: Plan, folder: BenchFolder, manifest: Path, name: str, progress: Progress | None = None
) -> Study:
    """Return the runs of a plan on one manifest.

    Raises:
        DisMixError: Some run cannot run here, such as for missing weights.
    """
    with warnings.catch_warnings():
        for message in _SAID:
            warnings.filterwarnings("ignore", message=message)
        study = resolve(plan, folder, {name: manifest}, progress=progress)
    blocked = next((run.blocked for run in study.runs if run.blocked is not None), None)
    if blocked is not None:
        raise DisMixError(blocked, cure="or use --backbone tiny --arch tiny, which need none")
    return study
