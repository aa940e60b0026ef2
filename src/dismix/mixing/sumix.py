"""SUMix (Qin et al., ECCV 2024): a mixer's label ratio, corrected by what the model sees.

If a mix looks less like one of its sources than its share says, that source's share of the
label shrinks. Works on top of any mixer of two images.

How ours differs from the authors' release: it follows the idea, not the expression. Only the
ratio is corrected; their learned uncertainty head and its regulariser are left out. Their
semantic distance, read literally, is large for the source that the mix shows most, and is
multiplied by the batch size, which makes labels depend on it; ours is large for the source
that is missing, with a ``strength`` of 1. Classes are majority ranks. The two passes through
the model are in evaluation mode, without gradients.
"""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.base import Draws, Mixer, ModelAccess
from dismix.mixing.info import Mixed
from dismix.mixing.pairs import PairMixer
from dismix.mixing.registry import create_mixer
from dismix.mixing.saliency import class_scores, undisturbed


def corrected_ratio(
    mixed: Tensor, own: Tensor, other: Tensor, hard: tuple[Tensor, Tensor], lam: Tensor,
    strength: float,
) -> Tensor:  # fmt: skip
    """Return the ratio (M,) after the correction.

    Args:
        mixed: Probabilities (M, C) that the model gives the mixes.
        own: Those of the images.
        other: Those of the partners.
        hard: Majority ranks (M,) of images and partners.
        lam: (M,) ratios of the mixer.
        strength: Of the correction; 0 leaves the ratios.

    Example:
        A mix that the model takes for the first image gets more of its label.

        >>> one, two = torch.tensor([[0.9, 0.1]]), torch.tensor([[0.1, 0.9]])
        >>> ranks = torch.tensor([0]), torch.tensor([1])
        >>> corrected_ratio(one, one, two, ranks, torch.tensor([0.5]), 1.0)
        tensor([0.5603])
    """
    rows = torch.arange(len(lam), device=lam.device)
    # What an image already shows of the other's rank is not a sign of the mix.
    same = (hard[0] == hard[1]).unsqueeze(1)
    own_only = torch.where(same, own, own.index_put((rows, hard[1]), own.new_zeros(())))
    other_only = torch.where(same, other, other.index_put((rows, hard[0]), other.new_zeros(())))
    far_own = F.normalize(F.softmax(own_only - mixed, 1), dim=1)[rows, hard[0]]
    far_other = F.normalize(F.softmax(other_only - mixed, 1), dim=1)[rows, hard[1]]
    first = lam * torch.exp(-strength * far_own)
    second = (1 - lam) * torch.exp(-strength * far_other)
    return first / (first + second)


def _probabilities(model: nn.Module, images: Tensor, num_ranks: int) -> Tensor:
    """Return class probabilities (B, C) of one of our graders or of any classifier."""
    model = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    grade: Any = getattr(model, "grade", None)
    expected = len(images), num_ranks
    if grade is not None:
        if getattr(model, "uses_reference", False) and not getattr(model, "reference", None):
            raise DisMixError(
                "sumix needs class probabilities in training, and this grader has none before"
                " its reference images are known",
                cure="use another mixer with this grader",
            )
        found: Tensor = grade(images).probabilities
        return class_scores(found, expected, "give a grader of the same ranks")
    cure = "give a model that does (logarithms of probabilities will do), or use another mixer"
    return F.softmax(class_scores(model(images), expected, cure), 1)


class SUMix(Mixer):
    """Correct the label ratios of another mixer.

    Args:
        num_ranks: C.
        base: A mixer of two images, or its name. Which images are mixed, with whom, and the
            form of the targets are the base's; of a mixer also its random stream, model, loss
            and saliency, unless others are given here.
        strength: Of the correction.
        base_options: Options of the base when it is named.
        **options: See :class:`~dismix.mixing.base.Mixer`; they go to a base that is named. A
            ``model`` that returns class scores (B, C), or one of our graders, is needed; beside
            it a ``saliency_fn`` still is what the base looks at.
    """

    method = "sumix"
    needs_saliency = True

    def __init__(
        self,
        num_ranks: int | None = None,
        *,
        base: str | PairMixer = "cutmix",
        strength: float = 1.0,
        base_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        _refuse_twice(base, base_options or {}, options)
        if not isinstance(base, str):
            num_ranks = _ranks_of(num_ranks, base)
            options = _settings_of(base, own_seed="seed" in options) | options
        super().__init__(num_ranks, **options)
        if isinstance(base, str):
            mixer = create_mixer(base, num_ranks, **options, **(base_options or {}))
        else:
            mixer = base
        if not isinstance(mixer, PairMixer):
            raise DisMixError(
                f"sumix corrects mixers of two images, and '{mixer.method}' is none",
                cure="choose for example mixup, cutmix or puzzlemix",
            )
        if strength < 0:
            raise DisMixError(f"strength must not be negative, got {strength}")
        self.strength = strength
        # A named base may have its own by base_options.
        self.p, self.p_mode, self.target_form = mixer.p, mixer.p_mode, mixer.target_form
        self.pairing = mixer.pairing
        # One stream of random numbers, so that state_dict holds all of it.
        if mixer.generator is self.generator:
            self._process = mixer._process
        mixer.generator = self.generator
        self._base = [mixer]

    @property
    def clean_lam(self) -> float:
        """Weight of the clean images' loss that the base asks for."""
        return float(getattr(self._base[0], "clean_lam", 0.0))

    def draw(self, images: Tensor, target: OrdinalTarget) -> Draws:
        """Draw what the base draws."""
        return self._base[0].draw(images, target)

    def replay(
        self, images: Tensor, target: OrdinalTarget, draws: Draws, access: ModelAccess
    ) -> Mixed:
        """Mix with the base, then correct ratios and labels."""
        base = self._base[0]
        looking = access.saliency_fn or base.access().saliency_fn
        mixed = base.replay(images, target, draws, replace(access, saliency_fn=looking))
        info = replace(mixed.info, method=self.method)
        if not len(draws):
            return replace(mixed, info=info)
        lam = self._corrected(images, mixed, access)
        weight = lam.unsqueeze(1)
        probs = weight * target.probs + (1 - weight) * target.probs[info.index]
        out = OrdinalTarget(probs, mixed.target.clean)
        return Mixed(mixed.images, out, replace(info, lam=lam, target=out))

    @torch.no_grad()
    def _corrected(self, images: Tensor, mixed: Mixed, access: ModelAccess) -> Tensor:
        model = access.needed_model(self.method, "to look at the mixes")
        info = mixed.info
        rows = info.mixed.nonzero().squeeze(1)
        partner = info.index[rows]
        shown = torch.cat([images, mixed.images[rows]])
        with undisturbed(model):
            probs = _probabilities(model, shown, info.sources.num_ranks)
        clean, mixes = probs[: len(images)], probs[len(images) :]
        hard = info.sources.hard
        ratio = corrected_ratio(
            mixes, clean[rows], clean[partner], (hard[rows], hard[partner]), info.lam[rows],
            self.strength,
        )  # fmt: skip
        return info.lam.index_copy(0, rows, ratio)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._base[0].generator = self.generator


def _refuse_twice(base: str | Mixer, base_options: dict[str, Any], options: dict[str, Any]) -> None:
    """Raise for an option that the base has already, of which one would be ignored."""
    if isinstance(base, str):
        twice = sorted(base_options.keys() & options.keys())
        cure = "give it once"
    else:
        twice = sorted({"p", "p_mode", "pairing", "target"} & options.keys())
        twice += ["base_options"] if base_options else []
        cure = "give it to the base mixer, or name the base as text"
    if twice:
        raise DisMixError("sumix takes this from its base", column=twice[0], cure=cure)


def _settings_of(base: Mixer, *, own_seed: bool) -> dict[str, Any]:
    """Return the options with which sumix does as its base does.

    Args:
        base: A mixer.
        own_seed: Whether the base's random stream is not wanted.
    """
    seen = base.access()
    return {
        "p": base.p, "p_mode": base.p_mode, "pairing": base.pairing, "target": base.target_form,
        "generator": None if own_seed else base.generator, "enabled": base.enabled,
        "model": seen.model, "loss_fn": seen.loss_fn, "saliency_fn": seen.saliency_fn,
        "saliency_scale": seen.saliency_scale,
    }  # fmt: skip


def _ranks_of(num_ranks: int | None, base: Mixer) -> int | None:
    if None not in (num_ranks, base.num_ranks) and num_ranks != base.num_ranks:
        raise DisMixError(
            f"sumix mixes {num_ranks} ranks and its base {base.num_ranks}",
            cure="give both the same num_ranks",
        )
    return base.num_ranks if num_ranks is None else num_ranks
