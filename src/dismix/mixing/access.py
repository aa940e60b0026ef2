"""What a mixer may ask about the images: the grader in training, or a saliency."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from torch.utils.data import get_worker_info

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget

LossFn = Callable[[nn.Module, Tensor, Any], Tensor]
SaliencyFn = Callable[[Tensor, Any], Tensor]


@dataclass(frozen=True)
class ModelAccess:
    """What a mixer may ask about the images, for those that look for what matters in them.

    Attributes:
        model: The grader in training.
        loss_fn: ``loss_fn(model, images, targets)`` -> scalar, the grader's own loss.
        saliency_fn: ``saliency_fn(images, targets)`` -> (B, H, W), instead of both.
        as_target: Whether these get an ``OrdinalTarget`` (as the caller gave) or (B, C).
        saliency_scale: Size of the images in the gradient pass, as a share of their own.
    """

    model: nn.Module | None = None
    loss_fn: LossFn | None = None
    saliency_fn: SaliencyFn | None = None
    as_target: bool = False
    saliency_scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.saliency_scale <= 1:
            raise DisMixError(
                f"saliency_scale is {self.saliency_scale}", cure="give a share above 0, at most 1"
            )

    def shown(self, target: OrdinalTarget) -> Tensor | OrdinalTarget:
        """Return targets in the form in which the caller gave them."""
        return target if self.as_target else target.probs

    def needed_model(self, method: str, purpose: str, cure: str = "") -> nn.Module:
        """Return the model, or say that there is none here.

        Args:
            method: Name of the mixer, for the message.
            purpose: What the model is needed for.
            cure: What else may be given instead, if anything.
        """
        if self.model is not None and get_worker_info() is None:
            return self.model
        found = "got none"
        if get_worker_info() is not None:
            # A copy: a hook in it is never met, and its weights are those of the worker's start.
            found = "a data loader's worker has none that learns"
        raise DisMixError(
            f"{method} needs a model {purpose}, and {found}",
            cure=f"call mix(images, targets, model=model) in the training loop{cure}",
        )

    def overridden(
        self,
        model: nn.Module | None,
        loss_fn: LossFn | None,
        saliency_fn: SaliencyFn | None,
        *,
        as_target: bool,
    ) -> "ModelAccess":
        """Return what was given at a call, else what is here."""
        return replace(
            self,
            model=model if model is not None else self.model,
            loss_fn=loss_fn or self.loss_fn,
            saliency_fn=saliency_fn or self.saliency_fn,
            as_target=as_target,
        )
