"""All mixers by name, with their paper, cost and needs; importing this loads no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

from dismix.errors import DisMixError
from dismix.registry import Registry, near_names

if TYPE_CHECKING:
    from dismix.mixing.base import Mixer


@dataclass(frozen=True)
class MixerEntry:
    """One line about a mixer.

    Attributes:
        name: As users write it.
        where: Module and factory, "module:name"; the factory takes ``num_ranks`` and options.
        summary: What it does.
        paper: Who proposed it.
        cost: What it adds to a training step.
        needs: What it asks for beside images and targets, "nothing" or a few words.
    """

    name: str
    where: str
    summary: str
    paper: str
    cost: str
    needs: str = "nothing"

    def load(self) -> "type[Mixer]":
        """Import the mixer's class."""
        module, _, name = self.where.partition(":")
        factory: type[Mixer] = getattr(import_module(module), name)
        return factory


MIXERS: Registry[MixerEntry] = Registry("mixer")

#: The six that the paper compares with. It gives no settings for them; ours are the defaults of
#: their authors' releases at p = 0.5 with random partners.
BASELINES = ("mixup", "cutmix", "puzzlemix", "comixup", "guidedmixup", "diffusemix")

_HERE = "dismix.mixing."
for _entry in (
    MixerEntry(
        "dismix", _HERE + "dismix:DisMix", "severity and appearance mixed apart, then decoded",
        "Pitawela, Carneiro and Chen", "reads a pool of mixes, or decodes the mixed images",
        "a trained generator (run=)",
    ),
    MixerEntry(
        "mixup", _HERE + "mixup:Mixup", "weighted mean of two images",
        "Zhang et al., ICLR 2018", "one blend",
    ),
    MixerEntry(
        "cutmix", _HERE + "cutmix:CutMix", "a box of the partner",
        "Yun et al., ICCV 2019", "one blend",
    ),
    MixerEntry(
        "resizemix", _HERE + "resizemix:ResizeMix", "the whole partner, made small",
        "Qin et al., 2020", "one blend",
    ),
    MixerEntry(
        "puzzlemix", _HERE + "puzzlemix:PuzzleMix", "blocks cut and moved by saliency",
        "Kim et al., ICML 2020", "forward and input gradient of the mixed images; minimum cuts",
        "a model or saliency_fn",
    ),
    MixerEntry(
        "comixup", _HERE + "comixup:CoMixup", "a set of images put together from blocks",
        "Kim et al., ICLR 2021", "forward and input gradient of the mixed images; labelling",
        "a model or saliency_fn",
    ),
    MixerEntry(
        "guidedmixup", _HERE + "guidedmixup:GuidedMixup", "pixels weighed by saliency",
        "Kang and Kim, AAAI 2023", "a Fourier transform (sr), or forward and input gradient (grad)",
        "a model for saliency='grad' only",
    ),
    MixerEntry(
        "diffusemix", _HERE + "diffusemix:DiffuseMix", "joined with an edited twin and a fractal",
        "Islam et al., CVPR 2024", "reads a cache; 100 diffusion steps an image to fill it",
        "an editor: a local InstructPix2Pix, extra [diffusemix]",
    ),
    MixerEntry(
        "filtermix", _HERE + "diffusemix:FilterMix",
        "DiffuseMix's layout with plain filters, no diffusion",
        "no paper", "filters and a fractal",
    ),
    MixerEntry(
        "manifold_mixup", _HERE + "manifold_mixup:ManifoldMixup", "mixup of a hidden layer",
        "Verma et al., ICML 2019", "one blend", "a model",
    ),
    MixerEntry(
        "ordinal_manifold_mixup", _HERE + "manifold_mixup:OrdinalManifoldMixup",
        "mixup of a hidden layer, near ranks, targets of one peak",
        "our definition", "one blend", "a model",
    ),
    MixerEntry(
        "alignmixup", _HERE + "alignmixup:AlignMixup", "feature maps aligned, then mixed",
        "Venkataramanan et al., CVPR 2022", "Sinkhorn on the last feature maps", "a model",
    ),
    MixerEntry(
        "sumix", _HERE + "sumix:SUMix", "another mixer's ratio, corrected by the model's view",
        "Qin et al., ECCV 2024", "forward of images and mixes, beside the base mixer's",
        "a model of class scores",
    ),
):  # fmt: skip
    MIXERS.register(_entry.name)(_entry)


def create_mixer(name: str, num_ranks: int | None = None, **options: Any) -> "Mixer":
    """Make a mixer by name.

    Args:
        name: See ``list(MIXERS)``.
        num_ranks: C.
        **options: Of the mixer and of :class:`~dismix.mixing.base.Mixer`.

    Example:
        >>> create_mixer("mixup", 5, alpha=0.4).p
        0.5
    """
    kind, options = MIXERS[name].load(), check_options(name, options)
    try:
        return kind(num_ranks, **options)
    except (TypeError, ValueError) as error:
        # On a command line every option starts as text.
        raise DisMixError(
            f"the mixer '{name}' cannot use its options ({error})", cure="check their values"
        ) from error


def check_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as a mixer takes them: 4.0 as 4 where it counts, one number as a list of one.

    Raises:
        DisMixError: An option that it does not have, or a value that is no number there.

    Example:
        >>> check_options("mixup", {"alpha": "much"})
        Traceback (most recent call last):
        dismix.errors.DisMixError: setting 'alpha': 'much' is no number; give one, such as 1.0
    """
    known, found = _options(MIXERS[name].load()), dict(options)
    for option, value in options.items():
        if option not in known:
            raise DisMixError(
                f"the mixer '{name}' has no option '{option}'", cure=near_names(option, [*known])
            )
        usual = known[option]
        if isinstance(usual, tuple) and usual and isinstance(value, int | float | list | tuple):
            values = value if isinstance(value, list | tuple) else [value]
            found[option] = tuple(_number(option, each, usual[0]) for each in values)
        else:
            found[option] = _number(option, value, usual)
    return found


def _number(option: str, value: Any, usual: Any) -> Any:
    """Return a value as a whole number where the usual one is; what is no number there raises."""
    if isinstance(usual, bool) or not isinstance(usual, int | float):
        return value
    if isinstance(value, str):
        raise DisMixError(
            f"{value!r} is no number", column=option, cure=f"give one, such as {usual}"
        )
    if not isinstance(usual, int) or not isinstance(value, float):
        return value
    if not value.is_integer():
        raise DisMixError(
            f"{value:g} is no whole number", column=option, cure=f"give one, such as {usual}"
        )
    return int(value)


def _options(kind: type) -> dict[str, Any]:
    """Return what a mixer's constructor and those of its bases take, with the usual values."""
    found: dict[str, Any] = {}
    for base in kind.__mro__:
        if "__init__" not in vars(base):
            continue
        taken = signature(vars(base)["__init__"]).parameters.values()
        for parameter in taken:
            if parameter.kind is parameter.KEYWORD_ONLY:
                found.setdefault(parameter.name, parameter.default)
        if not any(p.kind is p.VAR_KEYWORD for p in taken):
            break
    return found
