"""A study from beginning to end; killed at any moment it loses at most the run in flight."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dismix.bench.durations import in_words
from dismix.bench.engines import make_engine
from dismix.bench.folder import BenchFolder
from dismix.bench.plan import Plan
from dismix.bench.runner import run_study
from dismix.bench.specs import Study
from dismix.data.manifest import write_manifest
from dismix.data.overwriting import refuse_own_source
from dismix.errors import DisMixError
from dismix.progress import Progress
from dismix.study.budget import Budget, Speed, choose
from dismix.study.choices import Choices, Settled, settle
from dismix.study.dealing import between
from dismix.study.findings import write_findings
from dismix.study.intake import Intake, take_in
from dismix.study.lengths import kept_lengths, lengths
from dismix.study.planning import resolved, study_plan
from dismix.study.speed import BENCH, measured_speed

DATA = "data/manifest.csv"
#: Seconds from which a user is told how to make it shorter.
LONG = 2 * 3600
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """A study before its first training.

    Attributes:
        choices: What was asked for.
        settled: Networks.
        intake: Images.
        speed: Of this machine; None where nothing is left to do.
        budget: Lengths of trainings.
        name: What the data are called.
        source: Name of the manifest or folder, as a command takes it.
    """

    choices: Choices
    settled: Settled
    intake: Intake
    speed: Speed | None
    budget: Budget
    name: str
    source: str

    def announcement(self, done: int = 0, seen: str = "", jobs: int = 1) -> str:
        """Say what will be done and how long it takes.

        Args:
            done: Trainings of graders that an earlier command has finished.
            seen: Images that a training sees; about as many as folds usually give if unknown.
            jobs: Trainings at once.
        """
        budget, choices = self.budget, self.choices
        runs = 3 * choices.folds * budget.repeats
        shorter = ""
        if choices.budget is None and budget.seconds > LONG and done < runs:
            shorter = "; --budget MINUTES makes it shorter, and a stopped study goes on later"
        return (
            f"{len(self.intake.manifest):,} images, {choices.folds} folds: {choices.folds} "
            f"generators ({self.settled.arch}, {budget.generator_epochs} epochs) and {runs} "
            f"trainings of '{choices.grader}' on {self.settled.backbone}, {self.settled.size} px "
            f"({budget.epochs} epochs, {seen or f'about {budget.epochs * budget.train:,}'} images "
            f"each, the same for every mixer): {self._takes(done, runs, jobs)}{shorter}"
        )

    def _takes(self, done: int, runs: int, jobs: int) -> str:
        if done >= runs or self.speed is None:
            return "all done before, nothing is trained again"
        said = f"about {in_words(self.budget.seconds)} on {self.speed.hardware}"
        if jobs > 1:
            # One training was timed; how far others slow it down depends on what is left free.
            said += f", one training at a time (less with --jobs {jobs} where cores are free)"
        return f"{said} in all, {done} of {runs} trainings are done" if done else said


def prepare(
    path: str | Path, output: str | Path, choices: Choices, progress: Progress | None = None
) -> Prepared:
    """Read and check the images, choose the lengths, measure the machine if there is work to do.

    Args:
        path: Manifest or folder.
        output: The study's folder.
        choices: What is asked for.
        progress: Called now and then.
    """
    output, settled = Path(output), settle(choices)
    begun = time.perf_counter()
    intake = take_in(path, choices, settled.size, progress)
    _refuse_others(output, intake.manifest.path)
    decode = (time.perf_counter() - begun) / len(intake.manifest)
    name = _name(path, intake.manifest.path)
    # Another command in this folder would clear away the trial, or choose other lengths.
    with BenchFolder(output / BENCH).lock("prepare"):
        write_manifest(intake.manifest, output / DATA)
        done = _finished(output, choices, settled, intake, name)
        if done is not None:
            return Prepared(choices, settled, intake, None, done, name, _source(path))
        speed = measured_speed(
            intake.manifest, choices, settled, output, votes=intake.votes, decode=decode,
            progress=progress,
        )  # fmt: skip
        budget = lengths(output, choices, settled, len(intake.manifest), speed)
    return Prepared(choices, settled, intake, speed, budget, name, _source(path))


def _name(path: str | Path, manifest: Path | None) -> str:
    """Return what the data are called."""
    name = Path(path).resolve().name if manifest is None else manifest.stem
    if name == "manifest" and manifest is not None:
        return manifest.resolve().parent.name
    return name


def _finished(
    output: Path, choices: Choices, settled: Settled, intake: Intake, name: str
) -> Budget | None:
    """Return the lengths of a study whose runs are all done: it needs no machine's speed."""
    folder = BenchFolder(output / BENCH)
    if not any((folder.root / "records").glob("*.json")):
        return None
    images = len(intake.manifest)
    budget = kept_lengths(output, choices, settled, images)
    if budget is None:
        if choices.budget is not None:
            return None
        # Lengths that were asked for hang on no speed; what they take is not said.
        budget = choose(choices, settled, images, Speed(0.0, 0.0, 0.0, 0.0, 0.0, ""))
    plan = study_plan(choices, settled, budget, votes=intake.votes)
    runs = resolved(plan, folder, output / DATA, name).runs
    return budget if all(folder.status(run.id) == "done" for run in runs) else None


def _refuse_others(output: Path, source: Path | None) -> None:
    """Refuse a folder in which the study's own manifest would replace somebody else's."""
    refuse_own_source(output / DATA, source, "the manifest that is to be studied")
    if (output / DATA).exists() and not (output / BENCH).exists():
        raise DisMixError(
            "is there already, and no study is", file=output / DATA, cure="choose another -o"
        )


def _source(path: str | Path) -> str:
    """Return a manifest's name as a command takes it, without the folders of this machine.

    Example:
        >>> _source("/home/me/knees.csv"), _source("/home/me/knees/manifest.csv")
        ('knees.csv', 'knees/manifest.csv')
    """
    place = Path(path).resolve()
    own = place.stem != "manifest" or not place.parent.name
    return place.name if own else f"{place.parent.name}/{place.name}"


def _planned(
    prepared: Prepared, folder: BenchFolder, output: Path, progress: Progress | None
) -> tuple[Plan, Study]:
    plan = study_plan(
        prepared.choices, prepared.settled, prepared.budget, votes=prepared.intake.votes,
        speed=prepared.speed,
    )  # fmt: skip
    with folder.lock("prepare"):
        # Another command may have written other images here since.
        write_manifest(prepared.intake.manifest, output / DATA)
        return plan, resolved(plan, folder, output / DATA, prepared.name, progress)


def _announced(prepared: Prepared, study: Study, folder: BenchFolder, jobs: int) -> str:
    done = sum(folder.status(run.id) == "done" for run in study.runs)
    said = prepared.announcement(done, between([run.images for run in study.runs]), jobs)
    own = {run.id for run in study.runs}
    others = sum(path.stem not in own for path in (folder.root / "records").glob("*.json"))
    if others and done < len(own):
        # Hours may have gone into them: data that were changed by mistake are told here.
        said += f"; {others} earlier trainings in this folder are of other images or settings"
    return said


def announce(
    path: str | Path,
    output: str | Path,
    choices: Choices,
    progress: Progress | None = None,
    *,
    jobs: int = 1,
) -> str:
    """Say what a study would do, how long that takes and how much of it is done.

    Args:
        path: Manifest or folder.
        output: The study's folder.
        choices: What is asked for.
        progress: Called now and then.
        jobs: Trainings at once.
    """
    output = Path(output)
    prepared, folder = prepare(path, output, choices, progress), BenchFolder(output / BENCH)
    return _announced(prepared, _planned(prepared, folder, output, progress)[1], folder, jobs)


def conduct(
    path: str | Path,
    output: str | Path,
    choices: Choices | None = None,
    *,
    jobs: int = 1,
    retry_failed: bool = False,
    tell: Tell | None = None,
    progress: Progress | None = None,
) -> dict[str, object]:
    """Run a study, or finish one, and write ``study.html`` and ``study.json``.

    Args:
        path: Manifest or folder.
        output: Folder to fill; the same folder again goes on where it was.
        choices: What is asked for.
        jobs: Trainings at once.
        retry_failed: Also run what failed before.
        tell: Called with lines for the user.
        progress: Called now and then.

    Returns:
        What ``study.json`` holds.
    """
    output, choices = Path(output), choices or Choices()
    prepared = prepare(path, output, choices, progress)
    folder = BenchFolder(output / BENCH)
    plan, study = _planned(prepared, folder, output, progress)
    if tell is not None:
        tell(_announced(prepared, study, folder, jobs))
    found = run_study(
        study, folder, make_engine(jobs=jobs), retry_failed=retry_failed, cpu=choices.cpu,
        cost=plan.cost, progress=progress,
    )  # fmt: skip
    _refuse_unfinished(study, folder, found.failed, found.left)
    return write_findings(prepared, study, folder, output, progress)


def _refuse_unfinished(study: Study, folder: BenchFolder, failed: int, left: int) -> None:
    if failed:
        broken = next(run for run in study.runs if folder.status(run.id) == "failed")
        error = str((folder.record(broken.id) or {}).get("error") or "").strip().splitlines()
        raise DisMixError(
            f"{failed} of {len(study.runs)} trainings failed ({error[-1] if error else 'unknown'})",
            file=folder.record_path(broken.id),
            cure="look at the traceback there, then add --retry-failed",
        )
    if left:
        raise DisMixError(
            f"{left} of {len(study.runs)} trainings are under way elsewhere",
            file=folder.root,
            cure="wait for the other command, then run this one again",
        )
