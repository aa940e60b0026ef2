"""Mixers: two lines in a training loop, or a folder of mixed images.

Names are imported when they are first used, so that the command line can list the mixers
without loading torch.
"""

from importlib import import_module
from typing import Any

_WHERE = {
    "MIXERS": "registry",
    "create_mixer": "registry",
    "Mixer": "base",
    "MixInfo": "info",
    "PairMixer": "pairs",
    "Mixup": "mixup",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'dismix.mixing' has no attribute '{name}'")
    return getattr(import_module(f"dismix.mixing.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
