"""A study of seconds: 32 px phantom knees, everything as short as it can be."""

from pathlib import Path
from typing import Any

from dismix.data.manifest import Manifest
from dismix.data.phantom import PhantomSpec, build_phantom
from dismix.study.choices import Choices

TINY = {
    "generator.guide": "0", "generator.mix": "0", "generator.seen": "0",
    "generator.freeze_trunk": "false", "generator.nonordinal_codes": "64",
    "generator.ordinal_codes": "16", "generator.batch_size": "16",
}  # fmt: skip


def toy_choices(**changes: Any) -> Choices:
    """Return choices of a study that learns nothing, quickly."""
    first = {
        "folds": 2, "repeats": 1, "epochs": 1, "generator_epochs": 1, "size": 32, "cpu": True,
        "changes": TINY,
    }  # fmt: skip
    return Choices(**{**first, **changes})


def toy_images(folder: Path, **changes: Any) -> Manifest:
    """Draw a few graded knees."""
    first: dict[str, Any] = {"train": 24, "val": 0, "test": 6, "size": 32, "num_ranks": 3}
    return build_phantom(PhantomSpec(**{**first, **changes}), folder)
