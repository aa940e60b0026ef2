"""How a frozen generator computes when it mixes."""

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def inference(device: torch.device | str) -> Iterator[None]:
    """Switch off gradients; compute in bfloat16 on a GPU and in float32 elsewhere.

    The caller's own autocast does not reach inside, so mixes do not depend on it.
    """
    kind = torch.device(device).type
    with torch.no_grad(), torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
        yield
