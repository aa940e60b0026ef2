"""Backbones: shapes, statistics, weights from files, and what wrong files say."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from dismix.errors import DisMixError
from dismix.graders.backbones import _TimmTrunk, create_backbone


@pytest.fixture
def no_weights(monkeypatch, tmp_path):
    monkeypatch.setenv("DISMIX_WEIGHTS", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))


def test_tiny_takes_grey_and_colour_alike():
    backbone = create_backbone("tiny").eval()
    grey = torch.rand(2, 1, 40, 40)
    assert torch.equal(backbone(grey), backbone(grey.expand(-1, 3, -1, -1)))
    assert backbone(grey).shape == (2, backbone.out_dim)
    assert backbone.forward_map(grey).min() >= 0
    assert backbone.relu_out


@pytest.mark.parametrize("shape", [(2, 4, 8, 8), (2, 8, 8, 3), (3, 8, 8)])
def test_images_of_another_form_are_refused(shape):
    with pytest.raises(DisMixError, match=r"images must be \(B, 1 or 3, H, W\), got"):
        create_backbone("tiny")(torch.zeros(shape))


def test_tokens_become_a_map_for_any_batch():
    class Tokens(torch.nn.Module):
        num_prefix_tokens = 1

        def forward_features(self, images):
            patches = torch.nn.functional.unfold(images, 4, stride=4).transpose(1, 2)
            return torch.cat([patches[:, :1], patches], 1)

    trunk = _TimmTrunk(Tokens())
    batch = {"images": {0: torch.export.Dim("batch", min=1, max=64)}}
    program = torch.export.export(trunk, (torch.rand(2, 3, 20, 20),), dynamic_shapes=batch)
    images = torch.rand(5, 3, 20, 20)
    found = program.module()(images)
    assert found.shape == (5, 48, 5, 5)
    assert torch.equal(found[:, :16, 1, 2], images[:, 0, 4:8, 8:12].flatten(1))


@pytest.mark.parametrize(
    ("name", "dim", "positive", "size"),
    [("resnet18", 512, True, 64), ("tf_efficientnet_lite0", 1280, True, 96),
     ("vgg11", 512, True, 64), ("vit_tiny_patch16_224", 192, False, 224),
     pytest.param("swin_tiny_patch4_window7_224", 768, False, 224, marks=pytest.mark.slow)],
)  # fmt: skip
def test_timm_networks_by_name(name, dim, positive, size):
    backbone = create_backbone(name, weights=None).eval()
    features = backbone.forward_map(torch.zeros(1, 1, size, size))
    assert features.shape[:2] == (1, dim)
    assert features.ndim == 4
    assert (backbone.out_dim, backbone.relu_out) == (dim, positive)
    assert backbone(torch.zeros(1, 3, size, size)).shape == (1, dim)


def test_input_statistics_are_those_of_the_pretraining():
    class Same(torch.nn.Module):
        def forward(self, images):
            return images

    backbone = create_backbone("vgg11", weights=None)
    backbone.trunk, backbone.out_dim = Same(), 3
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    pixels = torch.rand(2, 3, 4, 4)
    expected = (pixels - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    assert torch.allclose(backbone.forward_map(2 * pixels - 1), expected, atol=1e-5)


def test_vgg_has_no_fully_connected_layers():
    backbone = create_backbone("vgg11", weights=None)
    assert sum(p.numel() for p in backbone.parameters()) < 10e6


def test_unknown_names_offer_near_ones():
    with pytest.raises(DisMixError, match=r"unknown backbone 'resnet81'; did you mean .*resnet18"):
        create_backbone("resnet81")


def test_missing_weights_name_the_cures(no_weights):
    with pytest.raises(DisMixError, match=r"no weights of 'resnet18' found; put resnet18.*--weig"):
        create_backbone("resnet18")


def test_weights_are_found_by_the_backbones_name(monkeypatch, tmp_path):
    made = create_backbone("resnet18", weights=None)
    state = {k: v + 1 for k, v in made.trunk.network.state_dict().items()}
    state |= {"fc.weight": torch.zeros(10, 512), "fc.bias": torch.zeros(10)}
    save_file(state, tmp_path / "resnet18.safetensors")
    monkeypatch.setenv("DISMIX_WEIGHTS", str(tmp_path))
    loaded = create_backbone("resnet18").trunk.network.state_dict()
    assert all(torch.equal(loaded[k], v) for k, v in state.items() if k in loaded)


def test_weights_of_another_architecture_are_refused(tmp_path):
    file = tmp_path / "w.safetensors"
    save_file(create_backbone("resnet18", weights=None).trunk.network.state_dict(), file)
    with pytest.raises(DisMixError, match=r"w.safetensors: does not hold 'resnet34'.*layer1.2"):
        create_backbone("resnet34", weights=file)
    with pytest.raises(DisMixError, match="does not hold 'vgg11'"):
        create_backbone("vgg11", weights=file)
    state = create_backbone("resnet18", weights=None).trunk.network.state_dict()
    save_file({**state, "extra.weight": torch.zeros(1)}, file)
    with pytest.raises(DisMixError, match=r"which has no 'extra.weight'"):
        create_backbone("resnet18", weights=file)
    with pytest.raises(DisMixError, match="no such weight file"):
        create_backbone("resnet18", weights=tmp_path / "absent.safetensors")


def test_published_files_load(shared_weights: Path, monkeypatch):
    monkeypatch.setenv("DISMIX_WEIGHTS", str(shared_weights))
    for name, dim in (("vgg16", 512), ("tf_efficientnet_lite0", 1280)):
        backbone = create_backbone(name)
        assert backbone.out_dim == dim
        assert backbone.relu_out
        first = next(backbone.parameters())
        assert first.dtype == torch.float32


def test_networks_that_need_more_pixels_are_looked_at_in_their_own_size():
    assert create_backbone("inception_v3", weights=None).out_dim == 2048


def test_networks_without_a_map_are_refused():
    with pytest.raises(DisMixError, match="'coat_tiny' gives no map of features"):
        create_backbone("coat_tiny", weights=None)


def test_heads_of_any_name_are_left_out(tmp_path):
    import timm

    state = timm.create_model("legacy_seresnet18").state_dict()
    assert "last_linear.bias" in state
    save_file({k: v.contiguous() for k, v in state.items()}, tmp_path / "weights.safetensors")
    found = create_backbone("legacy_seresnet18", weights=tmp_path / "weights.safetensors")
    first = next(iter(found.trunk.network.state_dict().values()))
    assert torch.equal(first, next(iter(state.values())))
