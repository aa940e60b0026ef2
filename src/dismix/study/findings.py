"""From finished runs to ``study.json`` and the page."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import dismix
from dismix import atomic
from dismix.bench.artifacts import generator_done
from dismix.bench.folder import BenchFolder
from dismix.bench.sources import FULL
from dismix.bench.specs import Study
from dismix.data.annotators.agreement import measure_agreement
from dismix.data.laws import law_columns, read_laws
from dismix.data.manifest import Manifest, read_manifest
from dismix.data.strata import group_names, is_grouped
from dismix.progress import Progress
from dismix.provenance import provenance
from dismix.study.budget import usual
from dismix.study.choices import METRICS
from dismix.study.costs import costs
from dismix.study.dealing import Dealt, dealing_notes, dealing_words, dealt_folds
from dismix.study.mixes import MixLook, look_at_mixes
from dismix.study.page import write_page
from dismix.study.pooled import PAIRS, Pooled, compare, learned, pool, results
from dismix.study.resample import DRAWS
from dismix.study.words import spell

if TYPE_CHECKING:
    from dismix.study.conduct import Prepared

FORMAT = 1
PAGE, JSON = "study.html", "study.json"


def write_findings(
    prepared: "Prepared",
    study: Study,
    folder: BenchFolder,
    output: Path,
    progress: Progress | None = None,
) -> dict[str, object]:
    """Analyse all runs, and write ``study.json`` and the page.

    Args:
        prepared: What was asked for and found before the runs.
        study: Its runs, all done.
        folder: Their records.
        output: The study's folder.
        progress: Called while mixes are made.
    """
    choices, manifest = prepared.choices, prepared.intake.manifest
    records = [record for run in study.runs if (record := folder.record(run.id)) is not None]
    pooled = pool(records, _groups(study, folder))
    metric, worth = METRICS[choices.metric], choices.smallest
    comparisons = compare(pooled, metric, worth)
    able = learned(pooled, metric)
    verdict = spell(comparisons, metric, worth, len(pooled.images), learned=able)
    look = _mixes(prepared, study, folder, output, progress)
    done = {name: generator_done(folder, name) or {} for name in study.generators}
    folds = dealt_folds(study, folder)
    made = provenance(prepared.settled.device)
    found: dict[str, Any] = {
        "format": FORMAT, "date": made["date"], "version": dismix.__version__,
        "commit": made["commit"], "hardware": made["hardware"],
        "command": repeating_command(prepared, output),
        "answer": verdict.answer, "recommended": verdict.mixer, "headline": verdict.headline,
        "reasons": [*verdict.sentences], "learned": able, "metric": metric.name, "worth": worth,
        "comparisons": [comparisons[pair].to_dict() for pair in PAIRS],
        "results": results(pooled, manifest.num_ranks),
        "data": _data(prepared, pooled), "folds": [fold.to_dict() for fold in folds],
        "how": _how(prepared, study),
        "agreement": _agreement(manifest), "mixes": look.to_dict(),
        "cost": costs(records, done), "notes": _notes(prepared, folds),
        "facts": _facts(prepared, manifest, folds), "skipped": [*prepared.intake.skipped],
        "runs": [run.id for run in study.runs],
    }  # fmt: skip
    atomic.write_json(output / JSON, found)
    write_page(output / PAGE, found, verdict, [comparisons[pair] for pair in PAIRS], look.shown)
    return found


def _groups(study: Study, folder: BenchFolder) -> dict[str, list[str]]:
    """Return the groups of every fold's held-out images, in the order in which they were graded."""
    data = {str(run.factors["fold"]): run.data for run in study.runs}
    return {
        fold: group_names(read_manifest(folder.manifest_dir(key) / FULL).split("test"))
        for fold, key in data.items()
    }


def _mixes(
    prepared: "Prepared",
    study: Study,
    folder: BenchFolder,
    output: Path,
    progress: Progress | None,
) -> MixLook:
    first = next(run for run in study.runs if run.generator is not None)
    assert first.generator is not None
    return look_at_mixes(
        folder.generator_dir(first.generator), folder.manifest_dir(first.data),
        output / "mixes" / first.generator, prepared.settled.size,
        device=prepared.settled.device, progress=progress,
    )  # fmt: skip


def _agreement(manifest: Manifest) -> dict[str, Any] | None:
    if not manifest.annotators:
        return None
    voted = manifest.rows(manifest.has_votes)
    found = measure_agreement(voted.votes, voted.num_ranks, annotators=voted.annotators)
    return found.to_dict()


def _data(prepared: "Prepared", pooled: Pooled) -> dict[str, Any]:
    manifest = prepared.intake.manifest
    tested = np.bincount(pooled.truth, minlength=manifest.num_ranks)
    return {
        "name": prepared.name, "images": len(manifest), "groups": prepared.intake.groups,
        "ranks": [*manifest.meta.ranks], "counts": [*prepared.intake.counts],
        "tested": tested.tolist(), "annotators": manifest.annotators,
        "soft": bool(law_columns(manifest.table)),
    }  # fmt: skip


def _how(prepared: "Prepared", study: Study) -> dict[str, Any]:
    settings: Mapping[str, Any] = study.runs[0].local["settings"]
    generator = next(iter(study.generators.values()))
    return {
        "grader": prepared.choices.grader, "backbone": settings["backbone"],
        "size": settings["size"], "epochs": settings["epochs"],
        "batch_size": settings["batch_size"], "arch": prepared.settled.arch,
        "generator_epochs": generator.described["recipe"]["epochs"],
        "folds": prepared.choices.folds, "repeats": prepared.budget.repeats,
        "device": prepared.settled.device, "budget_minutes": prepared.choices.budget,
        "shares": [prepared.budget.share, prepared.budget.generator_share],
    }  # fmt: skip


def _notes(prepared: "Prepared", folds: Sequence[Dealt]) -> list[str]:
    notes = [*prepared.settled.notes, *prepared.intake.notes]
    notes += dealing_notes(folds, prepared.intake.manifest.meta.ranks)
    budget = prepared.budget
    epochs, generator, _ = usual(prepared.settled, budget.train)
    short = [
        f"{who} had {had} epochs (usual are {often})"
        for who, had, often in (
            ("graders", budget.epochs, epochs), ("generators", budget.generator_epochs, generator)
        )
        if had < often / 2
    ]  # fmt: skip
    if short:
        notes.append(
            f"Trainings were short: {' and '.join(short)}. DisMix depends on its generator most, "
            "so a longer study may answer otherwise."
        )
    return notes


def _facts(prepared: "Prepared", manifest: Manifest, folds: Sequence[Dealt]) -> list[str]:
    choices, budget = prepared.choices, prepared.budget
    dealt, used = dealing_words(folds)
    graded = int((~np.isnan(manifest.grades)).sum())
    soft = bool(law_columns(manifest.table))
    majority = "the largest share of the soft label" if soft else "the annotators' majority"
    judged = (
        "the reference grade" if graded == len(manifest)
        else majority if graded == 0
        else f"the reference grade ({graded:,} images) or {majority}"
    )  # fmt: skip
    laws = read_laws(manifest.table, manifest.num_ranks)
    spoken = manifest.has_votes | ~np.isnan(laws).any(axis=1)
    labels = [
        name
        for name, given in (
            ("votes", manifest.has_votes.any()), ("soft labels", soft),
            ("single grades", not spoken.all()),
        )
        if given
    ]  # fmt: skip
    units = "groups" if is_grouped(manifest) else "images"
    counted = METRICS[choices.metric].step > 0
    kept = (
        "Images of one group (patient) never stood on both sides."
        if is_grouped(manifest)
        else "The data name no groups (patients); images of one person may stand on both sides, "
        "which flatters all three alike."
    )
    return [
        f"All images were dealt into {choices.folds} folds {dealt}. "
        f"Networks and generators that are tested on a fold never saw any of it. {kept}",
        f"Of the rest, in each fold {used}, by {' and '.join(labels)}. Held-out "
        f"images were judged by {judged}.",
        f"No mixing, Mixup and DisMix had the same network, images, seeds and number of images "
        f"seen; {budget.repeats} training{'s' * (budget.repeats != 1)} each in every fold.",
        f"Intervals: differences image by image; folds, then {units} within them, and repeated "
        f"trainings were drawn with replacement {DRAWS:,} times, and the interval widened by "
        f"{choices.folds}/{choices.folds - 1}, because so few folds show too little of how "
        "trainings vary."
        + (f" It is never narrower than the share of {units} that may differ unseen." * counted),
        "The answer holds for this grader, this network, this size and this number of images. It "
        "is no promise for a larger network or a longer training.",
    ]


def repeating_command(prepared: "Prepared", output: Path) -> str:
    """Return the command that repeats a study, as a shell takes it.

    Files and folders are named without those above them: pages are shown to others.

    Args:
        prepared: What was asked for and settled.
        output: The study's folder.
    """
    choices, budget = prepared.choices, prepared.budget
    options = {
        "-o": output.resolve().name or "study", "--folds": choices.folds,
        "--grader": choices.grader, "--backbone": prepared.settled.backbone,
        "--arch": prepared.settled.arch, "--size": prepared.settled.size,
        "--epochs": budget.epochs, "--generator-epochs": budget.generator_epochs,
        "--repeats": budget.repeats, "--metric": choices.metric, "--worth": choices.smallest,
    }  # fmt: skip
    words = ["dismix", "study", prepared.source]
    words += [str(word) for option in options.items() for word in option]
    words += ["--without-test"] if choices.without_test else []
    words += ["--on-error", choices.on_error] if choices.on_error != "stop" else []
    words += ["--cpu"] if prepared.settled.device == "cpu" else []
    # The user's word comes last, as it did here.
    changes = {"generator.guide_steps": str(budget.guide_steps), **choices.changes}
    for name, value in changes.items():
        words += ["--set", f"{name}={value}"]
    return shlex.join(words)
