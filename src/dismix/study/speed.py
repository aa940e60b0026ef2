"""How fast this machine is, measured on a few of the images with the networks in question."""

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dismix import atomic
from dismix.bench.folder import BenchFolder
from dismix.bench.runner import run_study
from dismix.bench.specs import RunSpec, Study
from dismix.data.draws import drawn_order, image_keys
from dismix.data.manifest import Manifest, read_manifest, write_manifest
from dismix.errors import DisMixError
from dismix.generator.images import load_split
from dismix.progress import Progress
from dismix.provenance import hardware
from dismix.study.budget import Budget, Speed
from dismix.study.choices import Choices, Settled
from dismix.study.planning import resolved, study_plan

#: The study's runs, below its folder.
BENCH = "bench"
FILE = "speed.json"
#: Images and passes of the trial: enough for a rate, little enough for seconds on a CPU.
IMAGES, EPOCHS, GENERATOR_EPOCHS, GUIDE_STEPS = 64, 5, 2, 12


@dataclass
class _Ticks:
    """Remembers when steps were done, training by training."""

    told: Progress | None
    runs: list[list[tuple[float, int]]] = field(default_factory=list)

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.perf_counter()
        if "training" in stage.split(" | ", maxsplit=1)[0]:
            if not self.runs or self.runs[-1][-1][1] >= done:
                self.runs.append([])
            self.runs[-1].append((now, done))
        if self.told is not None:
            self.told("measuring this machine", min(len(self.runs), 3), 3)

    def step_seconds(self, run: int) -> float:
        """Return the seconds of a step of the n-th training."""
        ticks = self.runs[run]
        (first, start), (last, end) = ticks[0], ticks[-1]
        return (last - first) / max(1, end - start)


def measured_speed(
    manifest: Manifest,
    choices: Choices,
    settled: Settled,
    folder: Path,
    *,
    votes: bool,
    decode: float,
    progress: Progress | None = None,
) -> Speed:
    """Measure, or read what was measured in this folder before.

    Args:
        manifest: The user's images.
        choices: What is asked for.
        settled: Networks.
        folder: Where the measurement is kept.
        votes: Train on votes.
        decode: Seconds to decode an image, measured while they were read.
        progress: Called now and then.
    """
    machine = hardware()
    asked = {
        "grader": choices.grader, "backbone": settled.backbone, "arch": settled.arch,
        "size": settled.size, "device": settled.device, "hardware": machine,
        "guided": settled.guided, "changes": dict(choices.changes),
    }  # fmt: skip
    known = _known(folder / FILE, asked)
    if known is not None:
        return known
    some = _some(manifest)
    # Within the study's own part of the folder: it is cleared away.
    trial = folder / BENCH / "trial"
    shutil.rmtree(trial, ignore_errors=True)
    write_manifest(some, trial / "manifest.csv")
    lengths = Budget(EPOCHS, GENERATOR_EPOCHS, GUIDE_STEPS, 1, len(some) // 2, 0.0, 0.0)
    # One fold alone is run, and so few images cannot be dealt into as many as the user's.
    plan = study_plan(replace(choices, folds=2), settled, lengths, votes=votes)
    study = resolved(plan, BenchFolder(trial), trial / "manifest.csv", "trial")
    found = _timed(study, trial, choices, settled, machine, decode, progress)
    atomic.write_json(folder / FILE, {"asked": asked, "speed": found.to_dict()})
    shutil.rmtree(trial, ignore_errors=True)
    return found


def _known(path: Path, asked: dict[str, object]) -> Speed | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Speed(**content["speed"]) if content["asked"] == asked else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _some(manifest: Manifest) -> Manifest:
    """Return a few images, all grades in turn, groups dropped: nothing is learned from them."""
    order = drawn_order(image_keys(manifest.image_paths), seed=0, purpose="trial")
    hard = manifest.target().hard.numpy()[order]
    turn = np.zeros(len(order), dtype=np.int64)
    for rank in np.unique(hard):
        turn[hard == rank] = np.arange((hard == rank).sum())
    rows = np.sort(order[np.argsort(turn, kind="stable")[:IMAGES]])
    some = manifest.rows(rows)
    table = some.table.drop(columns=["group"], errors="ignore").assign(split="train")
    return some.with_table(table)


def _timed(
    study: Study,
    trial: Path,
    choices: Choices,
    settled: Settled,
    machine: str,
    decode: float,
    progress: Progress | None,
) -> Speed:
    first = study.runs[0].factors["fold"]
    chosen = {
        m: next(r for r in study.runs if r.factors["mixer"] == m and r.factors["fold"] == first)
        for m in ("none", "dismix")
    }
    ticks = _Ticks(progress)
    for run in chosen.values():
        part = Study(study.plan, study.title, (run,), study.generators, study.data)
        found = run_study(part, BenchFolder(trial), cpu=choices.cpu, progress=ticks)
        if found.failed:
            raise DisMixError(
                f"a short trial failed ({found.errors[0].split(': ', 1)[-1]})",
                cure="train single parts to see more (`dismix generator train`, "
                "`dismix grader train`)",
            )
    plain, generator, mixed = (ticks.step_seconds(i) for i in range(3))
    images = study.data[chosen["none"].data].counts["train"]
    batch = int(chosen["none"].local["settings"]["batch_size"])
    recipe = study.generators[str(chosen["dismix"].generator)].described["recipe"]
    guide = _guide_seconds(trial, chosen["dismix"], recipe, settled)
    return Speed(
        plain / min(batch, images), mixed / min(batch, images),
        generator / min(int(recipe["batch_size"]), images), guide, decode, machine,
    )  # fmt: skip


def _guide_seconds(trial: Path, run: RunSpec, recipe: Mapping[str, Any], settled: Settled) -> float:
    """Return the seconds of a step of all that is trained before a generator."""
    import torch

    from dismix.generator.guide import train_guide

    if not any(recipe["weights"].get(term, 0) > 0 for term in ("guide", "mix", "seen")):
        return 0.0
    device = torch.device(settled.device)
    data = read_manifest(BenchFolder(trial).manifest_dir(run.data) / "training.csv")
    train = load_split(data, "train", settled.size, device=device)
    kind = recipe["guide_kind"]
    taken = []
    for steps in (1, 4):
        begun = time.perf_counter()
        train_guide(train, device, steps=steps, kind=kind)
        taken.append(time.perf_counter() - begun)
    a_pass = max(0.0, taken[1] - taken[0]) / 3
    # Beside a large guide the reader is large too, but for the tiny generator's, which is quick.
    batch, networks = (32, 1 + settled.light) if kind == "lite0" else (48, 1)
    return networks * a_pass * batch / len(train)
