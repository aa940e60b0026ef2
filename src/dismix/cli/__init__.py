"""The command line. Heavy imports happen inside the commands, so `--help` is quick."""

import os
import sys

from dismix.errors import DisMixError


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit code 2."""
    from dismix.cli.app import app

    try:
        app()
    except DisMixError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; finished parts are kept\n")
        sys.exit(130)
    except BrokenPipeError:
        # The reader (head, less) left; keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
