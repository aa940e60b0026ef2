"""One bar for the whole demo: every step has its share of the expected seconds."""

from collections.abc import Mapping

from dismix.bench.artifacts import generator_done
from dismix.bench.folder import BenchFolder
from dismix.bench.specs import Study
from dismix.progress import Progress

#: The part of a study's time that its generator takes, and the rest of its runs.
GENERATOR_SHARE = 0.45


class Steps:
    """Turns the progress of single steps into that of the whole.

    Args:
        expected: Seconds of each step, in order.
        progress: Told ("demo | what", seconds done, all seconds).

    Example:
        >>> said = []
        >>> steps = Steps({"a": 10.0, "b": 30.0}, lambda *words: said.append(words))
        >>> steps.begin("b", "training"); steps.at("b", 0.5)
        >>> said[-1]
        ('demo | training', 25, 40)
    """

    def __init__(self, expected: Mapping[str, float], progress: Progress | None) -> None:
        self.expected, self.progress, self.words = dict(expected), progress, ""
        self._most = 0

    def begin(self, step: str, words: str) -> None:
        """Start a step; those before it count as done."""
        self.words = words
        self.at(step, 0.0)

    def at(self, step: str, share: float) -> None:
        """Tell how much of a step is done."""
        names = [*self.expected]
        before = sum(self.expected[name] for name in names[: names.index(step)])
        done = round(before + min(1.0, share) * self.expected[step])
        # Never backwards: two workers tell of their own parts.
        self._most = max(self._most, done)
        if self.progress is not None:
            self.progress(f"demo | {self.words}", self._most, round(sum(self.expected.values())))

    def inner(self, step: str, words: str) -> Progress:
        """Return a callback for what a step calls; its stages share the step."""

        def tell(stage: str, done: int, total: int) -> None:
            name = stage.split(" | ", maxsplit=1)[0]
            self.words = words if name in words else f"{words}: {name}"
            self.at(step, done / max(1, total))

        return tell

    def study(self, step: str, study: Study, folder: BenchFolder) -> Progress:
        """Return a callback for a study: its runs and the training of its generator."""
        trained = all(generator_done(folder, name) is not None for name in study.generators)
        weight = 0.0 if trained else GENERATOR_SHARE
        shares = {"generator": 1.0 if trained else 0.0, "runs": 0.0}

        def tell(stage: str, done: int, total: int) -> None:
            name, _, more = stage.partition(" | ")
            if name == "benchmark":
                shares["runs"] = done / max(1, total)
                # The bar has its own time left, of everything.
                self.words = more.partition(", about ")[0]
            # What comes before (decoding, its guide) has an end of its own, and bars only go on.
            elif name == "generator training":
                shares["generator"] = done / max(1, total)
            self.at(step, weight * shares["generator"] + (1 - weight) * shares["runs"])

        return tell
