"""Progress of long work: a plain callback in the library, a bar on the command line."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]
"""Called as ``progress(stage, done, total)``, often; must be quick.

Text behind " | " in the stage may change from call to call: losses, rates.
"""
#: Columns that a bar keeps when a long stage shares its line, and those of time and gaps.
_BAR, _TIME = 8, 11
#: Seconds between lines in a log, where a bar is drawn only once, at the end.
LINE_EVERY = 30.0


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

    Where stderr is no terminal, such as the log of a batch job, long work leaves a line every
    half minute, and the bars stand at the end.

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

    # Not as markup: stages hold names that users chose, and these may hold brackets.
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    console = Console(file=sys.stderr)
    display = RichProgress(*columns, TimeRemainingColumn(), console=console)
    tasks: dict[str, TaskID] = {}
    watched, told = console.is_terminal or console.is_jupyter, time.monotonic()

    def update(stage: str, done: int, total: int) -> None:
        nonlocal told
        # Started late, so that an error before any work leaves no empty line.
        display.start()
        if not watched and time.monotonic() - told >= LINE_EVERY:
            told = time.monotonic()
            sys.stderr.write(f"{stage}  {done}/{total}\n")
            sys.stderr.flush()
        key = stage.split(" | ", maxsplit=1)[0]
        words = fitted(stage, total, console.width)
        if key not in tasks:
            tasks[key] = display.add_task(words, total=total)
        display.update(tasks[key], description=words, completed=done, total=total)

    try:
        yield update
    finally:
        if tasks:
            display.stop()


def fitted(stage: str, total: int, width: int) -> str:
    """Cut a stage's text so that bar, counts and time keep their place on the line.

    Args:
        stage: What is shown before the bar.
        total: Largest count.
        width: Columns of the terminal.

    Example:
        >>> fitted("training | loss 1.37 (seen 0.2x1.55)", 660, 53)
        'training | loss 1.37 (seen…'
    """
    room = width - _BAR - _TIME - 2 * len(str(total)) - 1
    return stage if len(stage) <= room else stage[: max(room - 1, 1)].rstrip() + "…"
