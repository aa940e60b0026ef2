"""Named shapes: factors, latent sizes, refusals, and no torch before it is needed."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from dismix.errors import DisMixError
from dismix.generator.architectures import ARCHITECTURES, build_autoencoder

VQ = ARCHITECTURES["vq-f8"]


def test_registry_lists_them_all():
    assert list(ARCHITECTURES) == ["light", "light-f16", "tiny", "vq-f8"]
    with pytest.raises(DisMixError, match="did you mean 'vq-f8'"):
        ARCHITECTURES["vqf8"]


@pytest.mark.parametrize(
    ("name", "encoder", "decoder"),
    [
        ("vq-f8", 27_397_764, 40_253_955),
        ("light", 1_338_528, 1_338_499),
        ("light-f16", 1_892_192, 1_892_163),
        ("tiny", 81_488, 81_492),
    ],
)
def test_parameter_counts(name: str, encoder: int, decoder: int):
    with torch.device("meta"):
        trunk = build_autoencoder(ARCHITECTURES[name])
    assert sum(p.numel() for p in trunk.encoder.parameters()) == encoder
    assert sum(p.numel() for p in trunk.decoder.parameters()) == decoder


@pytest.mark.parametrize("name", list(ARCHITECTURES))
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [None, 96])
def test_shapes_follow_the_architecture(name: str, channels: int, size: int | None):
    arch = ARCHITECTURES[name].resized(size, channels)
    with torch.device("meta"):
        trunk = build_autoencoder(arch)
        images = torch.zeros(2, channels, arch.image_size, arch.image_size)
    z = trunk.encoder(images)
    assert z.shape == (2, arch.z_channels, arch.latent_size, arch.latent_size)
    assert trunk.decoder(z).shape == images.shape
    assert arch.latent_size * arch.factor == arch.image_size


def test_resizing_keeps_the_keys():
    with torch.device("meta"):
        keys = [list(build_autoencoder(VQ.resized(s)).state_dict()) for s in (256, 224, 64)]
    assert keys[0] == keys[1] == keys[2]
    assert VQ.resized(64).attn_resolutions == (8,)
    assert VQ.resized() == VQ


def test_refusals_name_the_cure():
    with pytest.raises(DisMixError, match="not a multiple of 8; use 224"):
        VQ.resized(225)
    with pytest.raises(DisMixError, match="2 image channels; use 3"):
        VQ.resized(in_channels=2)
    with pytest.raises(DisMixError, match="no level has the attention resolution 48"):
        replace(VQ, attn_resolutions=(48,))
    with pytest.raises(DisMixError, match="attention"):
        replace(VQ, image_size=224)
    with pytest.raises(DisMixError, match="unknown kind 'vae'"):
        replace(VQ, kind="vae")
    with pytest.raises(DisMixError, match="need the kind light; leave them out"):
        replace(VQ, patch=2, image_size=512)


def test_settings_need_no_torch():
    code = "import sys, dismix.generator.architectures; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
