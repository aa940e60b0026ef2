"""Every step of the demo in turn; what is finished is never done again.

::

    OUT/index.html          the page
    OUT/bench/              records, shared generator, report of the small study
    OUT/generator.html      what the generator learned
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dismix.bench.folder import BenchFolder
from dismix.bench.plan import Plan, read_plan
from dismix.bench.specs import Study
from dismix.demo.steps import Steps
from dismix.errors import DisMixError
from dismix.progress import Progress

PLAN = "demo"
PAGE, BENCH, GENERATOR = "index.html", "bench", "generator.html"
#: Seconds on two quiet cores, for the time left: data, runs, evaluation, pages.
EXPECTED = {"data": 20.0, "runs": 230.0, "generator": 12.0, "pages": 12.0}


@dataclass(frozen=True)
class Scene:
    """What the page is made from.

    Attributes:
        home: The demo's folder.
        plan: The small study.
        study: Its runs.
        folder: Its records and shared parts.
        run: Folder of the generator.
        evaluation: From `evaluate_generator`.
    """

    home: Path
    plan: Plan
    study: Study
    folder: BenchFolder
    run: Path
    evaluation: dict[str, Any]


def tell(
    home: str | Path,
    plan: Plan | None = None,
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Do what is missing of the story and write its page.

    Args:
        home: Folder to fill.
        plan: Another study than the packaged one, of the same kind.
        jobs: Runs at once; two where there are two cores, by default.
        progress: Called as ``progress("demo | what", seconds done, seconds expected)``.

    Returns:
        The page.

    Raises:
        DisMixError: A run failed, or another demo is at work in this folder.
    """
    from dismix.bench.report import write_report
    from dismix.demo.page import write_page
    from dismix.generator.report import write_report as write_generator_report

    home, plan = Path(home), plan or read_plan(PLAN)
    folder, start = BenchFolder(home / BENCH), time.perf_counter()
    steps = Steps(EXPECTED, progress)
    with folder.try_lock("demo") as mine:
        if not mine:
            raise DisMixError(
                "another demo is at work here", file=home, cure="wait for it, or give -o FOLDER"
            )
        study = _ran(plan, folder, jobs or min(2, os.cpu_count() or 1), steps)
        run = _generator(study, folder)
        evaluation = _evaluated(study, folder, run, steps)
        steps.begin("pages", "writing the pages")
        # Of this plan alone: records of another version's may lie here too.
        write_report(folder.root, folder.root, plan=plan.name, title="DisMix demo: the small study")
        steps.at("pages", 0.2)
        manifest = folder.manifest_dir(_data(study)) / "manifest.csv"
        write_generator_report(run, home / GENERATOR, manifest=manifest, evaluation=evaluation)
        steps.at("pages", 0.6)
        scene = Scene(home, plan, study, folder, run, evaluation)
        path = write_page(scene, seconds=time.perf_counter() - start)
        steps.at("pages", 1.0)
    return path


def _ran(plan: Plan, folder: BenchFolder, jobs: int, steps: Steps) -> Study:
    from dismix.bench.engines import make_engine
    from dismix.bench.resolve import resolve
    from dismix.bench.runner import run_study

    steps.begin("data", "drawing pictures")
    study = resolve(plan, folder, progress=steps.inner("data", "drawing pictures"))
    steps.begin("runs", "training")
    watch = steps.study("runs", study, folder)
    found = run_study(
        study, folder, make_engine(jobs=jobs), cpu=True, retry_failed=True, cost=plan.cost,
        progress=watch,
    )  # fmt: skip
    if found.failed or found.left:
        words = found.errors[0] if found.errors else f"{found.left} runs are left"
        raise DisMixError(
            f"the demo's study did not end ({words})", file=folder.root / "records",
            cure="run the demo again; it goes on where it stopped",
        )  # fmt: skip
    return study


def _data(study: Study) -> str:
    return next(run.data for run in study.runs if run.generator is not None)


def _generator(study: Study, folder: BenchFolder) -> Path:
    names = [run.generator for run in study.runs if run.generator is not None]
    if not names:
        raise DisMixError("a demo needs a run with DisMix", cure="add mixer: [dismix]")
    return folder.generator_dir(names[0])


def _evaluated(study: Study, folder: BenchFolder, run: Path, steps: Steps) -> dict[str, Any]:
    """Measure the generator on the test images, once."""
    from dismix.generator.evaluation import evaluate_generator, read_evaluation

    steps.begin("generator", "measuring the generator")
    found = read_evaluation(run)
    if found is None:
        found = evaluate_generator(
            run, manifest=folder.manifest_dir(_data(study)) / "manifest.csv", device="cpu",
            # Severity is measured from the pictures themselves; a judge would cost half a minute.
            judge_epochs=0,
            progress=steps.inner("generator", "measuring the generator"),
        )  # fmt: skip
    return found
