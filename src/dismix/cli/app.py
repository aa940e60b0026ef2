"""The tree of commands."""

from typing import Annotated

import typer

import dismix
from dismix.cli import annotators, bench, data, demo, doctor, explore, generator, grader, mix, study

app = typer.Typer(
    name="dismix",
    help="Order-aware mixup for graded medical images: mix severity and appearance separately.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dismix {dismix.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.add_typer(data.app, name="data")
app.add_typer(generator.app, name="generator")
app.add_typer(grader.app, name="grader")
app.add_typer(mix.app, name="mix")
app.add_typer(bench.app, name="bench")
data.app.add_typer(annotators.app, name="annotators")
app.command()(doctor.doctor)
app.command()(demo.demo)
app.command()(explore.explore)
app.command()(study.study)


def groups_of(command: str, within: typer.Typer = app, place: str = "dismix") -> list[str]:
    """Return where a command is found that was asked for without its group.

    Args:
        command: As it was typed.
        within: Where to look, groups below it included.
        place: How that is called.

    Example:
        >>> groups_of("encode"), groups_of("agreement"), groups_of("demo")
        (['dismix mix encode'], ['dismix data annotators agreement'], [])
    """
    found = []
    for group in within.registered_groups:
        inner, name = group.typer_instance, f"{place} {group.name}"
        if inner is None:
            continue
        names = [m.name or getattr(m.callback, "__name__", "") for m in inner.registered_commands]
        names += [below.name or "" for below in inner.registered_groups]
        found += [f"{name} {command}"] if command in names else []
        found += groups_of(command, inner, name)
    return found
