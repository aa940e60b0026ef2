"""The fast decoder decodes what the generator decodes."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dismix.generator.codes import Codes
from dismix.generator.config import GeneratorConfig
from dismix.generator.fast_decode import FastDecoder, FoldedUpsample
from dismix.generator.model import Generator


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (7, 4)])
def test_folding_equals_doubling_then_convolving(bias: bool, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    conv, x = nn.Conv2d(3, 5, 3, padding=1, bias=bias).double(), torch.randn(2, 3, *size).double()
    slow = conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))
    assert torch.allclose(FoldedUpsample(conv)(x), slow, atol=1e-12)


@pytest.mark.parametrize("arch", ["tiny", "light", "vq-f8"])
def test_every_architecture_decodes_the_same(arch: str) -> None:
    config = GeneratorConfig(num_ranks=5, arch=arch, nonordinal_codes=16, image_size=32)
    generator = Generator.seeded(config, seed=0).eval()
    size = generator.latent_size
    codes = Codes(
        torch.randn(2, generator.config.ordinal_width, size, size),
        torch.randn(2, generator.config.code_dim, size, size),
    )
    fast = FastDecoder(generator)
    with torch.no_grad():
        slow = generator.decode(codes)
    assert any(isinstance(m, FoldedUpsample) for m in fast.modules())
    assert torch.allclose(fast(codes), slow, atol=2e-4)


def test_bfloat16_is_close_and_returns_float32() -> None:
    generator = Generator.seeded(GeneratorConfig(num_ranks=5, arch="tiny"), seed=0).eval()
    codes = generator.encode(torch.rand(2, 1, 64, 64) * 2 - 1)
    with torch.autocast("cpu", torch.bfloat16):
        made = FastDecoder(generator, torch.bfloat16)(codes)
    assert made.dtype == torch.float32
    assert float((made - generator.decode(codes)).abs().mean()) < 0.02


def test_a_coarse_ordinal_grid_is_spread() -> None:
    config = GeneratorConfig(num_ranks=5, arch="tiny", ordinal_grid=1)
    generator = Generator.seeded(config, seed=0).eval()
    codes = generator.encode(torch.rand(2, 1, 64, 64))
    assert codes.ordinal.shape[-1] == 1
    assert torch.allclose(FastDecoder(generator)(codes), generator.decode(codes), atol=1e-4)
