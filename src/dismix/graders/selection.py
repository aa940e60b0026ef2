"""Rules that choose a checkpoint on validation; test images have no say in any of them.

===========  ========  ===================================================================
rule         weights   what is best
===========  ========  ===================================================================
accuracy     raw       accuracy, ties by MAE, then by loss: the paper's
smoothed     averaged  the same of an exponential mean over validations
loss         averaged  ranked probability score against the votes
last         averaged  the last epoch, whatever validation says
===========  ========  ===================================================================

The best of many checkpoints on a few dozen images is partly a lottery; averaged weights and
a smoothed or finer score draw fewer tickets.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dismix.errors import DisMixError
from dismix.registry import near_names

RULES = ("accuracy", "smoothed", "loss", "last")
#: Share of the past in the exponential mean of "smoothed": it looks back about five validations.
MEMORY = 0.8


def check_rules(rules: Sequence[str]) -> None:
    """Raise for an unknown rule or none at all."""
    if not rules:
        raise DisMixError("no rule to select by", cure="choose one of " + ", ".join(RULES))
    for rule in rules:
        if rule not in RULES:
            raise DisMixError(f"unknown rule '{rule}'", cure=near_names(rule, [*RULES]))


class Selector:
    """Remembers the best validation under one rule.

    Args:
        rule: One of `RULES`.

    Attributes:
        epoch: Epoch of the best, -1 before any.

    Example:
        >>> selector = Selector("accuracy")
        >>> scores = [{"accuracy": 0.5, "mae": 0.7, "loss": 0.4}, {"accuracy": 0.5, "mae": 0.6,
        ...           "loss": 0.5}, {"accuracy": 0.4, "mae": 0.6, "loss": 0.1}]
        >>> [selector.update(score, epoch) for epoch, score in enumerate(scores, 1)]
        [True, True, False]
        >>> selector.epoch
        2
    """

    def __init__(self, rule: str) -> None:
        check_rules([rule])
        self.rule, self.epoch = rule, -1
        self._best: list[float] | None = None
        self._mean: list[float] | None = None

    @property
    def averaged(self) -> bool:
        """Whether the rule judges, and keeps, averaged weights."""
        return self.rule != "accuracy"

    def update(self, metrics: Mapping[str, float], epoch: int) -> bool:
        """Take in a validation with "accuracy", "mae" and "loss"; say whether it is the best."""
        key = [-metrics["accuracy"], metrics["mae"], metrics["loss"]]
        if self.rule == "loss":
            key = [metrics["loss"]]
        elif self.rule == "smoothed":
            past = self._mean or key
            key = [MEMORY * a + (1 - MEMORY) * b for a, b in zip(past, key, strict=True)]
            self._mean = key
        better = self.rule == "last" or self._best is None or key < self._best
        if better:
            self._best, self.epoch = key, epoch
        return better

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs, plain values."""
        return {"best": self._best, "mean": self._mean, "epoch": self.epoch}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` gave."""
        self._best, self._mean, self.epoch = state["best"], state["mean"], state["epoch"]
