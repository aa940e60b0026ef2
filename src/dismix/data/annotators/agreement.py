"""How far annotators agree: pairwise agreement and kappas, Fleiss, Krippendorff, bias.

All of it works on votes with gaps. A statistic that the votes do not define is NaN, and
``Agreement.notes`` says why.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dismix.data.annotators.votes import modal_rank, one_hot_votes
from dismix.errors import DisMixError

Array = NDArray[np.float64]
Level = Literal["nominal", "ordinal", "interval"]
KAPPAS: tuple[str, ...] = ("unweighted", "linear", "quadratic")
LEVELS: tuple[Level, ...] = ("nominal", "ordinal", "interval")


@dataclass(frozen=True)
class Agreement:
    """Agreement of A annotators on N images.

    Attributes:
        annotators: Ids.
        images: Images with at least one vote.
        votes: (A,) votes given by each.
        several: Images with two votes or more.
        unanimous: Share of those without disagreement.
        shared: (A, A) images that both annotators graded.
        percent: (A, A) share of those with equal votes; NaN where none is shared.
        kappa: Cohen's kappa (A, A) by weights: unweighted, linear, quadratic.
        fleiss: Fleiss' kappa.
        alpha: Krippendorff's alpha by level: nominal, ordinal, interval.
        confusion: (A, C, C) counts; rows are the reference, columns the annotator's votes.
        bias: (A,) mean of vote minus reference, in ranks: positive is severe, negative lenient.
        notes: Why some number is NaN.
        reference: What confusion and bias compare with: "others" (their majority) or "reference".
    """

    annotators: tuple[str, ...]
    images: int
    votes: NDArray[np.int64]
    several: int
    unanimous: float
    shared: NDArray[np.int64]
    percent: Array
    kappa: dict[str, Array]
    fleiss: float
    alpha: dict[str, float]
    confusion: Array
    bias: Array
    notes: tuple[str, ...]
    reference: Literal["others", "reference"] = "others"

    def mean_over_pairs(self, matrix: Array) -> float:
        """Return the mean over annotator pairs where ``matrix`` (A, A) is defined, else NaN."""
        pairs = matrix[np.triu_indices(len(matrix), 1)]
        pairs = pairs[~np.isnan(pairs)]
        return float(pairs.mean()) if len(pairs) else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON (NaN becomes None)."""
        parts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        parts["mean_percent"] = self.mean_over_pairs(self.percent)
        parts["mean_kappa"] = {w: self.mean_over_pairs(k) for w, k in self.kappa.items()}
        tidy: dict[str, Any] = _plain(parts)
        return tidy

    def __str__(self) -> str:
        percent = 100 * self.mean_over_pairs(self.percent)
        kappas = ", ".join(f"{w} {_show(self.mean_over_pairs(k))}" for w, k in self.kappa.items())
        alphas = ", ".join(f"{level} {_show(value)}" for level, value in self.alpha.items())
        lines = [
            f"{len(self.annotators)} annotators, {self.images} images, "
            f"{self.several} with two or more votes{self._unanimous()}",
            f"percent agreement (mean of pairs)  {_show(percent, 1)}",
            f"Cohen's kappa (mean of pairs)      {kappas}",
            f"Fleiss' kappa                      {_show(self.fleiss)}",
            f"Krippendorff's alpha               {alphas}",
            "",
            f"{'annotator':<16}{'votes':>7}{f'agrees with {self.reference}':>24}{'bias':>8}",
        ]
        for a, name in enumerate(self.annotators):
            total = self.confusion[a].sum()
            right = 100 * np.trace(self.confusion[a]) / total if total else float("nan")
            lines.append(
                f"{name:<16}{self.votes[a]:>7}{_show(right, 1):>22} %{_show(self.bias[a], 2):>8}"
            )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def _unanimous(self) -> str:
        return f": {_show(100 * self.unanimous, 1)} % of these unanimous" if self.several else ""


def measure_agreement(
    votes: ArrayLike,
    num_ranks: int,
    *,
    annotators: Sequence[str] | None = None,
    reference: ArrayLike | None = None,
) -> Agreement:
    """Compute all statistics.

    Args:
        votes: (N, A), NaN = gap. Images without any vote are left out.
        num_ranks: C.
        annotators: A names; 1, 2, ... by default.
        reference: (N,) ranks to compare each annotator with, such as a consensus. By default
            an annotator is compared with the others alone: their majority for the confusion,
            their mean vote for the bias, on images that somebody else graded too.

    Example:
        >>> result = measure_agreement([[0, 0, 1], [1, 1, 2], [2, 2, 2]], 3)
        >>> round(result.alpha["ordinal"], 3), result.bias.round(2)
        (0.687, array([-0.33, -0.33,  0.67]))
    """
    array = np.asarray(votes, dtype=np.float64)
    hot = one_hot_votes(array, num_ranks)
    names = tuple(annotators or [str(a + 1) for a in range(hot.shape[1])])
    if len(names) != hot.shape[1]:
        raise DisMixError(f"{len(names)} names for {hot.shape[1]} annotators")
    counts = hot.sum(axis=1)
    shared, percent, kappa, notes = _pairs(array, num_ranks, names)
    confusion, bias = _against_reference(hot, reference)
    fleiss = fleiss_kappa(counts)
    alpha = {level: krippendorff_alpha(counts, level=level) for level in LEVELS}
    several = counts.sum(axis=1) >= 2
    if np.isnan(fleiss):
        reason = "no image has two votes" if not several.any() else "all votes are equal"
        notes.append(f"Fleiss' kappa and Krippendorff's alpha are undefined: {reason}")
    unanimous = (counts[several] > 0).sum(axis=1) == 1
    return Agreement(
        annotators=names,
        images=int(counts.any(axis=1).sum()),
        votes=hot.sum(axis=(0, 2)).astype(np.int64),
        several=int(several.sum()),
        unanimous=float(unanimous.mean()) if len(unanimous) else float("nan"),
        shared=shared,
        percent=percent,
        kappa=kappa,
        fleiss=fleiss,
        alpha={str(level): value for level, value in alpha.items()},
        confusion=confusion,
        bias=bias,
        notes=tuple(notes),
        reference="others" if reference is None else "reference",
    )


def fleiss_kappa(counts: ArrayLike) -> float:
    """Return Fleiss' kappa, also for images with different numbers of votes.

    With n_i votes on image i, n_ic of them for rank c, over the images with n_i >= 2:
    kappa = (P - E) / (1 - E), P = mean_i sum_c n_ic (n_ic - 1) / (n_i (n_i - 1)) and
    E = sum_c (mean_i n_ic / n_i)^2. With equal n_i it is Fleiss' own; with others it is Gwet's form
    (Handbook of Inter-Rater Reliability), but that images of a single vote, which say nothing of
    agreement, are left out of E as well.

    Args:
        counts: (N, C) votes for each rank.

    Returns:
        Kappa, or NaN when no image has two votes or all votes are equal.

    Example:
        >>> round(fleiss_kappa([[3, 0], [0, 3], [2, 1], [3, 0]]), 3)
        0.625
    """
    n = np.asarray(counts, dtype=np.float64)
    n = n[n.sum(axis=1) >= 2]
    if not len(n) or (n > 0).any(axis=0).sum() < 2:
        return float("nan")
    total = n.sum(axis=1)
    observed = ((n * (n - 1)).sum(axis=1) / (total * (total - 1))).mean()
    expected = ((n / total[:, None]).mean(axis=0) ** 2).sum()
    return float((observed - expected) / (1 - expected))


def krippendorff_alpha(counts: ArrayLike, *, level: Level = "ordinal") -> float:
    """Return Krippendorff's alpha from the coincidence matrix.

    o_ck = sum_i n_ic (n_ik - [c = k]) / (n_i - 1) over images with n_i >= 2, n_c = sum_k o_ck,
    n = sum_c n_c, alpha = 1 - (n - 1) sum o_ck d_ck / sum n_c n_k d_ck. The squared distance
    d_ck is [c != k] (nominal), (c - k)^2 (interval) or, ordinal, the square of the votes that
    lie between: sum_{g=c..k} n_g - (n_c + n_k) / 2.

    Args:
        counts: (N, C) votes for each rank.
        level: How ranks are compared.

    Returns:
        Alpha, or NaN when no image has two votes or all votes are equal.

    Example:
        >>> round(krippendorff_alpha([[2, 0, 0], [1, 1, 0], [0, 0, 2], [0, 1, 1]]), 3)
        0.708
    """
    n = np.asarray(counts, dtype=np.float64)
    n = n[n.sum(axis=1) >= 2]
    if not len(n) or (n > 0).any(axis=0).sum() < 2:
        return float("nan")
    weighted = n / (n.sum(axis=1, keepdims=True) - 1)
    coincidence = weighted.T @ n - np.diag(weighted.sum(axis=0))
    marginal = coincidence.sum(axis=1)
    distance = _distance(marginal, level)
    observed = (coincidence * distance).sum()
    expected = (np.outer(marginal, marginal) * distance).sum()
    return float(1 - (marginal.sum() - 1) * observed / expected)


def _distance(marginal: Array, level: Level) -> Array:
    ranks = np.arange(len(marginal))
    if level == "nominal":
        unequal: Array = (ranks[:, None] != ranks).astype(np.float64)
        return unequal
    if level == "interval":
        return (ranks[:, None] - ranks).astype(np.float64) ** 2
    # Votes up to the middle of a rank: differences of these are Krippendorff's ordinal metric.
    middle = np.cumsum(marginal) - marginal / 2
    between: Array = (middle[:, None] - middle) ** 2
    return between


def _pairs(
    votes: Array, num_ranks: int, names: tuple[str, ...]
) -> tuple[NDArray[np.int64], Array, dict[str, Array], list[str]]:
    """Shared images, percent agreement and Cohen's kappas of each annotator pair."""
    from sklearn.metrics import cohen_kappa_score

    voted = ~np.isnan(votes)
    shared = voted.T.astype(np.int64) @ voted.astype(np.int64)
    percent = np.full(shared.shape, np.nan)
    kappa = {weights: np.full(shared.shape, np.nan) for weights in KAPPAS}
    apart, constant = [], []
    for a, b in combinations(range(len(names)), 2):
        both = voted[:, a] & voted[:, b]
        x, y = votes[both, a].astype(int), votes[both, b].astype(int)
        if not len(x):
            apart.append(f"{names[a]}-{names[b]}")
            continue
        percent[a, b] = percent[b, a] = (x == y).mean()
        # Chance agreement is certain here: asking for the kappa would divide 0 by 0.
        if len(np.union1d(x, y)) == 1:
            constant.append(f"{names[a]}-{names[b]}")
            continue
        for weights, matrix in kappa.items():
            value = cohen_kappa_score(
                x,
                y,
                labels=np.arange(num_ranks),
                weights=None if weights == "unweighted" else weights,
            )
            matrix[a, b] = matrix[b, a] = value
    notes = []
    if len(names) < 2:
        notes.append("a single annotator: no pair to compare")
    if apart:
        notes.append(f"no image in common, nothing to compare: {_list(apart)}")
    if constant:
        notes.append(f"only one rank used on the shared images, kappa undefined: {_list(constant)}")
    return shared, percent, kappa, notes


def _against_reference(hot: Array, reference: ArrayLike | None) -> tuple[Array, Array]:
    """Confusion counts (A, C, C) and mean signed deviation (A,) from the reference."""
    images, annotators, ranks = hot.shape
    scale = np.arange(ranks)
    if reference is None:
        others = hot.sum(axis=1, keepdims=True) - hot
        known = others.sum(axis=2) > 0
        shares = others / np.maximum(others.sum(axis=2, keepdims=True), 1)
        mean = shares @ scale
        rank = modal_rank(shares.reshape(-1, ranks)).reshape(images, annotators)
    else:
        given = np.asarray(reference, dtype=np.float64)
        one_hot_votes(given[:, None], ranks)
        mean = np.repeat(given[:, None], annotators, axis=1)
        known = ~np.isnan(mean)
        rank = np.where(known, mean, 0).astype(np.int64)
        mean = np.where(known, mean, 0.0)
    counted = hot * known[:, :, None]
    confusion = np.einsum("nac,nak->ack", np.eye(ranks)[rank], counted)
    total = counted.sum(axis=(0, 2))
    deviation = (counted @ scale - mean * counted.sum(axis=2)).sum(axis=0)
    bias = np.divide(deviation, total, out=np.full(annotators, np.nan), where=total > 0)
    return confusion, bias


def _list(items: list[str], most: int = 5) -> str:
    more = f" and {len(items) - most} more pairs" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def _show(value: float, digits: int = 3) -> str:
    return "n/a" if np.isnan(value) else f"{value:.{digits}f}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return None if np.isnan(value) else value
    return value
