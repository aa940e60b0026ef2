"""Judging a grader in training on the validation split."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from dismix.generator.images import SplitImages
from dismix.graders.averaging import AveragedState
from dismix.graders.base import Grader
from dismix.graders.cut_points import choose_cuts, fit_cuts, rule_of
from dismix.graders.evaluation import fit_reference, grade_split, score
from dismix.graders.grades import Grades, decided
from dismix.graders.saving import plain_state
from dismix.graders.selection import Selector
from dismix.graders.state import Training
from dismix.laws import majority_rank


def validate(
    training: Training, average: AveragedState, train: SplitImages, val: SplitImages
) -> dict[str, float]:
    """Judge raw and averaged weights as the rules ask, and remember the best of each."""
    found: dict[str, float] = {}
    for averaged in (False, True):
        rules = {r: s for r, s in training.selectors.items() if s.averaged == averaged}
        if not rules:
            continue
        if averaged:
            with average.applied():
                metrics = _judge(training, rules, train, val)
        else:
            metrics = _judge(training, rules, train, val)
        prefix = "val_averaged_" if averaged else "val_"
        names = ("accuracy", "mae", "mae_expected", "qwk", "loss")
        # Without an undefined kappa: no number but a finite one is a healthy training's.
        found |= {prefix + n: float(metrics[n]) for n in names if metrics[n] is not None}
    return found


def _judge(
    training: Training, rules: dict[str, Selector], train: SplitImages, val: SplitImages
) -> dict[str, Any]:
    grader = training.grader
    fit_reference(grader, train, val, weights=training.sample_weights)
    grades = grade_split(grader, val)
    asks = rule_of(grader.config) == "auto"
    if grader.by_rank and (asks or training.settings.cuts == "fitted"):
        grader.cuts.copy_(_cuts(grader, grades, val.target.hard))
        label = decided(grades.probabilities, grades.rank, grader.cuts.to(grades.rank.device))
        grades = replace(grades, label=label)
    metrics = score(grades, val)
    better = [rule for rule, s in rules.items() if s.update(metrics, training.epoch)]
    if better:
        # Kept where it is: copying to the CPU at every improvement would stall a GPU.
        state = _snapshot(grader)
        training.best |= dict.fromkeys(better, state)
    return metrics


def _cuts(grader: Grader, grades: Grades, known: Tensor) -> Tensor:
    """Return the cut points that suit images of known grades (N,), NaN where the mode does."""
    if rule_of(grader.config) == "auto":
        mode = majority_rank(grades.probabilities)
        return choose_cuts(grades.rank, mode, known, grader.num_ranks)
    return fit_cuts(grades.rank, known, grader.num_ranks)


def _snapshot(grader: Grader) -> dict[str, Tensor]:
    return {k: v.clone() for k, v in plain_state(grader, cpu=False).items()}
