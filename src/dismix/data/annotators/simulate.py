"""Simulated annotators: five copies of the true grade, flipped between two neighbour ranks.

The paper (experimental setup) flips 60 % of grade 1 to 2 and 20 % of grade 2 to 1, after CLOC,
and calls it 30 % grading variability; 70/40 and 90/60 are its 50 % and 70 %. It leaves open
whether annotators flip together, so there are two modes, and every result says which:

* ``per_vote`` (default): each annotator flips each image on its own. At 0.6 the majority of
  five is wrong for 68 % of grade-1 images: the votes say that most of them are grade 2.
* ``per_image``: a share f of the grade's images is ambiguous and annotators split on those
  only; all other images are unanimous and right.

Simulated votes become the target of training and of validation, as a real user's votes would;
the true grade stays in the column ``grade`` and scores test images only.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dismix.data.annotators.variability import VariabilityReport, measure_variability
from dismix.data.draws import image_keys, keyed_uniforms
from dismix.data.laws import law_columns
from dismix.data.rank_names import rank_numerals
from dismix.errors import DisMixError
from dismix.registry import near_names

if TYPE_CHECKING:
    from dismix.data.manifest import Manifest

Mode = Literal["per_vote", "per_image"]

PRESETS: dict[str, tuple[float, float]] = {
    "clean": (0.0, 0.0),
    "30": (0.6, 0.2),
    "50": (0.7, 0.4),
    "70": (0.9, 0.6),
}
"""The paper's names for its grading variability, in per cent: (flip_up, flip_down)."""


def simulate_votes(
    grades: ArrayLike,
    *,
    annotators: int = 5,
    flip_up: float = 0.6,
    flip_down: float = 0.2,
    mode: Mode = "per_vote",
    p_split: float = 0.5,
    lower: int = 1,
    upper: int = 2,
    seed: int,
    keys: Sequence[str] | None = None,
) -> NDArray[np.float64]:
    """Make votes from true grades.

    Args:
        grades: (N,) true grades.
        annotators: A, the number of annotators.
        flip_up: Flip probability (``per_vote``) or share of ambiguous images (``per_image``)
            of grade ``lower``, whose flips go to ``upper``.
        flip_down: The same for grade ``upper``, whose flips go to ``lower``.
        mode: ``per_vote`` or ``per_image``, see the module's text.
        p_split: Only for ``per_image``: probability that an annotator votes the other grade on
            an ambiguous image. At 0.5 ambiguous means a toss-up; at 1.0 all annotators flip
            together, which is label noise as a single assessment has it.
        lower: The lower of the two grades that flip into each other.
        upper: The upper one.
        seed: Seed of all draws.
        keys: (N,) names of the images; a name and the seed fix the draw. Default: the row
            number, so that a row's draw depends on its place but on no other row. Only
            ``per_image`` looks at other rows: exactly floor(f*n + 0.5) of a grade's n images
            are ambiguous, those with the smallest draws, whatever their order.

    Returns:
        (N, A) votes.

    Example:
        >>> simulate_votes([0, 1, 2], annotators=3, flip_up=1, flip_down=0, seed=0)
        array([[0., 0., 0.],
               [2., 2., 2.],
               [2., 2., 2.]])
    """
    truth = np.asarray(grades, dtype=np.float64)
    _check(
        annotators=annotators,
        mode=mode,
        lower=lower,
        upper=upper,
        flip_up=flip_up,
        flip_down=flip_down,
        p_split=p_split,
    )
    names = [str(i) for i in range(len(truth))] if keys is None else list(keys)
    draws = keyed_uniforms(names, annotators + 1, seed=seed, purpose=f"votes/{mode}")
    flips = np.zeros((len(truth), annotators), dtype=bool)
    for grade, share in ((lower, flip_up), (upper, flip_down)):
        rows = np.flatnonzero(truth == grade)
        if mode == "per_image":
            # paper: "randomly flipping 60 %" may also mean 60 % of the images; an exact count
            # keeps small grades (IDRiD has 20 images of grade 1) at the stated share.
            count = int(np.floor(share * len(rows) + 0.5))
            rows = rows[np.argsort(draws[rows, 0], kind="stable")[:count]]
            share = p_split
        flips[rows] = draws[rows, 1:] < share
    other = np.where(truth == lower, upper, lower)
    return np.where(flips, other[:, None], truth[:, None]).astype(np.float64)


def simulate_annotators(
    manifest: "Manifest",
    preset: str = "30",
    *,
    seed: int,
    annotators: int = 5,
    mode: Mode = "per_vote",
    flip_up: float | None = None,
    flip_down: float | None = None,
    lower: int = 1,
    upper: int = 2,
    p_split: float = 0.5,
) -> "tuple[Manifest, VariabilityReport]":
    """Give the training and validation rows of a manifest simulated votes.

    From then on the target of training **and validation** comes from these votes. The true
    grade stays in the column ``grade``; test rows get no votes and are scored by it. An
    image's votes depend on its name and the seed (and, in ``per_image``, on which other images
    of its grade exist). Simulate before splitting: ``split_validation`` then stratifies by the
    votes, as a user without true grades must.

    Args:
        manifest: A manifest without annotators whose training and validation rows have grades.
        preset: One of ``PRESETS``: the paper's 30, 50 or 70 per cent, or ``clean``.
        seed: Seed of all draws.
        annotators: Number of annotators; columns ``annotator_1`` ... are added.
        mode: ``per_vote`` or ``per_image``.
        flip_up: Replaces the preset's share for grade ``lower``.
        flip_down: Replaces the preset's share for grade ``upper``.
        lower: Position (from 0) of the lower of the two ranks that flip into each other.
        upper: Of the upper one.
        p_split: See ``simulate_votes``.

    Returns:
        The manifest with votes, and the measured variability over its voted rows.
    """
    from dismix.data.manifest import make_manifest

    if preset not in PRESETS:
        raise DisMixError(f"unknown preset '{preset}'", cure=near_names(preset, sorted(PRESETS)))
    up, down = PRESETS[preset]
    up, down = up if flip_up is None else flip_up, down if flip_down is None else flip_down
    table, voted = manifest.table.copy(), _rows_to_vote(manifest, max(lower, upper))
    truth = manifest.grades[voted]
    votes = np.full((len(table), annotators), np.nan)
    votes[voted] = simulate_votes(
        truth,
        annotators=annotators,
        flip_up=up,
        flip_down=down,
        mode=mode,
        p_split=p_split,
        lower=lower,
        upper=upper,
        seed=seed,
        keys=[key for key, v in zip(image_keys(manifest.image_paths), voted, strict=True) if v],
    )
    for a in range(annotators):
        table[f"annotator_{a + 1}"] = votes[:, a]
    numerals = rank_numerals(manifest.meta.ranks)
    low, high = numerals[lower], numerals[upper]
    setting = (
        f"{annotators} simulated annotators, mode {mode}, {low}->{high} {up:.0%}, "
        f"{high}->{low} {down:.0%}, seed {seed}"
    )
    notes = "; ".join(part for part in (manifest.meta.notes, setting) if part)
    meta = replace(manifest.meta, notes=notes)
    result = make_manifest(table, meta, manifest.root, path=manifest.path, lines=manifest.lines)
    report = measure_variability(
        votes[voted], truth, affected=(lower, upper), setting=setting, numerals=numerals
    )
    return result, report


def _check(*, annotators: int, mode: str, lower: int, upper: int, **shares: float) -> None:
    for name, value in shares.items():
        if not 0 <= value <= 1:
            raise DisMixError(
                f"{value:g} is no probability", column=name, cure="give a number from 0 to 1"
            )
    if mode not in get_args(Mode):
        raise DisMixError(f"unknown mode '{mode}'", cure=near_names(mode, list(get_args(Mode))))
    if annotators < 1:
        raise DisMixError(f"{annotators} annotators cannot vote", cure="ask for one or more")
    if lower < 0:
        raise DisMixError(f"there is no grade {lower}", column="lower", cure="count from 0")
    if lower == upper:
        raise DisMixError(f"grade {lower} cannot flip into itself", cure="give two grades")
    if lower > upper:
        raise DisMixError(
            f"the lower of the two grades, at position {lower}, is above the upper, at {upper}",
            cure="exchange them: the shares of flips up and down differ",
        )


def _rows_to_vote(manifest: "Manifest", upper: int) -> NDArray[np.bool_]:
    """Training and validation rows; each must have a grade, and nobody may have voted yet."""
    if manifest.annotators:
        raise DisMixError(
            f"already has annotators ({', '.join(manifest.annotators)})",
            file=manifest.path,
            cure="simulate votes only where there is a single grade, or drop those columns",
        )
    if laws := law_columns(manifest.table):
        raise DisMixError(
            f"has soft labels ({laws[0]} to {laws[-1]}), which go before votes",
            file=manifest.path,
            cure="drop those columns",
        )
    if upper >= manifest.num_ranks:
        raise DisMixError(
            f"rank {upper}, counted from 0, is beyond the {manifest.num_ranks} ranks",
            file=manifest.path,
            cure=f"name two of {', '.join(manifest.meta.ranks)} with --lower and --upper",
        )
    voted: NDArray[np.bool_] = (manifest.table["split"] != "test").to_numpy(dtype=bool)
    missing = voted & np.isnan(manifest.grades)
    if missing.any():
        raise DisMixError(
            "no grade to simulate votes from",
            file=manifest.path,
            row=int(manifest.lines[missing][0]),
            column="grade",
            cure="give each training and validation row a grade",
        )
    return voted
