"""Who wins: one mixer against the others over settings (data set x grader x condition)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dismix.bench.statistics import DECIMALS, SignedRank, holm, signed_rank

Setting = tuple[str, ...]
Scores = Mapping[Setting, Mapping[str, float]]
"""Setting -> mixer -> mean over repeats."""


@dataclass(frozen=True)
class Pair:
    """Means of ours and of an opponent in one setting, over the repeats they are compared on.

    Attributes:
        ours: Our mean.
        theirs: The opponent's.
        repeats: Runs on folds that both have; 1 where there are no folds, whose seeds are taken
            as they are.
    """

    ours: float
    theirs: float
    repeats: int = 1


Pairs = Mapping[Setting, Mapping[str, Pair]]
"""Setting in which ours was run -> opponent -> what they are compared by."""

PER_SETTING = "best baseline of each setting"
ON_AVERAGE = "best baseline on average"


@dataclass(frozen=True)
class Duel:
    """One setting.

    Attributes:
        setting: Which.
        ours: Our mean.
        theirs: The opponent's mean.
        opponent: Who that is.
        gain: Difference, positive where ours is better.
    """

    setting: Setting
    ours: float
    theirs: float
    opponent: str
    gain: float


@dataclass(frozen=True)
class Comparison:
    """One mixer against one opponent over settings.

    Attributes:
        opponent: A mixer, `PER_SETTING`, or `ON_AVERAGE` followed by its name.
        duels: One a setting where both were run.
        test: One-sided signed-rank test of the gains, ties respected.
        p_holm: Corrected over the single baselines; None for the two strongest.
        higher: Whether more is better.
    """

    opponent: str
    duels: tuple[Duel, ...]
    test: SignedRank
    p_holm: float | None = None
    higher: bool = True

    @property
    def p_as_computed(self) -> float:
        """The test as scipy does it on differences that were never rounded."""
        sign = 1 if self.higher else -1
        raw = [sign * (duel.ours - duel.theirs) for duel in self.duels]
        return signed_rank(raw, ties="as_computed").p

    @property
    def wins(self) -> int:
        """Settings won."""
        return sum(duel.gain > 0 for duel in self.duels)

    @property
    def ties(self) -> int:
        """Settings drawn."""
        return sum(duel.gain == 0 for duel in self.duels)

    @property
    def losses(self) -> int:
        """Settings lost."""
        return sum(duel.gain < 0 for duel in self.duels)

    @property
    def mean_gain(self) -> float:
        """Mean gain over the settings."""
        return float(np.mean([duel.gain for duel in self.duels])) if self.duels else 0.0


def pairs_of(scores: Scores, ours: str) -> Pairs:
    """Return the pairs of a mixer where nothing but means is known.

    Example:
        >>> pairs_of({("a",): {"x": 3.0, "y": 1.0}, ("b",): {"y": 2.0}}, "x")
        {('a',): {'y': Pair(ours=3.0, theirs=1.0, repeats=1)}}
    """
    return {
        setting: {name: Pair(row[ours], mean) for name, mean in row.items() if name != ours}
        for setting, row in scores.items()
        if ours in row
    }


def compare(pairs: Pairs, baselines: Sequence[str], *, higher: bool) -> Comparison:
    """Compare with the best of ``baselines`` in each setting.

    With a single baseline that is simply the comparison with it. Of several, those that share
    fewer runs on folds with ours than others are not candidates: means over different test
    images cannot be compared.

    Args:
        pairs: Our means and theirs.
        baselines: Opponents; those missing in a setting are passed over there.
        higher: Whether more is better.

    Example:
        >>> table = {("a",): {"x": 3.0, "y": 1.0, "z": 2.0}, ("b",): {"x": 1.0, "y": 2.0}}
        >>> found = compare(pairs_of(table, "x"), ["y", "z"], higher=True)
        >>> found.wins, found.losses, [duel.opponent for duel in found.duels]
        (1, 1, ['z', 'y'])
    """
    sign = 1 if higher else -1
    duels = []
    for setting, row in pairs.items():
        present = {name: row[name] for name in baselines if name in row}
        if not present:
            continue
        most = max(pair.repeats for pair in present.values())
        gains = {n: _gain(pair, sign) for n, pair in present.items() if pair.repeats == most}
        best = min(gains, key=lambda name: gains[name])
        gain = float(np.round(gains[best], DECIMALS)) + 0.0
        duels.append(Duel(setting, row[best].ours, row[best].theirs, best, gain))
    name = baselines[0] if len(baselines) == 1 else PER_SETTING
    test = signed_rank([duel.gain for duel in duels])
    return Comparison(name, tuple(duels), test, higher=higher)


def _gain(pair: Pair, sign: int) -> float:
    return sign * (pair.ours - pair.theirs)


def best_on_average(pairs: Pairs, baselines: Sequence[str], *, higher: bool) -> str:
    """Return the baseline that leaves ours the least gain, over the settings that all share.

    Baselines that were run in fewer of our settings than others, or on fewer of our folds, are
    not candidates: means over different settings cannot be compared.
    """
    rows = list(pairs.values())
    covered = {n: sum(row[n].repeats for row in rows if n in row) for n in baselines}
    full = [name for name in baselines if covered[name] == max(covered.values()) > 0]
    shared = [row for row in rows if all(name in row for name in full)]
    sign = 1 if higher else -1
    if not full or not shared:
        return ""
    return min(full, key=lambda name: float(np.mean([_gain(row[name], sign) for row in shared])))


def compare_all(pairs: Pairs, baselines: Sequence[str], *, higher: bool) -> list[Comparison]:
    """Return the comparisons with the strongest in both meanings, then with each baseline.

    Holm's correction is over the single baselines. The per-setting best is a harder opponent
    than any baseline: it is chosen after seeing the results.
    """
    present = [name for name in baselines if any(name in row for row in pairs.values())]
    if not present:
        return []
    single = [compare(pairs, [name], higher=higher) for name in present]
    adjusted = holm([found.test.p for found in single])
    single = [replace(c, p_holm=p) for c, p in zip(single, adjusted, strict=True)]
    strongest = replace(compare(pairs, present, higher=higher), opponent=PER_SETTING)
    top = best_on_average(pairs, present, higher=higher)
    both = [strongest]
    for found in single:
        if found.opponent == top:
            both.append(replace(found, opponent=f"{ON_AVERAGE}: {top}", p_holm=None))
    return [*both, *single]
