"""DisMix: order-aware mixup for graded medical images.

Severity and appearance are two separate codes of an image; each is mixed on its own.
Importing this package is quick: the heavy parts are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "DisMix": "dismix.mixing.dismix",
    "DisMixError": "dismix.errors",
    "Generator": "dismix.generator.model",
    "OrdinalTarget": "dismix.labels",
    "Manifest": "dismix.data.manifest",
    "read_manifest": "dismix.data.manifest",
    "write_manifest": "dismix.data.manifest",
}
__all__ = [
    "DisMix",
    "DisMixError",
    "Generator",
    "Manifest",
    "OrdinalTarget",
    "read_manifest",
    "write_manifest",
]

if TYPE_CHECKING:
    from dismix.data.manifest import Manifest, read_manifest, write_manifest
    from dismix.errors import DisMixError
    from dismix.generator.model import Generator
    from dismix.labels import OrdinalTarget
    from dismix.mixing.dismix import DisMix


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'dismix' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
