"""Outputs that would destroy what they are made from, or not be what their name says."""

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


def refuse_ending(output: str | Path, *endings: str) -> None:
    """Raise where a file's ending promises a format that is not written; none promises nothing.

    Args:
        output: File to be written.
        endings: Those that work, in small letters.

    Example:
        >>> refuse_ending("a.CSV", ".csv", ".json"), refuse_ending("a", ".csv")
        (None, None)
    """
    suffix = Path(output).suffix
    if suffix and suffix.lower() not in endings:
        listed = " or ".join([", ".join(endings[:-1]), endings[-1]] if endings[1:] else endings)
        raise DisMixError(f"cannot write '{suffix}' files", file=output, cure=f"end it {listed}")
