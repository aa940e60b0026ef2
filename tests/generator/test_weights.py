"""Weight files of the published forms, made here, and all the ways they can be wrong."""

import os
import pickle
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from dismix.errors import DisMixError
from dismix.generator.architectures import ARCHITECTURES, build_autoencoder
from dismix.generator.pretrained import (
    PRETRAINED,
    diffusers_to_compvis,
    expected_shapes,
    join_halves,
    load_pretrained,
    published_state,
    widen_post_quant,
)
from dismix.generator.weights import KNOWN_WEIGHTS, find_weights, load_weights, require_weights

ARCH = replace(
    ARCHITECTURES["vq-f8"],
    image_size=32,
    ch=32,
    ch_mult=(1, 2),
    num_res_blocks=1,
    attn_resolutions=(16,),
)


def published(arch=ARCH, codes: int = 16, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        key: torch.randn([n or codes for n in shape], generator=generator) * 0.1
        for key, shape in expected_shapes(arch).items()
    }


@pytest.fixture
def no_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DISMIX_WEIGHTS", raising=False)
    return tmp_path


def test_lightning_checkpoint_loads(tmp_path: Path):
    state = published()
    extra = {"loss.discriminator.main.0.weight": torch.ones(1), "model_ema.decay": torch.ones(1)}
    path = tmp_path / "model.ckpt"
    torch.save({"epoch": 3, "state_dict": state | extra, "lr_schedulers": []}, path)
    trunk = build_autoencoder(ARCH)
    rest = load_pretrained(trunk, ARCH, path)
    assert list(rest) == [k for k in state if not k.startswith(("encoder.", "decoder."))]
    assert rest["quantize.embedding.weight"].shape == (16, 4)
    for key, tensor in trunk.state_dict().items():
        assert torch.equal(tensor, state[key]), key


def test_old_lightning_callback_key_is_harmless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The published file names Lightning's ModelCheckpoint class as a dictionary key."""
    module = types.ModuleType("pytorch_lightning.callbacks.model_checkpoint")
    callback = type("ModelCheckpoint", (), {"__module__": module.__name__})
    module.ModelCheckpoint = callback
    with monkeypatch.context() as patched:
        for name in ("pytorch_lightning", "pytorch_lightning.callbacks"):
            patched.setitem(sys.modules, name, types.ModuleType(name))
        patched.setitem(sys.modules, module.__name__, module)
        content = {"callbacks": {callback: {"best_model_path": "x"}}, "state_dict": published()}
        torch.save(content, tmp_path / "model.ckpt")
    assert set(load_weights(tmp_path / "model.ckpt")) == set(published())


class Malicious:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("form", ["torch", "pickle"])
def test_malicious_pickle_is_refused_unrun(tmp_path: Path, form: str):
    path, marker = tmp_path / "model.ckpt", tmp_path / "harm"
    content = {"state_dict": published(), "callbacks": Malicious(marker)}
    if form == "torch":
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps({"callbacks": Malicious(marker)}, protocol=2))
    with pytest.raises(DisMixError, match=r"refused.*mkdir.*convert it once.*model\.safetensors"):
        load_weights(path)
    assert not marker.exists()


def test_unreadable_files_name_the_cure(tmp_path: Path):
    (tmp_path / "a.ckpt").write_bytes(b"not a pickle at all")
    (tmp_path / "b.safetensors").write_bytes(b"\x08")
    torch.save([torch.ones(1)], tmp_path / "c.pt")
    torch.save({"state_dict": {"a": 1}}, tmp_path / "d.pt")
    torch.save(published(), tmp_path / "e.pt")
    (tmp_path / "e.pt").write_bytes((tmp_path / "e.pt").read_bytes()[:4000])
    (tmp_path / "f.pt").write_bytes(b"")
    messages = {
        "a.ckpt": "download it again",
        "b.safetensors": "not a whole safetensors file",
        "c.pt": "no dictionary",
        "d.pt": "no tensors",
        "e.pt": "download it again",
        "f.pt": "download it again",
        "g.pt": "no such weight file",
    }
    for name, message in messages.items():
        with pytest.raises(DisMixError, match=message) as error:
            load_weights(tmp_path / name)
        assert name in str(error.value)


def test_wrong_shapes_name_the_first_key(tmp_path: Path):
    state = published()
    path = tmp_path / "other.safetensors"
    broken = state | {"encoder.mid.attn_1.q.weight": torch.ones(64, 32, 1, 1)}
    save_file(broken, path)
    with pytest.raises(DisMixError, match=r"other.*encoder\.mid\.attn_1\.q\.weight.*\(64, 32") as e:
        load_pretrained(build_autoencoder(ARCH), ARCH, path)
    assert "vq-f8 (kind vq, ch 32, ch_mult (1, 2)) has (64, 64, 1, 1)" in str(e.value)
    missing = {k: v for k, v in state.items() if k != "post_quant_conv.bias"}
    with pytest.raises(DisMixError, match=r"'post_quant_conv\.bias' is missing"):
        published_state(missing, ARCH)
    with pytest.raises(DisMixError, match=r"'decoder\.extra' is \(1,\).*no such tensor"):
        published_state(state | {"decoder.extra": torch.ones(1)}, ARCH)
    with pytest.raises(DisMixError, match=r"'quantize\.embedding\.weight' is \(16, 3\)"):
        published_state(state | {"quantize.embedding.weight": torch.ones(16, 3)}, ARCH)
    with pytest.raises(DisMixError, match=r"'encoder\.0\.weight' is missing.*light"):
        published_state(state, ARCHITECTURES["light"])


def to_diffusers(state: dict[str, Tensor], levels: int) -> dict[str, Tensor]:
    """The key table in the other direction, spelled out."""
    renamed = {}
    for key, tensor in state.items():
        parts = key.split(".")
        if len(parts) > 2 and parts[1] == "mid":
            place = {
                "block_1": ["resnets", "0"],
                "block_2": ["resnets", "1"],
                "attn_1": ["attentions", "0"],
            }
            parts = [parts[0], "mid_block", *place[parts[2]], *parts[3:]]
        elif len(parts) > 3 and parts[1] in ("down", "up"):
            level = int(parts[2]) if parts[1] == "down" else levels - 1 - int(parts[2])
            rest = {
                "block": ["resnets", *parts[4:]],
                "attn": ["attentions", *parts[4:]],
                "downsample": ["downsamplers", "0", *parts[4:]],
                "upsample": ["upsamplers", "0", *parts[4:]],
            }[parts[3]]
            parts = [parts[0], f"{parts[1]}_blocks", str(level), *rest]
        if "attentions" in parts:
            if parts[-2] in ("q", "k", "v", "proj_out") and parts[-1] == "weight":
                tensor = tensor[:, :, 0, 0]
            inner = {
                "norm": ["group_norm"],
                "q": ["to_q"],
                "k": ["to_k"],
                "v": ["to_v"],
                "proj_out": ["to_out", "0"],
            }
            parts = [*parts[:-2], *inner[parts[-2]], parts[-1]]
        plain = {"nin_shortcut": "conv_shortcut", "norm_out": "conv_norm_out"}
        renamed[".".join(plain.get(part, part) for part in parts)] = tensor
    return renamed


def test_diffusers_names_round_trip():
    state = published()
    theirs = to_diffusers(state, levels=2)
    assert "decoder.up_blocks.0.attentions.1.to_out.0.weight" in theirs
    assert "decoder.up_blocks.0.upsamplers.0.conv.weight" in theirs
    back = published_state(theirs, ARCH)
    assert set(back) == set(state)
    assert all(torch.equal(back[key], state[key]) for key in state)
    assert diffusers_to_compvis(state).keys() == state.keys()


def test_grey_adaptation_is_exact():
    colour = published()
    grey_arch = ARCH.resized(in_channels=1)
    grey = published_state(colour, grey_arch)
    assert grey["encoder.conv_in.weight"].shape == (32, 1, 3, 3)
    assert grey["decoder.conv_out.bias"].shape == (1,)
    trunks = build_autoencoder(ARCH), build_autoencoder(grey_arch)
    for trunk, state in zip(trunks, (colour, grey), strict=True):
        trunk.load_state_dict({k: v for k, v in state.items() if k in trunk.state_dict()})
    x = torch.rand(1, 1, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        expected = trunks[0](x.expand(-1, 3, -1, -1)).mean(1, keepdim=True)
        torch.testing.assert_close(trunks[1](x), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("ordinal_dim", [None, 6])
def test_widened_post_quant_decodes_as_before(ordinal_dim: int | None):
    old = nn.Conv2d(4, 4, 1)
    weight, bias = widen_post_quant(old.weight, old.bias, ordinal_dim=ordinal_dim)
    generator = torch.Generator().manual_seed(0)
    z_o = torch.randn(2, ordinal_dim or 4, 3, 3, generator=generator)
    z_n = torch.randn(2, 4, 3, 3, generator=generator)
    new = nn.functional.conv2d(torch.cat([z_o, z_n], 1), weight, bias)
    torch.testing.assert_close(new, old(z_n))


def test_search_order(no_weights: Path, monkeypatch: pytest.MonkeyPatch):
    cache = no_weights / "home" / ".cache" / "dismix" / "weights"
    named = no_weights / "named"
    for folder in (cache, named):
        folder.mkdir(parents=True)
    assert find_weights("vq-f8") is None
    (cache / "vq-f8.ckpt").touch()
    assert find_weights("vq-f8") == cache / "vq-f8.ckpt"
    monkeypatch.setenv("DISMIX_WEIGHTS", str(named))
    assert find_weights("vq-f8") == cache / "vq-f8.ckpt"
    (named / "vq-f8.safetensors").touch()
    assert find_weights("vq-f8") == require_weights("vq-f8") == named / "vq-f8.safetensors"
    assert find_weights("vq-f8.safetensors") == named / "vq-f8.safetensors"


def test_missing_weights_say_where(no_weights: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DISMIX_WEIGHTS", str(no_weights / "named"))
    arch = ARCHITECTURES["vq-f8"]
    with pytest.raises(DisMixError, match=r"named or .*\.cache/dismix/weights, or set DISMIX_W"):
        load_pretrained(nn.Module(), arch)
    with pytest.raises(DisMixError, match="no published weights for 'tiny'"):
        load_pretrained(nn.Module(), ARCHITECTURES["tiny"])
    assert set(PRETRAINED.values()) <= set(KNOWN_WEIGHTS)


def test_two_halves_join(shared_weights: Path):
    state = load_weights(shared_weights / "taef2_f8c32_autoencoder.safetensors")
    halves = [
        {k.removeprefix(half): v for k, v in state.items() if k.startswith(half)}
        for half in ("encoder.", "decoder.")
    ]
    joined = published_state(join_halves(*halves), ARCHITECTURES["light"])
    assert joined.keys() == state.keys()
