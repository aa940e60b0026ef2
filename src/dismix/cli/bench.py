"""`dismix bench`: the paper's studies, or your own, planned, run, watched and reported."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dismix.cli.options import AsJson, Cpu, Device, Quiet, pairs

if TYPE_CHECKING:
    from dismix.bench.folder import BenchFolder
    from dismix.bench.plan import Plan
    from dismix.bench.specs import Study

app = typer.Typer(
    no_args_is_help=True, help="The benchmark: plan, run, watch and report whole studies."
)

Name = Annotated[
    str, typer.Argument(help="A plan: main, scarcity, ... (`dismix bench plans`), or its file.")
]
Folder = Annotated[Path, typer.Option("-o", "--output", help="Folder of records and shared parts.")]
DataOption = Annotated[
    list[str] | None,
    typer.Option("--data", help="NAME=MANIFEST (or a published folder); repeat."),
]
Generators = Annotated[
    list[str] | None,
    typer.Option("--generator", help="NAME=RUN, a trained generator for a data set; repeat."),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="A factor (seed=0,1, data=NAME), a setting (epochs=3, backbone=tiny), "
        "generator.NAME=VALUE or mixers.MIXER.OPTION=VALUE; repeat.",
    ),
]
BENCH = Path("runs/bench")


class EngineName(StrEnum):
    """Who computes."""

    in_process = "in_process"
    processes = "processes"
    ray = "ray"


@app.command("plans")
def list_plans_command() -> None:
    """List the plans that come with the package."""
    from dismix.bench.plan import list_plans, read_plan

    plans = {name: read_plan(name) for name in list_plans()}
    width = max(len(name) for name in plans)
    for name, plan in plans.items():
        typer.echo(f"{name:<{width}}  {plan.title}")


def _resolved(
    name: str,
    output: Path,
    data: list[str] | None,
    generators: list[str] | None,
    changes: list[str] | None,
    *,
    quiet: bool = True,
    work: Path | None = None,
    to_run: bool = False,
) -> "tuple[Plan, Study, BenchFolder]":
    from dismix.bench.folder import BenchFolder
    from dismix.bench.plan import change_plan, read_plan
    from dismix.bench.resolve import resolve
    from dismix.errors import DisMixError
    from dismix.progress import bar

    plan = change_plan(read_plan(name), pairs(changes, "--set"))
    folder = BenchFolder(output, work)
    with bar(quiet=quiet) as progress:
        study = resolve(
            plan, folder, pairs(data, "--data"), pairs(generators, "--generator"), progress,
            keep=to_run,
        )  # fmt: skip
    if not study.runs:
        wanted = ", ".join(study.absent) or "no data set is named"
        raise DisMixError(
            f"has no data to run on ({wanted})",
            file=plan.path,
            cure="add --data NAME=MANIFEST; any name and any manifest do",
        )
    return plan, study, folder


@app.command()
def plan(
    name: Name,
    output: Folder = BENCH,
    data: DataOption = None,
    generator: Generators = None,
    changes: Changes = None,
    json_out: Annotated[
        bool, typer.Option("--json", help="Print the plan itself as JSON, and nothing else.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """List a plan's runs, which of them exist already, and what the rest may cost."""
    import json
    from collections import Counter

    from dismix.bench.plan import change_plan, read_plan

    if json_out:
        changed = change_plan(read_plan(name), pairs(changes, "--set"))
        typer.echo(json.dumps(changed.to_dict(), indent=2))
        return
    # Below, since a plan alone needs none of it: torch takes seconds to load.
    import torch

    from dismix.bench.durations import basis, cost_here, expected_seconds, in_words
    from dismix.bench.generator_specs import from_nothing
    from dismix.bench.status import run_state

    chosen, study, folder = _resolved(name, output, data, generator, changes, quiet=quiet)
    states = {run.id: run_state(run, folder) for run in study.runs}
    for run in study.runs:
        typer.echo(f"{run.id}  {states[run.id]:<8} {run.label}")
    missing = [run for run in study.runs if states[run.id] == "missing"]
    stopped = Counter(run.blocked for run in study.runs if states[run.id] == "blocked")
    for reason, count in stopped.items():
        typer.echo(f"{count} blocked: {reason}")
    if study.absent:
        typer.echo(f"not given: {', '.join(study.absent)} (--data NAME=MANIFEST)")
    for line in from_nothing(study.generators.values()):
        typer.echo(line)
    gpu = torch.cuda.is_available()
    cost = cost_here(study, chosen.cost, gpu=gpu)
    seconds, build = expected_seconds(study, folder, cost, missing)
    where, note = basis(study, folder, cost, missing, gpu=gpu)
    typer.echo(
        f"{study.title or study.plan}: {len(study.runs)} runs, {len(missing)} to run, about "
        f"{in_words(seconds)} {where}, and {in_words(build)} for "
        f"{len(study.generators)} generators{note}"
    )


@app.command()
def run(
    name: Name,
    output: Folder = BENCH,
    data: DataOption = None,
    generator: Generators = None,
    changes: Changes = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run again what failed before.")
    ] = False,
    engine: Annotated[
        EngineName | None, typer.Option(help="in_process, processes (--jobs N) or ray.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Runs at once.", min=1)] = 1,
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster; a local one is started if absent.")
    ] = None,
    cpus: Annotated[
        float | None, typer.Option(help="Cores of a run, for Ray; 1 if absent.", min=0)
    ] = None,
    gpus: Annotated[
        float | None, typer.Option(help="GPUs of a run, for Ray; 0 if absent.", min=0)
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="Start nothing that would probably end later than this.", min=0),
    ] = None,
    work: Annotated[
        Path | None, typer.Option(help="Folder of runs in flight, such as a memory disk.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the trained graders.")] = False,
    cpu: Cpu = False,
    quiet: Quiet = False,
) -> None:
    """Run what is missing; finished runs are never repeated, a kill loses one run at most."""
    import torch

    from dismix.bench.durations import cost_here
    from dismix.bench.engines import make_engine
    from dismix.bench.runner import run_study
    from dismix.errors import DisMixError
    from dismix.progress import bar

    for_ray = {"address": address, "cpus": cpus, "gpus": gpus}
    options = {name: value for name, value in for_ray.items() if value is not None}
    if options and engine is not EngineName.ray:
        raise DisMixError(
            "says nothing to other engines than Ray", column=f"--{next(iter(options))}",
            cure="add --engine ray, or leave it out",
        )  # fmt: skip
    chosen_engine = make_engine(None if engine is None else engine.value, jobs=jobs, **options)
    chosen, study, folder = _resolved(
        name, output, data, generator, changes, quiet=quiet, work=work, to_run=True
    )
    # As `plan` and `status` reckon.
    cost = cost_here(study, chosen.cost, gpu=torch.cuda.is_available() and not cpu)
    with bar(quiet=quiet) as progress:
        found = run_study(
            study, folder, chosen_engine, retry_failed=retry_failed, minutes=minutes, cpu=cpu,
            keep=keep, cost=cost, progress=progress,
        )  # fmt: skip
    for line in found.errors:
        typer.echo(f"failed {line}", err=True)
    typer.echo(f"{found} -> {output / 'records'}")
    if found.failed:
        raise typer.Exit(1)


@app.command()
def status(
    name: Name,
    output: Folder = BENCH,
    data: DataOption = None,
    generator: Generators = None,
    changes: Changes = None,
    json_out: AsJson = False,
) -> None:
    """Show how many runs are done, failed and missing, by factor, and the time left."""
    import json

    import torch

    from dismix.bench.durations import cost_here
    from dismix.bench.status import status_text, study_status

    chosen, study, folder = _resolved(name, output, data, generator, changes)
    cost = cost_here(study, chosen.cost, gpu=torch.cuda.is_available())
    found = study_status(study, folder, cost)
    typer.echo(json.dumps(found, indent=2) if json_out else status_text(found))


@app.command()
def report(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A plan, for a report of its runs alone, or a folder of records; all runs of "
            "--output if absent.",
        ),
    ] = None,
    output: Folder = BENCH,
    to: Annotated[
        Path | None,
        typer.Option(help="Folder of the report's files; beside the records if absent."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write the report: tables in the paper's layout, statistics and figures."""
    from dismix.bench.report import write_report
    from dismix.progress import bar

    folder, plan = _place(name, output)
    with bar(quiet=quiet) as progress:
        path = write_report(folder, to, plan=plan, progress=progress)
    typer.echo(str(path))


def _place(name: str | None, output: Path) -> tuple[Path, str | None]:
    """Return the benchmark's folder, and the plan that is meant, if any."""
    from dismix.bench.plan import list_plans, plan_name
    from dismix.errors import DisMixError

    if name is None:
        return output, None
    folder, plan = Path(name), plan_name(name)
    # A folder of any kind may be called as a plan is, such as that of `dismix demo`.
    planned = plan in list_plans() or (output / "plans" / f"{plan}.json").is_file()
    asked = output not in (BENCH, folder)
    if asked and planned:
        return output, plan
    if any((folder / "records").glob("*.json")) or (folder.is_dir() and not planned):
        if asked:
            raise DisMixError(
                f"'{name}' is a folder of records, and {output} would be another one",
                column="--output",
                cure="leave one of them out; --to says where files are written",
            )
        return folder, None
    return output, plan


@app.command()
def figures(
    output: Folder = BENCH,
    weights: Annotated[
        str, typer.Option(help="VGG16's weight file; searched in the weight folders if absent.")
    ] = "auto",
    per_rank: Annotated[int, typer.Option(help="Training images of each rank.", min=2)] = 40,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Draw the figures that need images: features of mixes, the two codes, samples.

    Needs the data and generators of the runs; the report shows what was drawn.
    """
    from dismix.bench.figures import draw_study_figures
    from dismix.progress import bar

    with bar(quiet=quiet) as progress:
        made = draw_study_figures(
            output, weights=weights, per_rank=per_rank, device=device,
            progress=progress,
        )  # fmt: skip
    for path in made:
        typer.echo(str(path))
