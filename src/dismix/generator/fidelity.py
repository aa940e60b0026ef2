"""How close reconstructions are: PSNR (in dB) and SSIM (Wang et al. 2004), one value an image."""

import torch
import torch.nn.functional as F
from torch import Tensor

#: PSNR (dB) of an image rebuilt exactly, such as a black one; infinite, it would leave no mean.
EXACT = 100.0


def psnr(images: Tensor, targets: Tensor, *, low: float = -1.0, high: float = 1.0) -> Tensor:
    """Return the peak signal-to-noise ratio in dB.

    Args:
        images: (B, channels, H, W).
        targets: The same shape.
        low: Value of black.
        high: Value of white.

    Returns:
        (B,) float32; `EXACT` where two images are equal, and never more.

    Example:
        >>> psnr(torch.full((1, 1, 8, 8), 0.2), torch.zeros(1, 1, 8, 8))
        tensor([20.])
    """
    error = (images.float() - targets.float()).square().mean(dim=(1, 2, 3))
    return (10 * torch.log10((high - low) ** 2 / error)).clamp(max=EXACT)


def _window(size: int, sigma: float, like: Tensor) -> Tensor:
    offset = torch.arange(size, dtype=like.dtype, device=like.device) - (size - 1) / 2
    weight = torch.exp(-offset.square() / (2 * sigma**2))
    return weight / weight.sum()


def ssim(
    images: Tensor,
    targets: Tensor,
    *,
    low: float = -1.0,
    high: float = 1.0,
    window: int = 11,
    sigma: float = 1.5,
) -> Tensor:
    """Return the structural similarity, averaged over channels and whole windows.

    Args:
        images: (B, channels, H, W), sides at least `window`.
        targets: The same shape.
        low: Value of black.
        high: Value of white.
        window: Side of the Gaussian window in pixels.
        sigma: Its standard deviation in pixels.

    Returns:
        (B,) float32; 1 where two images are equal.

    Example:
        >>> image = torch.linspace(-1, 1, 256).reshape(1, 1, 16, 16)
        >>> ssim(image, image), ssim(image, image + 0.5).round(decimals=2)
        (tensor([1.]), tensor([0.9200]))
    """
    # The luminance term is meant for values from 0 on, hence the shift; variances are
    # differences of near-equal numbers, hence at least single precision.
    x, y = ((image.float() - low) / (high - low) for image in (images, targets))
    count, channels, height, width = x.shape
    weight = _window(window, sigma, x)

    def blur(image: Tensor) -> Tensor:
        flat = image.reshape(count * channels, 1, height, width)
        return F.conv2d(F.conv2d(flat, weight.view(1, 1, -1, 1)), weight.view(1, 1, 1, -1))

    mean_x, mean_y = blur(x), blur(y)
    var_x = blur(x * x) - mean_x.square()
    var_y = blur(y * y) - mean_y.square()
    covariance = blur(x * y) - mean_x * mean_y
    c1, c2 = 0.01**2, 0.03**2
    luminance = (2 * mean_x * mean_y + c1) / (mean_x.square() + mean_y.square() + c1)
    structure = (2 * covariance + c2) / (var_x + var_y + c2)
    return (luminance * structure).reshape(count, -1).mean(dim=1)
