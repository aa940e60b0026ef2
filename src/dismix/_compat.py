"""The only workaround file: torchvision wheels built for CUDA beside a CPU torch.

Such a torchvision cannot load its C++ library, and then fails on import because it adds
a fake kernel to operators that were never defined. Defining the two schemas first lets
everything that DisMix uses work (transforms, models, timm, lpips); the C++ operators
themselves stay unavailable. A no-op on any sane installation.
"""

import sys
from types import ModuleType

_keep_alive: list[object] = []


def import_torchvision() -> ModuleType:
    """Import and return torchvision; call this before timm, lpips or torchvision itself.

    Example:
        >>> import_torchvision().__name__
        'torchvision'
    """
    try:
        import torchvision
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        import torch

        for name in [n for n in sys.modules if n.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in ("nms", "qnms"):
            library.define(  # type: ignore[no-untyped-call]
                f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
        _keep_alive.append(library)
        import torchvision
    module: ModuleType = torchvision
    return module
