"""What losses on the output of a network's last layer share: how wide it is, how it is read."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from torch import Tensor, nn

from dismix.generator.precision import full_precision
from dismix.graders.grades import Grades, entropy
from dismix.graders.inputs import law_of, require_shape
from dismix.labels import OrdinalTarget


class LogitsLoss(nn.Module, ABC):
    """A loss on logits (B, K), for graders and for loops of one's own.

    Args:
        num_ranks: C.

    Attributes:
        form: What K is: one logit a rank, "C", or one a step between ranks, "C-1".
    """

    form: ClassVar[Literal["C", "C-1"]] = "C"

    def __init__(self, num_ranks: int) -> None:
        super().__init__()
        self.num_ranks = num_ranks

    @property
    def width(self) -> int:
        """K, the number of outputs that the network must have."""
        return self.num_ranks - (self.form == "C-1")

    def forward(
        self, logits: Tensor, target: Tensor | OrdinalTarget, weights: Tensor | None = None
    ) -> Tensor:
        """Return the mean loss.

        Args:
            logits: (B, K).
            target: Labels (B,), laws (B, C) or a target.
            weights: (B,), not negative, or None.
        """
        law = law_of(target, self.num_ranks, weights)
        require_shape("logits", logits, {"B": len(law), self.form: self.width})
        with full_precision(logits):
            return self.compare(logits.float(), law, weights)

    def grades(self, logits: Tensor) -> Grades:
        """Return what logits (B, K) say: probabilities, rank, decision; entropy in nats."""
        require_shape("logits", logits, {"B": None, self.form: self.width})
        return self.read(logits.float())

    @abstractmethod
    def compare(self, logits: Tensor, law: OrdinalTarget, weights: Tensor | None) -> Tensor:
        """Return the loss of float32 logits (B, K)."""

    def read(self, logits: Tensor) -> Grades:
        """Return the grades of float32 logits (B, K), by default those of their softmax."""
        probs = logits.softmax(-1)
        return Grades.from_probabilities(probs, uncertainty=entropy(probs))
