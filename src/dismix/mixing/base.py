"""The one shape of every mixer: draw the random choices, then apply them.

    mix = create_mixer("cutmix", num_ranks=5)
    images, targets = mix(images, targets)

The call follows torchvision's ``v2.MixUp``, with what that lacks: a probability for each
image, partner rules, ordinal target forms, an own generator, an identity after ``.eval()``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.access import LossFn, ModelAccess, SaliencyFn
from dismix.mixing.info import Mixed, MixInfo
from dismix.mixing.inputs import require_batch, require_channels_first
from dismix.mixing.pairing import PairingRule, Partners, find_partners, pairing_rule
from dismix.mixing.streams import OwnStream
from dismix.mixing.targets import check_form, in_form, unimodal
from dismix.mixing.uncompiled import uncompiled
from dismix.transfer import onto

__all__ = ["Draws", "LossFn", "Mixer", "ModelAccess", "PMode", "SaliencyFn", "Targets"]

Targets = Tensor | OrdinalTarget | Sequence[int]
PMode = Literal["sample", "batch"]


@dataclass(frozen=True)
class Draws:
    """The random choices for one batch, all on the CPU; mixers add fields of their own.

    Attributes:
        rows: (M,) long, ascending: the images that are replaced by mixes.
        partner: (M,) long, the batch row that each is mixed with.
        lam: (M,) float32, the ratio drawn; what the picture makes of it is in ``MixInfo``.
        fell_back: (M,) bool, see :class:`~dismix.mixing.pairing.Partners`.
    """

    rows: Tensor
    partner: Tensor
    lam: Tensor
    fell_back: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def pair_on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return ``rows`` and ``partner`` on a device."""
        return onto(self.rows, device), onto(self.partner, device)


class Mixer(OwnStream, ABC):
    """Base of all mixers.

    Args:
        num_ranks: C. May be left out when targets come as (B, C) or ``OrdinalTarget``.
        p: Share of images that are replaced by mixes.
        p_mode: "sample" replaces each image with probability p, as near to p B of them in a
            batch as can be; "batch" tosses once for the whole batch.
        pairing: Name of a rule, see :mod:`dismix.mixing.pairing`, or a function.
        target: Form of the targets that come out, see :mod:`dismix.mixing.targets`. It
            also holds for images left alone, except that their law never changes.
        seed: Of the own generator; processes of one training get streams of their own.
        generator: A CPU generator to use instead.
        enabled: False makes it the identity, as ``.eval()`` does.
        model: Grader, see :class:`ModelAccess`; never becomes a sub-module.
        loss_fn: See :class:`ModelAccess`.
        saliency_fn: See :class:`ModelAccess`.
        saliency_scale: Below 1 the model's gradient is found on smaller copies of the images:
            0.5 takes about a third of the time, and methods that cut images into blocks
            only use its means over blocks. The model must take that size. With ``clean_lam``
            it has no effect: that loss is of the images as they are, and comes with the gradient.

    A sub-class writes :meth:`draw` and :meth:`replay`; :class:`~dismix.mixing.pairs.PairMixer`
    does that for mixers that make one picture of two.

    Attributes:
        last: :class:`MixInfo` of the latest call.
    """

    method = "none"
    needs_partner = True
    # Whether the call must be given the model; training loops look at this.
    needs_saliency = False
    # Whether it has images in store: the call then takes ``rows``, their places there (see
    # :meth:`rows_of`), and ``augmented``, whether the caller flipped and turned the images.
    takes_rows = False
    # Numbers of channels that it takes; any, when empty.
    channels: tuple[int, ...] = ()

    def __init__(
        self,
        num_ranks: int | None = None,
        *,
        p: float = 0.5,
        p_mode: PMode = "sample",
        pairing: str | PairingRule = "random",
        target: str = "soft",
        seed: int = 0,
        generator: torch.Generator | None = None,
        enabled: bool = True,
        model: nn.Module | None = None,
        loss_fn: LossFn | None = None,
        saliency_fn: SaliencyFn | None = None,
        saliency_scale: float = 1.0,
    ) -> None:
        super().__init__(seed, generator)
        _check_settings(num_ranks, p, p_mode)
        self.num_ranks, self.p, self.p_mode, self.enabled = num_ranks, float(p), p_mode, enabled
        self.pairing, self.target_form = pairing, check_form(target)
        self._rule = pairing_rule(pairing)
        # Within a list, so that it is no sub-module and stays out of state_dict.
        self._access = [ModelAccess(model, loss_fn, saliency_fn, saliency_scale=saliency_scale)]
        self.last: MixInfo | None = None

    @overload
    def __call__(
        self, images: Tensor, targets: Targets, *, model: nn.Module | None = ...,
        loss_fn: LossFn | None = ..., saliency_fn: SaliencyFn | None = ...,
        return_info: Literal[False] = ...,
    ) -> tuple[Tensor, Any]: ...  # fmt: skip

    @overload
    def __call__(
        self, images: Tensor, targets: Targets, *, model: nn.Module | None = ...,
        loss_fn: LossFn | None = ..., saliency_fn: SaliencyFn | None = ...,
        return_info: Literal[True],
    ) -> tuple[Tensor, Any, MixInfo]: ...  # fmt: skip

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Mix a batch, see :meth:`forward`."""
        return super().__call__(*args, **kwargs)

    def forward(
        self,
        images: Tensor,
        targets: Targets,
        *,
        model: nn.Module | None = None,
        loss_fn: LossFn | None = None,
        saliency_fn: SaliencyFn | None = None,
        return_info: bool = False,
    ) -> tuple[Tensor, Any] | tuple[Tensor, Any, MixInfo]:
        """Return mixed images and targets; the arguments are never changed.

        Args:
            images: (B, channels, H, W), floating point, any B >= 1.
            targets: Whole numbers (B,), probabilities (B, C) or an ``OrdinalTarget``.
            model: Grader for mixers that need one, instead of the constructor's.
            loss_fn: Likewise.
            saliency_fn: Likewise.
            return_info: Also return the :class:`MixInfo` (it is in ``last`` anyway).

        Returns:
            Images of the same shape and dtype, and targets in float32 whatever the images
            are: (B, C), or what ``target`` names. An ``OrdinalTarget`` gives another whose
            mixed rows are not ``clean``.
        """
        given = isinstance(targets, OrdinalTarget)
        target = self._checked(images, targets)
        if self.training and self.enabled and self.p > 0:
            draws = _undisturbed(self, images, target)
            access = self.access(model, loss_fn, saliency_fn, as_target=given)
            mixed = self.replay(images, target, draws, access)
        else:
            mixed = Mixed(images, target, MixInfo.unchanged(self.method, target))
        final = self.finish(mixed)
        self.last = mixed.info
        out = final if given else in_form(final, self.target_form)
        return (mixed.images, out, mixed.info) if return_info else (mixed.images, out)

    @abstractmethod
    def draw(self, images: Tensor, target: OrdinalTarget) -> Draws:
        """Draw all random choices for a batch from the own generator."""

    @abstractmethod
    def replay(
        self, images: Tensor, target: OrdinalTarget, draws: Draws, access: ModelAccess
    ) -> Mixed:
        """Make the mixes that the draws ask for; without randomness of its own.

        Not named ``apply``, which ``nn.Module`` has for walking through sub-modules.
        """

    def finish(self, mixed: Mixed) -> OrdinalTarget:
        """Return the targets of a batch in the asked form; hook for sub-classes."""
        if self.target_form == "unimodal":
            return unimodal(mixed.target, mixed.info.mixed)
        return mixed.target

    def access(
        self,
        model: nn.Module | None = None,
        loss_fn: LossFn | None = None,
        saliency_fn: SaliencyFn | None = None,
        as_target: bool = False,
    ) -> ModelAccess:
        """Return what was given at the call, else what was given at construction."""
        return self._access[0].overridden(model, loss_fn, saliency_fn, as_target=as_target)

    def draw_rows(self, batch: int) -> Tensor:
        """Draw which rows are mixed: (M,) long, ascending."""
        if self.needs_partner and batch < 2:
            return torch.zeros(0, dtype=torch.long)
        if self.p_mode == "batch":
            hit = torch.rand(1, dtype=torch.float32, generator=self.generator) < self.p
            return torch.arange(batch if bool(hit) else 0)
        # As even a count as can be, p for every image: steps of equal cost and shape.
        toss = float(torch.rand(1, dtype=torch.float32, generator=self.generator))
        count = int(self.p * batch + toss)
        return torch.randperm(batch, generator=self.generator)[:count].sort().values

    def draw_partners(self, target: OrdinalTarget, rows: Tensor) -> Partners:
        """Draw the partners of some rows: (M,) row numbers of the batch."""
        # Random partners of a saliency method come from the chosen rows: just as random,
        # and only those rows need the costly pass through the model.
        if self.needs_saliency and self.pairing == "random" and len(rows) > 1:
            within = find_partners(self._rule, target[: len(rows)], self.generator)
            return Partners(rows[within.index], within.fell_back)
        found = find_partners(self._rule, target, self.generator)
        return Partners(found.index[rows], found.fell_back[rows])

    def rows_of(self, digests: Sequence[str], target: OrdinalTarget | None = None) -> Tensor:
        """Return where the mixer has images in store: (N,) long, -1 where it has them not.

        Args:
            digests: Content digests of N image files, see :mod:`dismix.data.digest`.
            target: Their targets; stored images of other targets do not count.
        """
        return torch.full((len(digests),), -1)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "last": None}

    def extra_repr(self) -> str:
        """Show the settings all mixers share."""
        pairing = self.pairing if isinstance(self.pairing, str) else "own rule"
        return (
            f"num_ranks={self.num_ranks}, p={self.p:g}, p_mode={self.p_mode},"
            f" pairing={pairing}, target={self.target_form}"
        )

    def _checked(self, images: Tensor, targets: Targets) -> OrdinalTarget:
        require_batch(images)
        require_channels_first(images, self.channels)
        target = OrdinalTarget.coerce(targets, self._ranks_of(targets))
        if len(target) != len(images):
            raise DisMixError(
                f"{len(images)} images came with {len(target)} targets", cure="give one an image"
            )
        return target.to(images.device)

    def _ranks_of(self, targets: Targets) -> int:
        if self.num_ranks is not None:
            return self.num_ranks
        if isinstance(targets, OrdinalTarget):
            return targets.num_ranks
        shape = torch.as_tensor(targets).shape
        if len(shape) == 2:
            return shape[1]
        raise DisMixError(
            "whole-number labels do not tell how many ranks there are", cure="give num_ranks"
        )


@uncompiled
def _undisturbed(mixer: Mixer, images: Tensor, target: OrdinalTarget) -> Draws:
    # A compiled training step would trace the generator's state into a constant.
    mixer.part_streams()
    # Draws are the CPU's, whatever the user's default device is.
    with torch.device("cpu"):
        return mixer.draw(images, target)


def _check_settings(num_ranks: int | None, p: float, p_mode: str) -> None:
    if num_ranks is not None and num_ranks < 2:
        raise DisMixError(f"num_ranks is {num_ranks}", cure="give 2 or more")
    if not 0 <= p <= 1:
        raise DisMixError(f"p must lie within [0, 1], got {p}", cure="p is the share of mixes")
    if p_mode not in ("sample", "batch"):
        raise DisMixError(f"unknown p_mode '{p_mode}'", cure="choose sample or batch")
