"""What the small study shows, in words that follow from its numbers."""

from dataclasses import dataclass
from typing import Literal

from dismix.bench.report_data import Key, grader_order
from dismix.bench.report_study import Study, grader_name, mixer_name
from dismix.bench.statistics import Interval, bootstrap, mean_sd

OURS, NONE = "dismix", "none"
MIXERS = (NONE, "mixup", OURS)
Outcome = Literal["better", "worse", "open"]
_DECIDED = {"better": "better", "worse": "worse", "open": "not decided"}


@dataclass(frozen=True)
class Line:
    """A grader with a mixer.

    Attributes:
        grader: Key.
        mixer: Key.
        accuracy: Of each seed.
        mae: Of each seed, in ranks.
        ids: Records, a seed each.
        seconds: Mean of a run, its generator not counted.
        images: Seen in a run.
    """

    grader: str
    mixer: str
    accuracy: tuple[float, ...]
    mae: tuple[float, ...]
    ids: tuple[str, ...]
    seconds: float
    images: int


@dataclass(frozen=True)
class Duel:
    """DisMix against another on the same test images.

    Attributes:
        grader: Key.
        rival: Key of the mixer.
        gain: In accuracy, with a 95 % interval over test images.
        seeds: Gain with each seed.
    """

    grader: str
    rival: str
    gain: Interval
    seeds: tuple[float, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """Decided only where the interval and all seeds agree: it knows nothing of seeds."""
        if self.gain.low > 0 and all(gain > 0 for gain in self.seeds):
            return "better"
        worse = self.gain.high < 0 and all(gain < 0 for gain in self.seeds)
        return "worse" if worse else "open"

    def __str__(self) -> str:
        low, high = (_signed(100 * value) for value in (self.gain.low, self.gain.high))
        gain = _signed(100 * self.gain.mean)
        seeds = ", ".join(_signed(100 * value) for value in self.seeds)
        return (
            f"{grader_name(self.grader)} against {_rival(self.rival)}: {gain} points of accuracy,"
            f" 95 % of resampled test sets {low} to {high}"
            + (f"; by seed {seeds}" if seeds else "")
            + f": {_DECIDED[self.outcome]}."
        )


@dataclass(frozen=True)
class Verdict:
    """Numbers and what follows from them.

    Attributes:
        lines: By grader and mixer.
        duels: By grader and rival.
        headline: One sentence.
    """

    lines: tuple[Line, ...]
    duels: tuple[Duel, ...]
    headline: str


def judge(study: Study) -> Verdict:
    """Return the verdict on a study of one data set."""
    lines, duels = [], []
    data = study.data()[0]
    for grader in grader_order({key.grader for key in study.groups}):
        for mixer in MIXERS:
            found = study.groups.get(study.key(data, grader, mixer), [])
            if found:
                lines.append(_line(study, study.key(data, grader, mixer)))
        for rival in (NONE, "mixup"):
            ours, theirs = study.key(data, grader, OURS), study.key(data, grader, rival)
            gains = study.image_gains(ours, theirs, "accuracy")
            if gains is not None:
                seeds = study.seed_gains(ours, theirs, "accuracy", higher=True)
                duels.append(Duel(grader, rival, bootstrap(gains), tuple(seeds.tolist())))
    return Verdict(tuple(lines), tuple(duels), headline(duels))


def _line(study: Study, key: Key) -> Line:
    records = study.groups[key]
    seconds, _ = mean_sd([record.number("wall_s") or 0.0 for record in records])
    return Line(
        key.grader, key.mixer, tuple(study.values(key, "accuracy")),
        tuple(study.values(key, "mae")), tuple(record.id for record in records), seconds,
        int(records[0].number("images_seen") or 0),
    )  # fmt: skip


def headline(duels: list[Duel]) -> str:
    """Return the verdict in a sentence a rival.

    Example:
        >>> gain = Interval(0.05, 0.01, 0.09)
        >>> headline([Duel("ce", "none", gain)])
        'Here DisMix grades better than no mixing with every grader.'
    """
    told = []
    for rival in dict.fromkeys(duel.rival for duel in duels):
        outcomes = [duel.outcome for duel in duels if duel.rival == rival]
        told.append(f"Here DisMix {_words(outcomes)}".replace("RIVAL", _rival(rival)))
    return " ".join(told) or "DisMix was not run beside another."


def _words(outcomes: list[Outcome]) -> str:
    better, worse, total = outcomes.count("better"), outcomes.count("worse"), len(outcomes)
    if better == total:
        return "grades better than RIVAL with every grader."
    if worse == total:
        return "grades worse than RIVAL with every grader."
    if not better and not worse:
        return (
            "and RIVAL cannot be told apart: no difference holds for all seeds and test pictures."
        )
    parts = [f"better than RIVAL with {better}"] * bool(better)
    parts += [f"worse than RIVAL with {worse}"] * bool(worse)
    left = total - better - worse
    parts += [f"not to be told from it with {left}"] * bool(left)
    return f"is {', '.join(parts)} of {total} graders."


def _rival(name: str) -> str:
    return "no mixing" if name == NONE else mixer_name(name)


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")
