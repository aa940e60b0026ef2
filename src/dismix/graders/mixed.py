"""What a grader and a mixer ask of each other in a training step."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from dismix.graders.base import Grader, Stage
from dismix.labels import OrdinalTarget


def loss_of(stage: Stage) -> Callable[[Grader, Tensor, Any], Tensor]:
    """Return a grader's own loss in a stage as mixers ask for it: (grader, images, target)."""

    def loss_fn(grader: Grader, images: Tensor, target: Any) -> Tensor:
        if stage.views > 1:
            images = images.unsqueeze(1).expand(-1, stage.views, -1, -1, -1)
        law = OrdinalTarget.coerce(target, grader.num_ranks)
        return grader.training_loss(images, law, stage)["loss"]

    return loss_fn


def with_clean_loss(parts: dict[str, Tensor], mixer: Any) -> dict[str, Tensor]:
    """Add the clean images' loss, which a mixer has from finding saliency, as its authors do.

    Args:
        parts: ``loss`` and its parts.
        mixer: Just called. Only those with a positive ``clean_lam`` keep that loss.
    """
    weight, info = getattr(mixer, "clean_lam", 0.0), getattr(mixer, "last", None)
    if weight <= 0 or info is None or info.clean_loss is None:
        return parts
    clean: Tensor = info.clean_loss
    return {**parts, "loss": parts["loss"] + weight * clean, "clean": clean}
