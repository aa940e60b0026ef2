"""Options that several commands share."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

ManifestPath = Annotated[
    Path, typer.Argument(help="A manifest (CSV or Parquet), or a folder that holds manifest.csv.")
]
Output = Annotated[Path, typer.Option("-o", "--output", help="Where to write.")]


def manifest_file(output: Path) -> Path:
    """Return the file to write: a name without an ending is a folder, as it is when read.

    Example:
        >>> manifest_file(Path("koa")).as_posix(), manifest_file(Path("koa.csv")).as_posix()
        ('koa/manifest.csv', 'koa.csv')
    """
    return output if output.suffix else output / "manifest.csv"


OutputManifest = Annotated[
    Path,
    typer.Option(
        "-o",
        "--output",
        help="File to write (.csv, .tsv, .parquet), or a folder for manifest.csv.",
        callback=manifest_file,
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of all random choices.", min=0)]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress bar.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def usable_device(device: str) -> str:
    """Return a device that is there, or say that it is not; "auto" is a GPU if there is one."""
    if device == "cpu":
        return device
    import torch

    from dismix.errors import DisMixError

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise DisMixError(
            f"there is no device '{device}' here", column="--device",
            cure="leave it out; `dismix doctor` lists what there is",
        ) from None  # fmt: skip
    return device


Device = Annotated[
    str,
    typer.Option(
        help="cpu, cuda or cuda:1; auto is a GPU if there is one.", callback=usable_device
    ),
]


Cpu = Annotated[bool, typer.Option("--cpu", help="Do not use a GPU.")]


def one_of_many() -> bool:
    """Return whether this is a process beside the first, which speaks for all."""
    return int(os.environ.get("RANK", "0")) > 0


class OnError(StrEnum):
    """What to do with a file that cannot be read."""

    stop = "stop"
    skip = "skip"


OnErrorOption = Annotated[
    OnError, typer.Option(help="A file that cannot be read: stop, or skip and list it.")
]


def report_skipped(lines: list[str]) -> None:
    """Print what was skipped to stderr, a line a file."""
    for line in lines:
        typer.echo(f"skipped: {line}", err=True)


def pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    """Return what NAME=VALUE texts of an option say, each name once.

    Args:
        texts: As given, None where the option was not.
        option: Its name, for errors.

    Example:
        >>> pairs(["epochs=3", "mixers.dismix.detail = 1"], "--set")
        {'epochs': '3', 'mixers.dismix.detail': '1'}
    """
    from dismix.errors import DisMixError

    found: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not name or not equals:
            raise DisMixError(
                f"'{text}' lacks a name or a value", column=option, cure="write NAME=VALUE"
            )
        if name in found:
            raise DisMixError(
                f"'{name}' is given twice", column=option,
                cure="give it once; several values are written A,B,C",
            )  # fmt: skip
        found[name] = value
    return found


def merged(texts: list[str] | None, given: dict[str, Any], option: str = "--set") -> dict[str, Any]:
    """Return what NAME=VALUE texts say with what options of their own say; each name once.

    Args:
        texts: As given, None where the option was not.
        given: Values of options that are called as the settings are; None where one was not given.
        option: Name of the option that takes the texts, for errors.

    Example:
        >>> merged(["lr=0.1"], {"epochs": 3, "size": None})
        {'lr': '0.1', 'epochs': 3}
    """
    from dismix.errors import DisMixError

    found: dict[str, Any] = {**pairs(texts, option)}
    present = {name: value for name, value in given.items() if value is not None}
    for name in found.keys() & present.keys():
        raise DisMixError(
            f"'{name}' is given by --{name.replace('_', '-')} too", column=option,
            cure="give it once",
        )  # fmt: skip
    return found | present


def check_output(output: Path | None, *endings: str) -> None:
    """Refuse, before the work, a file to write that is a folder or promises another format."""
    from dismix.data.overwriting import refuse_ending
    from dismix.errors import DisMixError

    if output is None:
        return
    if output.is_dir():
        raise DisMixError("is a folder", file=output, cure=f"name a file, {endings[0]}")
    refuse_ending(output, *endings)
