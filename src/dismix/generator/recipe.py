"""How a generator is trained. What it is made of is `GeneratorConfig`.

A recipe names every lever; the command line sets any of them (``--set reversal=0``), and
the ablations are nothing but such settings. Three recipes come with the package:

- ``paper``: the published form. One z for both branches, dot-product attention, a linear
  classifier behind a gradient reversal, learned unit-sum weights, Adam 1e-5, 400 epochs,
  batches of 11.
- ``default``: what it takes to really separate the two codes; each lever's measured effect
  is in ``results/``. The ordinal code says the rank alone.
- ``spatial``: the same with an ordinal code that has a place for each cell, for severity that
  is lesions somewhere in the image rather than the shape of one thing.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from dismix.errors import DisMixError
from dismix.generator.heads import Reader
from dismix.generator.reversal import reversal_ramp
from dismix.generator.terms import PAPER_TERMS, Phase
from dismix.registry import near_names

Adversary = Literal["reversal", "confusion"]
POSITIVE = (
    "epochs", "batch_size", "evaluate_every", "lr", "lr_critic", "lr_adversary",
    "adversary_steps", "discriminator_width", "discriminator_layers",
)  # fmt: skip
NOT_NEGATIVE = (
    "lr_trunk", "lr_weights", "reversal", "jitter", "guide_steps", "guide_lr", "guide_blur",
    "perceptual_crop", "strip_every",
)  # fmt: skip
#: Settings that are a part of something whole.
SHARES = (
    "warmup", "beta1", "ema", "reversal_ramp", "reversal_start", "plain", "polish",
    "discriminator_start", "control_share", "mix_share",
)  # fmt: skip

#: Settings that came after runs were recorded, and what they are in those.
LATER = {"guide_lr": 0.0, "guide_blur": 0.0}


@dataclass(frozen=True)
class Recipe:
    """Training settings.

    Attributes:
        epochs: Passes over the training split.
        batch_size: Images a step, over all processes.
        lr: Adam's learning rate for the generator.
        lr_critic: The same for the discriminator.
        lr_adversary: The same for the adversaries that read z_n.
        lr_trunk: The same for the ordinal trunk; 0 is ``lr``.
        freeze_trunk: Leave the ordinal trunk as the guide or the pretraining made it.
        schedule: "constant", or "cosine" down to zero after a warm-up.
        warmup: Share of training over which the learning rate rises.
        beta1: Adam's first moment decay (0.5 calms adversarial training).
        clip: Largest norm of the gradient of the generator, and of its critics; 0 switches
            clipping off.
        ema: Decay of the averaged weights that are saved and judged; 0 keeps the raw ones.
        learned_weights: Learn unit-sum weights of the terms (the paper) instead of ``weights``.
        lr_weights: Learning rate of those.
        weights: Fixed weight of each term; 0 leaves the term out.
        adversary: How rank is driven out of z_n. "reversal" is the paper's classifier behind
            a gradient reversal; "confusion" trains separate adversaries, linear and
            convolutional, and moves their answer towards the prior.
        adversaries: What the separate adversaries are, joined by "+": "flatten" (linear),
            "pool", "conv" and "deep" (as strong as the probe that judges z_n).
        adversary_steps: Steps of the adversaries for each of the generator; those after the
            first read codes of earlier batches of the epoch.
        reversal: Strength of the reversal or the confusion at full ramp; 0 is the "no GRL"
            ablation.
        reversal_ramp: Share of training over which it rises from 0.
        reversal_start: Share of training before it begins to rise, after ``plain``.
        plain: Share of the epochs, at the start, that learn to rebuild images and to read ranks
            from z_o, and nothing else: cheap steps, and codes worth separating.
        polish: Share of the epochs, at the end, that teach the decoder alone: codes stay what
            they are, and with them what they tell of the rank; detail that parting cost may
            come back. The learning rates start once more, at half.
        discriminator_start: Share of training before the realism term joins, after ``plain``.
        discriminator_width: Channels of its first convolution.
        discriminator_layers: Its strided convolutions.
        discriminator_norm: Its normalisation.
        conditional: Let the discriminator judge whether a patch is real for the asked rank.
        match_colour: Give decodings at another rank the image's own colour statistics before
            anybody reads their rank, so that a tint earns nothing.
        control_share: Share of a batch that is decoded again at another rank.
        mix_share: Share of a batch that is decoded again with another image's z_n mixed in.
        detach_control: Keep those decodings from shaping the ordinal trunk, which they may
            teach to forget the image's own rank.
        jitter: Random brightness of each channel in training, as the deviation of its
            logarithm: colour then says nothing about rank.
        augment: Random flips and turns in training.
        guide_kind: "lite0", or "conv" for small pictures on a CPU.
        guide_steps: About how many steps the guide and the reader are trained before, in whole
            passes; 0 leaves the reader out.
        guide_lr: Adam's largest learning rate for the guide, and for a reader of its kind; 0 is
            the kind's own, see `dismix.generator.guide.train_guide`.
        guide_blur: Deviation, in pixels, of the blur through which the guide sees pictures.
        perceptual_crop: Side of the random crop that LPIPS compares; 0 takes the whole image.
        freeze: Keep the encoder's way down as pretrained.
        graphs: Replay whole steps as a CUDA graph, on one GPU.
        compile: Compile encoder, decoder, discriminator and LPIPS on a GPU.
        revive: Replace codes that nothing chose during an epoch.
        evaluate_every: Epochs between validations, from which the checkpoint is chosen.
        strip_every: Epochs between picture strips; 0 draws none.
        structure: Fields of `GeneratorConfig` that belong to the recipe.
    """

    epochs: int = 400
    batch_size: int = 32
    lr: float = 3e-4
    lr_critic: float = 3e-4
    lr_adversary: float = 1e-3
    lr_trunk: float = 0.0
    freeze_trunk: bool = False
    schedule: Literal["constant", "cosine"] = "cosine"
    warmup: float = 0.02
    beta1: float = 0.9
    clip: float = 1.0
    ema: float = 0.999
    learned_weights: bool = False
    lr_weights: float = 1e-5
    weights: Mapping[str, float] = field(default_factory=dict)
    adversary: Adversary = "confusion"
    adversaries: str = "flatten+deep"
    adversary_steps: int = 1
    reversal: float = 1.0
    reversal_ramp: float = 0.3
    reversal_start: float = 0.0
    plain: float = 0.0
    polish: float = 0.0
    discriminator_start: float = 0.0
    discriminator_width: int = 64
    discriminator_layers: int = 3
    discriminator_norm: Literal["batch", "group", "instance", "spectral", "none"] = "group"
    conditional: bool = False
    match_colour: bool = True
    control_share: float = 1.0
    mix_share: float = 1.0
    detach_control: bool = True
    jitter: float = 0.0
    augment: bool = True
    guide_kind: Literal["conv", "lite0"] = "lite0"
    guide_steps: int = 1000
    guide_lr: float = 0.0
    guide_blur: float = 0.0
    perceptual_crop: int = 0
    freeze: bool = True
    graphs: bool = True
    compile: bool = False
    revive: bool = True
    evaluate_every: int = 10
    strip_every: int = 20
    structure: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(Recipe).items():
            value, choices = getattr(self, name), get_args(hint)
            if get_origin(hint) is Literal and value not in choices:
                raise DisMixError(
                    f"'{value}' is no choice", column=name, cure=near_names(str(value), [*choices])
                )
        for name in SHARES:
            if not 0 <= getattr(self, name) <= 1:
                raise DisMixError(
                    f"{getattr(self, name):g} is no share", column=name, cure="give 0 to 1"
                )
        for name in POSITIVE:
            if not getattr(self, name) > 0:
                raise DisMixError(
                    f"is {getattr(self, name):g}", column=name, cure="give a number above 0"
                )
        if self.beta1 == 1:
            raise DisMixError("Adam would forget nothing", column="beta1", cure="give less than 1")
        if self.clip < 0:
            raise DisMixError(f"{self.clip:g} is no norm", column="clip", cure="give 0 or more")
        for name in NOT_NEGATIVE:
            if not getattr(self, name) >= 0:
                raise DisMixError(f"is {getattr(self, name):g}", column=name, cure="give 0 or more")
        _ = self.adversary_kinds
        for name, weight in self.weights.items():
            if not weight >= 0:
                raise DisMixError(f"{weight:g} is no weight", column=name, cure="give 0 or more")

    def described(self) -> dict[str, Any]:
        """Return plain values, as runs are known by.

        Later settings that change nothing are left out, so that runs from before them are still
        known: they go on, and finished ones are not repeated.

        Example:
            >>> "guide_blur" in Recipe().described()
            False
            >>> Recipe(guide_blur=2.0).described()["guide_blur"]
            2.0
        """
        found = asdict(self)
        return {name: v for name, v in found.items() if name not in LATER or v != LATER[name]}

    def weight(self, term: str) -> float:
        """Return the fixed weight of a term; with learned weights, 1 for those of the paper."""
        return self.weights.get(term, 0.0)

    @property
    def plain_epochs(self) -> int:
        """Epochs at the start that only rebuild; the last epoch is never one."""
        return min(round(self.plain * self.epochs), self.epochs - 1)

    @property
    def polish_epochs(self) -> int:
        """Epochs at the end that teach the decoder alone; one before them parts the codes."""
        return min(round(self.polish * self.epochs), self.epochs - self.plain_epochs - 1)

    def phase(self, epoch: int) -> Phase:
        """Return what an epoch, counted from 0, is for.

        Example:
            >>> recipe = Recipe(epochs=5, plain=0.4, polish=0.2)
            >>> [recipe.phase(epoch) for epoch in range(5)]
            ['plain', 'plain', 'part', 'part', 'polish']
        """
        if epoch < self.plain_epochs:
            return "plain"
        return "polish" if epoch >= self.epochs - self.polish_epochs else "part"

    def push(self, share: float) -> float:
        """Return how strongly rank is driven out of z_n when a share of training is done.

        Example:
            >>> recipe = Recipe(epochs=10, plain=0.5, reversal_start=0.2, reversal_ramp=0.1)
            >>> [recipe.push(share) for share in (0.0, 0.7, 0.8)]
            [0.0, 0.0, 1.0]
        """
        since = share - self.plain_epochs / self.epochs - self.reversal_start
        ramp = max(1, round(1e4 * self.reversal_ramp))
        return self.reversal * reversal_ramp(round(1e4 * max(0.0, since)), ramp)

    def may_choose(self, epoch: int) -> bool:
        """Tell whether the weights after an epoch, counted from 1, may be the checkpoint.

        # paper: all may. Mixing accuracy says nothing of z_n, and is often best before rank
        # has been driven out of it, when codes are not apart; so at least half of that push is
        # needed. The last epoch may always.

        Example:
            >>> recipe = Recipe(epochs=10, plain=0.5, reversal_start=0.2, reversal_ramp=0.1)
            >>> [epoch for epoch in range(1, 11) if recipe.may_choose(epoch)]
            [8, 9, 10]
        """
        if epoch <= self.plain_epochs:
            return False
        pushed = self.push(epoch / self.epochs) >= 0.5 * self.reversal
        return pushed or epoch >= self.epochs

    @property
    def adversary_kinds(self) -> tuple[Reader, ...]:
        """The separate adversaries."""
        kinds = self.adversaries.split("+")
        for kind in kinds:
            if kind not in get_args(Reader):
                raise DisMixError(
                    f"unknown adversary '{kind}'", cure=near_names(kind, [*get_args(Reader)])
                )
        return cast(tuple[Reader, ...], tuple(kinds))


PAPER = Recipe(
    epochs=400, batch_size=11, lr=1e-5, lr_critic=1e-5, schedule="constant", warmup=0.0,
    clip=0.0, ema=0.0, learned_weights=True, weights=dict.fromkeys(PAPER_TERMS, 1.0),
    adversary="reversal", discriminator_norm="batch", revive=False,
    structure={"projections": "shared", "cosine": False, "p_uncond": 0.2},
)  # fmt: skip
DEFAULT = Recipe(
    weights={
        "reconstruct": 20.0, "perceptual": 0.5, "seen": 0.1, "realism": 0.05,
        "quantize_ordinal": 0.25,
        "quantize_nonordinal": 0.25, "rank_ordinal": 0.1, "rank_unlabelled": 0.1,
        "rank_predicted": 0.5, "rank_nonordinal": 2.0, "guide": 0.2, "mix": 0.3,
        "control_realism": 0.05, "mix_realism": 0.05, "stay": 0.5, "keep": 2.0,
        "cycle_nonordinal": 0.1,
    },
    # Small batches: the number of steps decides how well the codes part and pictures sharpen.
    batch_size=16, lr=6e-4, ema=0.998, adversary_steps=2, lr_adversary=2e-3, plain=0.4,
    reversal_start=0.1,
    conditional=True, discriminator_start=0.1, jitter=0.1, control_share=0.25, mix_share=0.5,
    perceptual_crop=128, freeze=False, freeze_trunk=True,
    structure={
        "ordinal_grid": 1, "ordinal_trunk": "lite0", "null_label": "predicted", "p_uncond": 0.3,
        "rank_only": True,
    },
)  # fmt: skip
# An ordinal code for every cell of the latent grid. It could carry the look as well, hence
# `mix_keep`; a strong guide draws nets of vessels there.
SPATIAL_CODE = {"rank_only": False, "ordinal_grid": None, "ordinal_codes": 64}
SPATIAL = dataclasses.replace(
    DEFAULT,
    weights={**DEFAULT.weights, "mix_keep": 2.0, "guide": 0.1, "rank_nonordinal": 1.0},
    structure={**DEFAULT.structure, **SPATIAL_CODE},
)
RECIPES: dict[str, Recipe] = {"paper": PAPER, "default": DEFAULT, "spatial": SPATIAL}


def named_recipe(name: str) -> Recipe:
    """Return a recipe by name; a wrong name offers near ones.

    Example:
        >>> named_recipe("paper").batch_size
        11
    """
    if name not in RECIPES:
        raise DisMixError(f"unknown recipe '{name}'", cure=near_names(name, sorted(RECIPES)))
    return RECIPES[name]
