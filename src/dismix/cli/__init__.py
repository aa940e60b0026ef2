"""The command line. Heavy imports happen inside the commands, so `--help` is quick."""

import sys
import warnings
from typing import TextIO

from dismix.cli.streams import leave_quietly, write_any_letter
from dismix.errors import DisMixError

_STOPPED = "interrupted; finished parts are kept\n"


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit code 2."""
    from dismix.cli.app import app, groups_of

    # Pillow's own limits; files over ours get an error that names them.
    warnings.filterwarnings("ignore", message="Image size .* exceeds limit")
    # Of torch, about an argument that accelerate passes.
    warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated")
    warnings.showwarning = _show_warning
    write_any_letter()
    try:
        if len(sys.argv) > 1 and (found := groups_of(sys.argv[1])):
            raise DisMixError(
                f"there is no `dismix {sys.argv[1]}`", cure="write " + " or ".join(found)
            )
        app()
    except DisMixError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    except BrokenPipeError:
        leave_quietly()
    except (MemoryError, RuntimeError) as error:
        # By name: torch's own class would have to be imported for every command.
        if type(error).__name__ not in ("OutOfMemoryError", "MemoryError"):
            raise
        sys.stderr.write(
            "error: memory is used up; try smaller batches (--set batch_size=16), a smaller --size,"
            " or a machine with more\n"
        )
        sys.exit(2)
    except OSError as error:
        place = f"{error.filename2 or error.filename}: " if error.filename else ""
        sys.stderr.write(f"error: {place}{error.strerror or error}; check the path and the disk\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write(_STOPPED)
        sys.exit(130)
    except SystemExit as leaving:
        # Typer makes an error of a reader that has gone.
        if isinstance(leaving.__context__, BrokenPipeError):
            leave_quietly()
        # And this of Ctrl+C, without a word.
        if leaving.code == 130:
            sys.stderr.write(_STOPPED)
        raise


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning as one line, without the place in our code that Python would add."""
    (file or sys.stderr).write(f"warning: {' '.join(str(message).split())}\n")
