"""Memory layout of convolutions: channels last, where that is faster.

On GPUs tensor cores want it; on CPUs EfficientNet-Lite0 trains 1.7 times as fast with it, and
nothing that was measured is slower (`benchmarks/layout_speed.py`,
``results/graders/records/layout_cpu.json``). Saved weights are laid out as
usual, whatever the network was trained in.
"""

import torch
from torch import Tensor, nn

#: Kinds of devices on which it was measured to pay; others keep what they have.
FAST_ON = ("cpu", "cuda")


def lay_out(network: nn.Module, device: torch.device) -> None:
    """Lay a network's convolutions out for a device, in place; maps follow the weights.

    Args:
        network: On any device.
        device: The one it will run on.

    Example:
        >>> layer = nn.Conv2d(3, 8, 3)
        >>> lay_out(layer, torch.device("cpu"))
        >>> layer.weight.is_contiguous(memory_format=torch.channels_last)
        True
    """
    layout = torch.channels_last if device.type in FAST_ON else torch.contiguous_format
    network.to(memory_format=layout)  # type: ignore[call-overload]


def laid_out(images: Tensor) -> Tensor:
    """Return images (B, channels, H, W) laid out as convolutions on their device want them."""
    if images.device.type in FAST_ON:
        return images.contiguous(memory_format=torch.channels_last)
    return images
