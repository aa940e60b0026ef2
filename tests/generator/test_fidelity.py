"""PSNR and SSIM against loops over windows."""

import numpy as np
import pytest
import torch
from torch import Tensor

from dismix.generator.fidelity import EXACT, psnr, ssim


def pair(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(2, 3, 16, 18, generator=generator) * 2 - 1
    y = (x + 0.3 * torch.randn(x.shape, generator=generator)).clamp(-1, 1)
    return x, y


def slow_ssim(x: np.ndarray, y: np.ndarray) -> float:
    """Wang et al.'s formula on values in [0, 255], one window at a time."""
    offset = np.arange(11) - 5
    weight = np.exp(-(offset[:, None] ** 2 + offset[None] ** 2) / (2 * 1.5**2))
    weight /= weight.sum()
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    values = []
    for c in range(x.shape[0]):
        for i in range(x.shape[1] - 10):
            for j in range(x.shape[2] - 10):
                a, b = x[c, i : i + 11, j : j + 11], y[c, i : i + 11, j : j + 11]
                ma, mb = (weight * a).sum(), (weight * b).sum()
                va, vb = (weight * (a - ma) ** 2).sum(), (weight * (b - mb) ** 2).sum()
                cov = (weight * (a - ma) * (b - mb)).sum()
                top = (2 * ma * mb + c1) * (2 * cov + c2)
                values.append(top / ((ma**2 + mb**2 + c1) * (va + vb + c2)))
    return float(np.mean(values))


def test_ssim_formula():
    x, y = pair()
    pixels = [((image.double() + 1) * 127.5).numpy() for image in (x, y)]
    expected = torch.tensor([slow_ssim(a, b) for a, b in zip(*pixels, strict=True)])
    torch.testing.assert_close(ssim(x, y), expected.float(), atol=1e-5, rtol=0)
    scaled = ssim((x + 1) * 127.5, (y + 1) * 127.5, low=0.0, high=255.0)
    torch.testing.assert_close(scaled, expected.float(), atol=1e-5, rtol=0)


def test_ssim_equals_scikit_image():
    metrics = pytest.importorskip("skimage.metrics")
    x, y = pair()
    expected = [
        metrics.structural_similarity(
            *((image[i].double().numpy() + 1) / 2 for image in (x, y)),
            channel_axis=0,
            data_range=1.0,
            gaussian_weights=True,
            use_sample_covariance=False,
        )
        for i in range(2)
    ]
    torch.testing.assert_close(ssim(x, y), torch.tensor(expected).float(), atol=1e-5, rtol=0)


def test_psnr_formula():
    x, y = pair()
    for i, value in enumerate(psnr(x, y)):
        error = np.mean((x[i].double().numpy() - y[i].double().numpy()) ** 2)
        assert float(value) == pytest.approx(20 * np.log10(2 / np.sqrt(error)), abs=1e-4)
    assert (psnr(x, x) == EXACT).all()
    torch.testing.assert_close(psnr((x + 1) / 2, (y + 1) / 2, low=0.0), psnr(x, y))


def test_half_precision_images():
    x, y = pair()
    assert psnr(x.bfloat16(), y).dtype == torch.float32
    torch.testing.assert_close(ssim(x.bfloat16(), y), ssim(x, y), atol=1e-2, rtol=0)
