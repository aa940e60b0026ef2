"""What the generator is made of. How it is trained belongs to the trainer's recipe."""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from dismix import atomic
from dismix.errors import DisMixError
from dismix.registry import near_names

# Raised when a config of the current shape would no longer say what an older file meant.
FORMAT = 1


@dataclass(frozen=True)
class GeneratorConfig:
    """The structure of a generator; the defaults are the project's, not all the paper's.

    Attributes:
        num_ranks: C, at least 2.
        arch: Autoencoder ("vq-f8" is the paper's, "light" and "tiny" are smaller).
        image_size: Pixels a side; None takes the architecture's.
        in_channels: 1 or 3; None takes the architecture's.
        code_dim: Dimension of the non-ordinal codes.
        ordinal_dim: Dimension of the ordinal codes; None takes ``code_dim``.
        ordinal_grid: Positions a side of the ordinal codes; None takes the latent's, 1 is one
            code for the whole image.
        ordinal_trunk: What the ordinal branch looks at: "none" is the encoder's features (the
            paper), "conv" a few convolutions on the image, "lite0" EfficientNet-Lite0 on it.
        ordinal_codes: Size of the ordinal codebook.
        nonordinal_codes: Size of the non-ordinal codebook.
        codebooks: "dual", or "single" for the paper's one-codebook ablation.
        projections: "two" gives each branch its own projection of the encoder's output,
            "shared" is the paper's single z.
        attention: "hard", or "soft" for the ablation.
        cosine: Compare directions in the ordinal attention; the paper's form is False.
        temperature: Divides the attention logits; None is 0.1 with cosine and 1 without.
        learn_temperature: Let training move the temperature.
        conditioned: False never shows labels to the ordinal branch.
        null_label: What stands in when no label is given: a "learned" vector, the label
            "predicted" from z, or "none", which is z~ = z.
        rank_only: The ordinal code depends on the rank alone, given or predicted; everything
            else a picture shows must go through the non-ordinal code.
        p_uncond: Share of training samples encoded without their label.
        classifier_input: What the rank classifiers read: "flatten" (linear on all
            positions), "pool" (linear on the mean) or "conv" (a small network).
        nonordinal_dropout: Share of non-ordinal positions hidden from the decoder in training.
        nonordinal_noise: Noise on the non-ordinal codes the decoder sees in training, in
            units of their standard deviation.

    Example:
        >>> config = GeneratorConfig(num_ranks=5, arch="tiny")
        >>> GeneratorConfig.from_dict(config.to_dict()) == config
        True
    """

    num_ranks: int
    arch: str = "vq-f8"
    image_size: int | None = None
    in_channels: int | None = None
    code_dim: int = 4
    ordinal_dim: int | None = None
    ordinal_grid: int | None = None
    ordinal_trunk: Literal["none", "conv", "lite0"] = "none"
    ordinal_codes: int = 512
    nonordinal_codes: int = 16384
    codebooks: Literal["dual", "single"] = "dual"
    projections: Literal["two", "shared"] = "two"
    attention: Literal["hard", "soft"] = "hard"
    cosine: bool = True
    temperature: float | None = None
    learn_temperature: bool = False
    conditioned: bool = True
    null_label: Literal["learned", "predicted", "none"] = "learned"
    rank_only: bool = False
    p_uncond: float = 0.2
    classifier_input: Literal["flatten", "pool", "conv"] = "flatten"
    nonordinal_dropout: float = 0.0
    nonordinal_noise: float = 0.0

    def __post_init__(self) -> None:
        _check_choices(self)
        _check_numbers(self)
        own = {
            "ordinal_dim": self.ordinal_width != self.code_dim,
            "ordinal_grid": self.ordinal_grid is not None,
            "ordinal_trunk": self.ordinal_trunk != "none",
        }
        if self.rank_only and not (self.conditioned and self.null_label == "predicted"):
            raise DisMixError(
                "a code of the rank alone needs a rank for images without label",
                column="rank_only",
                cure="set null_label to 'predicted' and leave conditioned on",
            )
        for name, wanted in own.items():
            if self.single_latent and wanted:
                raise DisMixError(
                    "one latent for both branches has no ordinal shape of its own",
                    column=name,
                    cure=f"leave {name} out, or choose codebooks 'dual' and projections 'two'",
                )

    @property
    def ordinal_width(self) -> int:
        """Dimension of the ordinal codes."""
        return self.code_dim if self.ordinal_dim is None else self.ordinal_dim

    @property
    def single_latent(self) -> bool:
        """Whether both branches read the same projection."""
        return self.codebooks == "single" or self.projections == "shared"

    @property
    def attention_temperature(self) -> float:
        """The temperature in force."""
        if self.temperature is not None:
            return self.temperature
        return 0.1 if self.cosine else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON or YAML."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "GeneratorConfig":
        """Build a config from plain values; unknown or missing fields are errors.

        Example:
            >>> GeneratorConfig.from_dict({"num_ranks": 5, "code_dims": 4})
            Traceback (most recent call last):
            dismix.errors.DisMixError: unknown field 'code_dims'; did you mean 'code_dim' ...
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                raise DisMixError(f"unknown field '{name}'", cure=near_names(str(name), known))
        if "num_ranks" not in values:
            raise DisMixError("field 'num_ranks' is missing", cure="write the number of ranks")
        return cls(**values)


def write_config(path: str | Path, config: GeneratorConfig) -> None:
    """Write a config as JSON, atomically."""
    atomic.write_json(path, {"format": FORMAT, **config.to_dict()})


def read_config(path: str | Path) -> GeneratorConfig:
    """Read what `write_config` wrote; every problem names the file."""
    cure = "give the folder of a trained generator"
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DisMixError("no such file", file=path, cure=cure) from error
    except (OSError, ValueError) as error:
        raise DisMixError(f"unreadable ({error})", file=path, cure=cure) from error
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise DisMixError(f"not a generator's config of format {FORMAT}", file=path, cure=cure)
    try:
        return GeneratorConfig.from_dict(values)
    except DisMixError as error:
        raise DisMixError(error.problem, file=path, column=error.column, cure=error.cure) from error


def _check_choices(config: GeneratorConfig) -> None:
    for name, hint in get_type_hints(GeneratorConfig).items():
        value, choices = getattr(config, name), get_args(hint)
        if all(isinstance(choice, str) for choice in choices) and choices and value not in choices:
            raise DisMixError(
                f"'{value}' is not a choice", column=name, cure=near_names(str(value), [*choices])
            )
        if hint is bool and not isinstance(value, bool):
            raise DisMixError(f"'{value}' is not a truth value", column=name, cure="true or false")


def _check_numbers(config: GeneratorConfig) -> None:
    sizes = {"num_ranks": 2, "code_dim": 1, "ordinal_codes": 2, "nonordinal_codes": 2}
    optional = {"image_size": 1, "in_channels": 1, "ordinal_dim": 1, "ordinal_grid": 1}
    for name, least in (sizes | optional).items():
        value = getattr(config, name)
        if value is None and name in optional:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise DisMixError(
                f"'{value}' is too small or not a whole number",
                column=name,
                cure=f"write a whole number of at least {least}",
            )
    for name in ("p_uncond", "nonordinal_dropout"):
        if not _is_number(getattr(config, name)) or not 0.0 <= getattr(config, name) <= 1.0:
            raise DisMixError("not a share", column=name, cure="write a number from 0 to 1")
    if not _is_number(config.nonordinal_noise) or config.nonordinal_noise < 0.0:
        raise DisMixError("not a strength", column="nonordinal_noise", cure="write 0 or more")
    if config.temperature is not None and not (
        _is_number(config.temperature) and config.temperature > 0.0
    ):
        raise DisMixError("not above 0", column="temperature", cure="write a number above 0")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
