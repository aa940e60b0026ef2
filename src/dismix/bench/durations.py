"""How long runs take: measured where some like them have ended, else estimated."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dismix.bench.folder import BenchFolder
from dismix.bench.specs import RunSpec, Study

#: Rough cost of a step with a mixer, in steps without one, until some are measured.
MIXER_COST = {
    "puzzlemix": 2.0, "comixup": 3.0, "guidedmixup": 1.1, "diffusemix": 1.2, "sumix": 2.0,
    "dismix": 1.2,
}  # fmt: skip
IMAGES_PER_S, GENERATOR_IMAGES_PER_S = 2200.0, 270.0
#: Tiny networks on one core of a CPU, as the plan "smoke" has it.
TINY_COST = {"images_per_s": 500.0, "generator_images_per_s": 40.0, "hardware": "one CPU core"}


class Durations:
    """Means of measured seconds, by how alike runs are."""

    def __init__(self) -> None:
        self._sums: dict[tuple[Any, ...], tuple[float, int]] = {}

    @classmethod
    def of_records(cls, folder: BenchFolder, runs: Sequence[RunSpec]) -> "Durations":
        """Return the means of a study's finished runs."""
        found = cls()
        for run in runs:
            record = folder.record(run.id)
            if record is None or record["status"] != "done":
                continue
            if (seconds := own_seconds(record)) is not None:
                found.add(run.kind, run.factors, seconds)
        return found

    def add(self, kind: str, factors: Mapping[str, Any], seconds: float) -> None:
        """Take in a run that ended."""
        for key in _keys(kind, factors):
            total, count = self._sums.get(key, (0.0, 0))
            self._sums[key] = (total + seconds, count + 1)

    def mean(self, kind: str, factors: Mapping[str, Any]) -> float | None:
        """Return the mean of the most alike runs, None before any of the kind has ended.

        Example:
            >>> known = Durations()
            >>> known.add("grader", {"data": "a", "mixer": "none"}, 4.0)
            >>> known.mean("grader", {"data": "b", "mixer": "none"})
            4.0
        """
        for key in _keys(kind, factors):
            if key in self._sums:
                total, count = self._sums[key]
                return total / count
        return None


def own_seconds(record: Mapping[str, Any]) -> float | None:
    """Return the seconds of a run that another one like it will take.

    A run that measures a generator counts its training among its own seconds; what generators to
    come will take is reckoned apart, and each is trained once.

    Args:
        record: Of the run. None is known of one that failed, or was edited to say something else.

    Example:
        >>> own_seconds({"kind": "generator", "wall_s": 70.0, "generator_s": 60.0})
        10.0
        >>> own_seconds({"kind": "grader", "wall_s": 70.0, "generator_s": 60.0})
        70.0
        >>> own_seconds({"kind": "grader", "wall_s": "x"}) is None
        True
    """
    whole = _measured(record.get("wall_s"))
    built = _measured(record.get("generator_s")) if record.get("kind") == "generator" else None
    return None if whole is None else whole - (built or 0.0)


def _measured(seconds: object) -> float | None:
    """Return what can be a time, else None."""
    if not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds <= 0:
        return None
    return float(seconds)


def _keys(kind: str, factors: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    names = ("data", "scarcity", "grader", "mixer")
    chosen = [names, ("data", "scarcity", "mixer"), ("data", "mixer"), ("mixer",), ()]
    return [(kind, *((name, factors.get(name)) for name in some)) for some in chosen]


def estimated_seconds(run: RunSpec, cost: Mapping[str, Any]) -> float:
    """Return the seconds that a plan lets expect of a run, its generator not counted.

    Args:
        run: Any.
        cost: The plan's: images a second and the mixers' factors.
    """
    if run.kind == "generator":
        return 60.0
    factors = {**MIXER_COST, **cost.get("mixers", {})}
    rate = float(cost.get("images_per_s", IMAGES_PER_S))
    images = 2000 if run.kind == "overhead" else run.images
    return 3.0 + images * float(factors.get(run.factors["mixer"], 1.0)) / rate


def estimated_generator_seconds(images: int, cost: Mapping[str, Any]) -> float:
    """Return the seconds that a plan lets expect of a generator that sees some images."""
    return 30.0 + images / float(cost.get("generator_images_per_s", GENERATOR_IMAGES_PER_S))


def cost_here(study: Study, cost: Mapping[str, Any], *, gpu: bool) -> Mapping[str, Any]:
    """Return the rates to reckon with: a plan's own, or a CPU's for tiny networks without a GPU.

    Args:
        study: All runs.
        cost: The plan's.
        gpu: Whether this machine has one.
    """
    from dismix.graders.backbones import TINY

    graders = (run.local.get("settings", {}).get("backbone", TINY) for run in study.runs)
    built = (spec.local.get("arch", TINY) for spec in study.generators.values())
    # Who measured a rate on an unnamed machine knows better.
    known = _on_a_cpu(cost) or ("images_per_s" in cost and "hardware" not in cost)
    if gpu or known or any(name != TINY for name in (*graders, *built)):
        return cost
    return {**cost, **TINY_COST}


def _on_a_cpu(cost: Mapping[str, Any]) -> bool:
    return "cpu" in str(cost.get("hardware", "")).lower()


def expected_seconds(
    study: Study, folder: BenchFolder, cost: Mapping[str, Any], runs: Sequence[RunSpec]
) -> tuple[float, float]:
    """Return the seconds that some runs will take, and those of the generators they still need.

    Args:
        study: All runs.
        folder: Where finished ones are.
        cost: From `cost_here`.
        runs: Those to come.
    """
    from dismix.bench.artifacts import generator_done

    known = Durations.of_records(folder, study.runs)
    total = sum(known.mean(r.kind, r.factors) or estimated_seconds(r, cost) for r in runs)
    needed = {run.generator for run in runs if run.generator is not None}
    build = sum(
        estimated_generator_seconds(study.generators[name].images, cost)
        for name in needed
        if generator_done(folder, name) is None and "given" not in study.generators[name].local
    )
    return total, build


def basis(
    study: Study,
    folder: BenchFolder,
    cost: Mapping[str, Any],
    runs: Sequence[RunSpec],
    *,
    gpu: bool,
) -> tuple[str, str]:
    """Return what expected seconds rest on, and a warning where that is no machine like this one.

    Args:
        study: All runs.
        folder: Where finished ones are.
        cost: From `cost_here`.
        runs: Those to come.
        gpu: Whether this machine has one.
    """
    known = Durations.of_records(folder, study.runs)
    if runs and all(known.mean(run.kind, run.factors) is not None for run in runs):
        return "as measured here", ""
    if "images_per_s" in cost and "hardware" not in cost:
        return "by the plan's rates or as measured here", ""
    where = str(cost.get("hardware", "one GPU"))
    usual = gpu or _on_a_cpu(cost) or not runs
    note = "; there is no GPU here, where all of it takes many times as long"
    return f"on {where} or as measured here", "" if usual else note


def in_words(seconds: float) -> str:
    """Return a duration for people.

    Example:
        >>> in_words(42), in_words(600), in_words(9000)
        ('42 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
