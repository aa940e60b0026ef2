"""LPIPS against the `lpips` package with the same weights put in."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dismix._compat import import_torchvision
from dismix.errors import DisMixError
from dismix.generator import perceptual
from dismix.generator.judge import Judge
from dismix.generator.perceptual import LPIPS, WEIGHTS
from dismix.generator.start_run import train_generator


def images(count: int = 2, channels: int = 3, size: int = 64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, channels, size, size, generator=generator) * 2 - 1


def random_state(seed: int = 0) -> dict[str, Tensor]:
    """Random weights of the right names, for what does not depend on training."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    position, channels = 0, 3
    for width in perceptual._WIDTHS:
        if width:
            shape = (width, channels, 3, 3)
            scale = (2 / (9 * channels)) ** 0.5
            state[f"features.{position}.weight"] = torch.randn(shape, generator=generator) * scale
            state[f"features.{position}.bias"] = torch.zeros(width)
            channels = width
        position += 2 if width else 1
    for i, width in enumerate((64, 128, 256, 512, 512)):
        state[f"lin{i}.weight"] = torch.rand(1, width, 1, 1, generator=generator)
    return state


@pytest.fixture(scope="module")
def measure() -> LPIPS:
    return LPIPS(random_state())


@pytest.fixture(scope="module")
def trained(shared_weights: Path) -> LPIPS:
    return LPIPS.pretrained(shared_weights / f"{WEIGHTS}.safetensors")


@pytest.fixture(scope="module")
def network() -> torch.nn.Module:
    """The `lpips` package's network with its own heads and random convolutions."""
    import_torchvision()
    lpips = pytest.importorskip("lpips")
    return lpips.LPIPS(net="vgg", pnet_rand=True, verbose=False)


def put_in(network: torch.nn.Module, measure: LPIPS) -> torch.nn.Module:
    """Give the package's network the weights of ours."""
    state = measure.state_dict()
    for key, tensor in network.state_dict().items():
        parts = key.split(".")
        if parts[0] == "net":
            tensor.copy_(state[".".join(["features", *parts[2:]])])
        elif parts[0] == "lins":  # the same tensors as lin0 to lin4
            tensor.copy_(state[f"lin{parts[1]}.weight"])
    return network


def test_equals_the_package(trained: LPIPS, network: torch.nn.Module):
    heads = {f"lin{i}.weight": network.lins[i].model[1].weight for i in range(5)}
    for name, head in heads.items():
        assert torch.equal(trained.get_parameter(name), head)
    oracle = put_in(network, trained)
    x, y = images(seed=1), images(seed=2)
    close = (y + 0.1 * images(seed=3)).clamp(-1, 1)
    for pair in ((x, y), (close, y)):
        with torch.no_grad():
            torch.testing.assert_close(
                trained(*pair), oracle(*pair).flatten(), atol=1e-5, rtol=1e-5
            )


def test_gradient_equals_the_package(measure: LPIPS, network: torch.nn.Module):
    oracle = put_in(network, measure)
    x, y = images(1, size=32, seed=1), images(1, size=32, seed=2)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    measure(ours, y).sum().backward()
    oracle(theirs, y).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-6, rtol=1e-3)


def test_target_features_are_reused_without_gradient(measure: LPIPS):
    x, y = images(size=32).requires_grad_(), images(size=32, seed=1).requires_grad_()
    known = measure.target_features(y)
    assert [tuple(f.shape[1:]) for f in known] == [
        (64, 32, 32),
        (128, 16, 16),
        (256, 8, 8),
        (512, 4, 4),
        (512, 2, 2),
    ]
    assert not any(f.requires_grad for f in known)
    torch.testing.assert_close(known[1].square().sum(1), torch.ones(2, 16, 16))
    assert torch.equal(measure(x, known), measure(x, y))
    measure(x, y).sum().backward()
    assert x.grad is not None
    assert y.grad is None
    assert measure(x, y).shape == (2,)
    assert (measure(x, x) == 0).all()


def test_frozen_and_always_in_evaluation(measure: LPIPS):
    assert not any(p.requires_grad for p in measure.parameters())
    assert not measure.train().training
    assert not torch.nn.Sequential(measure).train()[0].features.training


def test_grey_is_replicated(measure: LPIPS):
    x, y = images(channels=1, size=32), images(channels=1, size=32, seed=1)
    torch.testing.assert_close(measure(x, y), measure(x.repeat(1, 3, 1, 1), y.repeat(1, 3, 1, 1)))


def test_gradient_is_finite_where_all_channels_are_off():
    state = random_state()
    state["features.2.bias"] = torch.full((64,), -1e6)
    x = images(size=32).requires_grad_()
    # Anomaly detection also sees what the mask of the ReLU would hide afterwards.
    with torch.autograd.set_detect_anomaly(True):
        LPIPS(state)(x, images(size=32, seed=1)).sum().backward()
    assert x.grad.isfinite().all()


def test_lower_resolution_and_layout(measure: LPIPS):
    state = measure.state_dict()
    x, y = images(size=64), images(size=64, seed=1)
    pool = torch.nn.functional.avg_pool2d
    small = LPIPS(state, max_size=32)
    torch.testing.assert_close(small(x, y), measure(pool(x, 2), pool(y, 2)))
    assert torch.equal(LPIPS(state, max_size=64)(x, y), measure(x, y))
    layout = LPIPS(state, channels_last=True)
    assert layout.features[0].weight.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(layout(x, y), measure(x, y), rtol=1e-4, atol=1e-6)


def test_autocast_keeps_float32_distances(measure: LPIPS):
    x, y = images(size=32), images(size=32, seed=1)
    with torch.autocast("cpu", torch.bfloat16):
        half = measure(x, y)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, measure(x, y), rtol=0.03, atol=0)


def test_one_graph(measure: LPIPS):
    x, y = images(size=32), images(size=32, seed=1)
    compiled = torch.compile(measure, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, y), measure(x, y))


def test_wrong_weights_are_refused():
    state = random_state()
    del state["lin2.weight"]
    with pytest.raises(DisMixError, match=r"lin2\.weight.*give the file vgg16"):
        LPIPS(state)


@pytest.fixture
def no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DISMIX_WEIGHTS", str(tmp_path))
    monkeypatch.setattr("torch.hub.get_dir", lambda: str(tmp_path / "hub"))


@pytest.mark.usefixtures("no_file")
def test_falls_back_to_what_the_package_has_downloaded(
    monkeypatch: pytest.MonkeyPatch, measure: LPIPS, network: torch.nn.Module, tmp_path: Path
):
    (tmp_path / "hub/checkpoints").mkdir(parents=True)
    (tmp_path / "hub/checkpoints/vgg16-397923af.pth").touch()
    put_in(network, measure)
    asked = {}
    monkeypatch.setattr("lpips.LPIPS", lambda **settings: asked.update(settings) or network)
    found = LPIPS.pretrained()
    assert asked == {"net": "vgg", "verbose": False}  # trained trunk and heads, the defaults
    for key, tensor in measure.state_dict().items():
        assert torch.equal(found.state_dict()[key], tensor), key


@pytest.mark.usefixtures("no_file")
def test_nothing_is_downloaded_unasked(
    monkeypatch: pytest.MonkeyPatch, measure: LPIPS, network: torch.nn.Module, tmp_path: Path
):
    asked = []
    monkeypatch.setattr("lpips.LPIPS", lambda **_: asked.append(1) or network)
    with pytest.raises(DisMixError, match=r"VGG16 for LPIPS\) not found; put .*DISMIX_WEIGHTS"):
        LPIPS.pretrained()
    assert not asked
    put_in(network, measure)
    assert perceptual.download() == tmp_path / f"{WEIGHTS}.safetensors"
    assert asked
    assert torch.equal(LPIPS.pretrained().features[0].weight, measure.features[0].weight)
    # A judge starts from the same file.
    assert torch.equal(Judge(3).features[0].weight, measure.features[0].weight)


@pytest.mark.usefixtures("no_file")
def test_training_asks_for_the_weights_before_it_claims_a_folder(tmp_path: Path):
    rows = "".join(
        f"{i}.png,{split},{i % 2}\n" for i, split in enumerate(["train"] * 4 + ["val"] * 4)
    )
    (tmp_path / "m.csv").write_text("image,split,grade\n" + rows)
    with pytest.raises(DisMixError, match="or train without it: --set perceptual=0"):
        train_generator(tmp_path / "m.csv", tmp_path / "run", cpu=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_file")
def test_never_silently_random(monkeypatch: pytest.MonkeyPatch):
    import_torchvision()
    pytest.importorskip("lpips")

    def offline(**_: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("lpips.LPIPS", offline)
    with pytest.raises(DisMixError, match=r"no network.*put vgg16_imagenet.*DISMIX_WEIGHTS"):
        perceptual.download()
    monkeypatch.setitem(sys.modules, "lpips", None)
    with pytest.raises(DisMixError, match="VGG16 for LPIPS cannot be had"):
        perceptual.download()
