"""Outputs that would destroy what they are made from."""

from pathlib import Path

from dismix.errors import DisMixError


def refuse_own_source(output: str | Path, source: Path | None, what: str) -> None:
    """Raise where an output is the very file it is made from, also by another name or a link.

    Args:
        output: File to be written.
        source: File that was read; None where there was none.
        what: What that file is, for the message.
    """
    output = Path(output)
    if source is not None and output.exists() and source.exists() and output.samefile(source):
        raise DisMixError(f"is {what}", file=output, cure="name another file")
