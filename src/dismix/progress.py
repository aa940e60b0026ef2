"""Progress of long work: a plain callback in the library, a bar on the command line."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]
"""Called as ``progress(stage, done, total)``, often; must be quick.

Text behind " | " in the stage may change from call to call: losses, rates.
"""


def steps_of(progress: Progress | None, stage: str, total: int) -> Callable[[], None]:
    """Return what is to be called after each of some steps of a stage.

    Args:
        progress: Told of every step, or None.
        stage: Its name.
        total: Number of steps.

    Example:
        >>> step = steps_of(lambda *told: print(told), "report", 2)
        >>> step()
        ('report', 1, 2)
    """
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(stage, done, total)

    return step


@contextmanager
def bar(*, quiet: bool = False) -> Iterator[Progress]:
    """Yield a callback that draws one bar a stage on stderr.

    Args:
        quiet: Draw nothing.

    Example:
        >>> with bar(quiet=True) as progress:
        ...     progress("reading images", 1, 10)
    """
    if quiet:
        yield lambda stage, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(file=sys.stderr)
    display = RichProgress(*columns, TimeRemainingColumn(), console=console)
    tasks: dict[str, TaskID] = {}

    def update(stage: str, done: int, total: int) -> None:
        # Started late, so that an error before any work leaves no empty line.
        display.start()
        key = stage.split(" | ", maxsplit=1)[0]
        if key not in tasks:
            tasks[key] = display.add_task(stage, total=total)
        display.update(tasks[key], description=stage, completed=done, total=total)

    try:
        yield update
    finally:
        if tasks:
            display.stop()
