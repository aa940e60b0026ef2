"""All settings of a grader's training, from a preset and the user's changes."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from dismix.errors import DisMixError
from dismix.graders.backbones import TINY
from dismix.graders.base import make_config
from dismix.graders.choices import bounded, check_settings
from dismix.graders.cut_points import Cuts, rule_of
from dismix.graders.registry import GRADERS, OptimizerName, Schedule
from dismix.graders.selection import check_rules
from dismix.registry import near_names

PRESETS = ("dismix", "reference")
# The smallest spread over seeds of the rules that choose (results/graders).
DEFAULT_SELECT = ("loss",)
LR_FROM_NOTHING = 3e-3
#: Settings that came later: left out of records at these values, so that older ones stay the same.
LATER = {"cuts": None, "mix_from": 0.0, "mix_until": 1.0}


@dataclass(frozen=True)
class TrainSettings:
    """How a grader is trained.

    Attributes:
        method: Name in `GRADERS`.
        preset: Where the rest started from.
        backbone: See `create_backbone`.
        weights: See `create_backbone`.
        epochs: Passes over the training split, all stages together.
        batch_size: Images a step, over all devices.
        lr: Learning rate; stages may scale it for some parameters.
        weight_decay: On weights, not on biases, norms and margins.
        optimizer: "adam", "adamw" or "sgd".
        schedule: "cosine", "constant" or "step", within each stage.
        final_lr: Last learning rate of "cosine" as a share of the first.
        clip: Largest norm of the gradient, 0 for none.
        select: Rules that choose the checkpoint, see `dismix.graders.selection`; the
            first one's is the model, those of others are kept beside it.
        cuts: Where the expected rank goes over to the next grade, for methods that decide by it
            or may do so (MWR, RnC, POE, GOL): "fitted" on validation, or "nearest" as their
            authors do. None for the others.
        average: Averaged weights look back over this share of a stage's steps.
        validate_every: Epochs between validations; also after the last one.
        augment: Flips and rotations, before mixing; after it where a stage has several views,
            which then differ by nothing else and are augmented in any case.
        balanced: Draw grades equally often.
        mix_from: Share of the epochs before mixing begins.
        mix_until: Share of the epochs after which it ends, so that the last ones see images as
            they are. Both mean nothing without a mixer.
        rank_weights: Weight of each rank, "balanced" for inverse frequency, or empty.
        size: Pixels a side.
        hparams: The method's own settings.
    """

    method: str
    preset: str = "dismix"
    backbone: str = "vgg16"
    weights: str = "auto"
    epochs: int = bounded(200, least=1)
    batch_size: int = bounded(64, least=1)
    lr: float = bounded(1e-4, above=0)
    weight_decay: float = bounded(1e-4, least=0)
    optimizer: OptimizerName = "adam"
    schedule: Schedule = "cosine"
    final_lr: float = bounded(0.0, least=0, most=1)
    clip: float = bounded(0.0, least=0)
    select: tuple[str, ...] = DEFAULT_SELECT
    cuts: Cuts | None = None
    average: float = bounded(0.05, least=0, most=1)
    validate_every: int = bounded(2, least=1)
    augment: bool = True
    balanced: bool = False
    mix_from: float = bounded(0.0, least=0, below=1)
    mix_until: float = bounded(1.0, above=0, most=1)
    rank_weights: tuple[float, ...] | Literal["balanced"] = ()
    size: int = bounded(256, least=1)
    hparams: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_rules(self.select)
        check_settings(self)
        if self.cuts is not None:
            _require_by_rank(self.method, self.hparams, self.cuts)
        if not any(self.mixes(epoch) for epoch in range(self.epochs)):
            raise DisMixError(
                f"no epoch of {self.epochs} lies between {self.mix_from:g} and {self.mix_until:g}",
                column="mix_until",
                cure="give a larger share, or train without a mixer",
            )
        weights = self.rank_weights
        if weights and weights != "balanced":
            right = all(0 <= float(weight) < math.inf for weight in weights)
            if not right or not any(weights):
                raise DisMixError(
                    f"{weights} are no weights",
                    column="rank_weights",
                    cure="give numbers that are not negative, some above 0, or 'balanced'",
                )

    def mixes(self, epoch: int) -> bool:
        """Tell whether images are mixed in an epoch, counted from 0.

        Example:
            >>> settings = TrainSettings("ce", epochs=5, mix_until=0.8)
            >>> [settings.mixes(epoch) for epoch in range(5)]
            [True, True, True, True, False]
        """
        first, last = (round(share * self.epochs) for share in (self.mix_from, self.mix_until))
        return first <= epoch < last

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; younger settings only where they change anything."""
        values = dataclasses.asdict(self)
        return {name: v for name, v in values.items() if name not in LATER or v != LATER[name]}


def choose_settings(
    method: str, preset: str = "dismix", changes: Mapping[str, Any] | None = None
) -> TrainSettings:
    """Return a preset with changes.

    Args:
        method: Name in `GRADERS`.
        preset: "dismix" or "reference".
        changes: Fields of `TrainSettings` or of the method's configuration; values may be
            text, as the command line gives them. None values are passed over.

    Example:
        >>> chosen = choose_settings("ce", changes={"epochs": "3", "dropout": "0.1"})
        >>> chosen.epochs, chosen.hparams
        (3, {'dropout': 0.1})
    """
    entry = GRADERS[method]
    if preset not in PRESETS:
        raise DisMixError(f"unknown preset '{preset}'", cure=near_names(preset, [*PRESETS]))
    values = {f.name: getattr(entry.presets[preset], f.name) for f in dataclasses.fields(
        entry.presets[preset])}  # fmt: skip
    hparams = dict(values.pop("hparams"))
    own, theirs = get_type_hints(TrainSettings), get_type_hints(entry.make.config_type)
    known = [n for n in own if n not in ("method", "preset", "hparams")]
    for name, value in (changes or {}).items():
        if value is None:
            continue
        if name in known:
            values[name] = typed(name, value, own[name])
        elif name in theirs:
            hparams[name] = typed(name, value, theirs[name])
        else:
            raise DisMixError(
                f"unknown setting '{name}' of '{method}'", cure=near_names(name, [*known, *theirs])
            )
    values |= _cuts(method, preset, values, hparams)
    if values["backbone"] == TINY and (changes or {}).get("lr") is None:
        # Presets are for pretrained networks; one that starts from nothing needs longer steps.
        values["lr"] = LR_FROM_NOTHING
    return TrainSettings(method, preset, hparams=hparams, **values)


def _cuts(
    method: str, preset: str, values: Mapping[str, Any], hparams: Mapping[str, Any]
) -> dict[str, Cuts]:
    """Return where grades are cut, for what decides so; it is refused where nothing would be."""
    if "cuts" in values:
        # "none" are fitted, then.
        cuts: Cuts = values["cuts"] or "nearest"
        _require_by_rank(method, hparams, cuts)
        return {"cuts": cuts}
    make = GRADERS[method].make
    config = make_config(make.config_type, hparams)
    if make.decides_by_rank(config):
        nearest = preset == "reference" and rule_of(config) == "rank"
        return {"cuts": "nearest" if nearest else "fitted"}
    return {}


def _require_by_rank(method: str, hparams: Mapping[str, Any], cuts: Cuts) -> None:
    """Raise where cut points would change nothing, or are not what was asked for."""
    make = GRADERS[method].make
    config = make_config(make.config_type, hparams)
    fits = cuts == "nearest" and rule_of(config) == "auto"
    if make.decides_by_rank(config) and not fits:
        return
    who, cure = f"'{method}'", "leave it out"
    if make.by_rank_with is not None:
        name, values = make.by_rank_with
        who = f"{who} with {name}={getattr(config, name)}"
        cure = f"{cure}, or set {name}={values[0]}"
    does = "fits its cut points" if fits else "decides for the most probable rank"
    raise DisMixError(f"{who} {does}", column="cuts", cure=cure)


def usual_batch(images: int) -> int:
    """Return a batch that leaves a small set some steps an epoch.

    A study takes it; trainings with larger batches are told of it when they learn nothing.

    Args:
        images: Training images.

    Example:
        >>> usual_batch(60), usual_batch(400), usual_batch(9000)
        (8, 16, 64)
    """
    return next((size for size, most in ((8, 100), (16, 800), (32, 3000)) if images < most), 64)


def typed(name: str, value: Any, hint: Any) -> Any:
    """Return text from the command line as what a field of type ``hint`` takes.

    Example:
        >>> typed("select", "loss,last", tuple[str, ...]), typed("k", "none", int | None)
        (('loss', 'last'), None)
    """
    kinds = get_args(hint) if _is_union(hint) else (hint,)
    if not isinstance(value, str):
        return _fitting(name, value, kinds)
    words: list[str] = []
    for kind in kinds:
        if get_origin(kind) is Literal:
            if value in get_args(kind):
                return value
            words += [str(choice) for choice in get_args(kind)]
        elif get_origin(kind) is tuple:
            items = [v for v in value.replace(",", " ").split() if v]
            try:
                return tuple(get_args(kind)[0](item) for item in items)
            except ValueError:
                words.append("numbers with commas between")
        elif (found := _plain(value, kind)) is not _NOTHING:
            return found
        else:
            words.append(_WORDS.get(kind, "none"))
    raise DisMixError(f"'{value}' does not fit", column=name, cure="give " + " or ".join(words))


def _fitting(name: str, value: Any, kinds: tuple[Any, ...]) -> Any:
    """Return what is no text as a field takes it: 3.0 as 3 where it counts, 3 as (3,) in a list."""
    lists = [kind for kind in kinds if get_origin(kind) is tuple]
    if lists:
        items = value if isinstance(value, list | tuple) else [value]
        return tuple(_fitting(name, item, get_args(lists[0])[:1]) for item in items)
    whole = int in kinds and float not in kinds and isinstance(value, float)
    if whole and not value.is_integer():
        raise DisMixError(f"'{value:g}' does not fit", column=name, cure="give a whole number")
    return int(value) if whole else value


_NOTHING = object()
_WORDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false"}
_TRUTH = {"true": True, "yes": True, "1": True, "on": True,
          "false": False, "no": False, "0": False, "off": False}  # fmt: skip


def _plain(value: str, kind: Any) -> Any:
    if kind is str:
        return value
    if kind is bool:
        return _TRUTH.get(value.lower(), _NOTHING)
    if kind is type(None):
        return None if value.lower() == "none" else _NOTHING
    try:
        return kind(value)
    except (TypeError, ValueError):
        return _NOTHING


def _is_union(hint: Any) -> bool:
    import types

    return get_origin(hint) in (Union, types.UnionType)
