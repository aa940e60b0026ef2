"""Mixers: two lines in a training loop, or a folder of mixed images.

Names are imported when they are first used, so that the command line can list the mixers
without loading torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "BASELINES": "registry",
    "MIXERS": "registry",
    "AlignMixup": "alignmixup",
    "CachedEditor": "editors",
    "CoMixup": "comixup",
    "CutMix": "cutmix",
    "DisMix": "dismix",
    "DiffuseMix": "diffusemix",
    "DiffusersEditor": "editors",
    "FilterMix": "diffusemix",
    "GuidedMixup": "guidedmixup",
    "ManifoldMixup": "manifold_mixup",
    "MixInfo": "info",
    "Mixer": "base",
    "Mixup": "mixup",
    "OrdinalManifoldMixup": "manifold_mixup",
    "OrdinalPairSampler": "sampler",
    "PuzzleMix": "puzzlemix",
    "RankMixupLoss": "rankmixup",
    "ResizeMix": "resizemix",
    "SUMix": "sumix",
    "TimmCompat": "adapters",
    "as_collate": "adapters",
    "create_mixer": "registry",
    "gradient_saliency": "saliency",
    "spectral_saliency": "saliency",
}

if TYPE_CHECKING:
    from dismix.mixing.adapters import TimmCompat as TimmCompat
    from dismix.mixing.adapters import as_collate as as_collate
    from dismix.mixing.alignmixup import AlignMixup as AlignMixup
    from dismix.mixing.base import Mixer as Mixer
    from dismix.mixing.comixup import CoMixup as CoMixup
    from dismix.mixing.cutmix import CutMix as CutMix
    from dismix.mixing.diffusemix import DiffuseMix as DiffuseMix
    from dismix.mixing.diffusemix import FilterMix as FilterMix
    from dismix.mixing.dismix import DisMix as DisMix
    from dismix.mixing.editors import CachedEditor as CachedEditor
    from dismix.mixing.editors import DiffusersEditor as DiffusersEditor
    from dismix.mixing.guidedmixup import GuidedMixup as GuidedMixup
    from dismix.mixing.info import MixInfo as MixInfo
    from dismix.mixing.manifold_mixup import ManifoldMixup as ManifoldMixup
    from dismix.mixing.manifold_mixup import OrdinalManifoldMixup as OrdinalManifoldMixup
    from dismix.mixing.mixup import Mixup as Mixup
    from dismix.mixing.puzzlemix import PuzzleMix as PuzzleMix
    from dismix.mixing.rankmixup import RankMixupLoss as RankMixupLoss
    from dismix.mixing.registry import BASELINES as BASELINES
    from dismix.mixing.registry import MIXERS as MIXERS
    from dismix.mixing.registry import create_mixer as create_mixer
    from dismix.mixing.resizemix import ResizeMix as ResizeMix
    from dismix.mixing.saliency import gradient_saliency as gradient_saliency
    from dismix.mixing.saliency import spectral_saliency as spectral_saliency
    from dismix.mixing.sampler import OrdinalPairSampler as OrdinalPairSampler
    from dismix.mixing.sumix import SUMix as SUMix


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"dismix.mixing.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'dismix.mixing' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
