"""Fused convolutions are those of the network they come from."""

import pytest
import torch
from torch import Tensor, nn

from dismix.generator.architectures import ARCHITECTURES, build_autoencoder
from dismix.generator.fast_decode import fold_upsampling
from dismix.generator.fused_conv import FusedConv, FusedLightBlock, fuse, fused_if_it_works


@pytest.mark.parametrize("name", ["tiny", "light", "light-f16"])
def test_a_fused_decoder_decodes_the_same(name: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        decoder = build_autoencoder(ARCHITECTURES[name].resized(64)).decoder
        z = torch.randn(2, ARCHITECTURES[name].z_channels, 4, 4)
    fused = fuse(fold_upsampling(decoder))
    with torch.no_grad():
        torch.testing.assert_close(fused(z), decoder(z), rtol=1e-4, atol=1e-5)
    blocks = sum(isinstance(m, FusedLightBlock) for m in fused.modules())
    assert blocks == {"tiny": 3, "light": 10, "light-f16": 12}[name]
    left = [m for m in fused.modules() if isinstance(m, nn.ReLU)]
    # Only the normalised side path keeps its own.
    assert len(left) == {"tiny": 0, "light": 3, "light-f16": 3}[name]


def test_the_first_network_is_left_alone() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.ReLU())
    fused = fuse(net)
    assert isinstance(net[0], nn.Conv2d)
    with torch.no_grad():
        fused[0].conv.weight.zero_()  # type: ignore[index]
    assert net[0].weight.abs().sum() > 0


def test_what_fails_or_differs_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU())
    x = torch.rand(1, 1, 8, 8)
    assert fused_if_it_works(net, x) is not net

    def wrong(self: FusedConv, x: Tensor, plus: Tensor | None = None) -> Tensor:
        return torch.relu(self.conv(x)) + 1.0

    monkeypatch.setattr(FusedConv, "forward", wrong)
    with pytest.warns(UserWarning, match="results differ"):
        assert fused_if_it_works(net, x) is net

    def fails(self: FusedConv, x: Tensor, plus: Tensor | None = None) -> Tensor:
        raise RuntimeError("no engine for this type")

    monkeypatch.setattr(FusedConv, "forward", fails)
    with pytest.warns(UserWarning, match="no engine for this type"):
        assert fused_if_it_works(net, x) is net
