"""The vq trunk against plain formulas and, where installed, diffusers' VQModel."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func

from dismix._compat import import_torchvision
from dismix.generator import autoencoder
from dismix.generator.architectures import ARCHITECTURES, Architecture, build_autoencoder
from dismix.generator.autoencoder import AttnBlock, Downsample, ResBlock, Upsample, freeze_down
from dismix.generator.pretrained import diffusers_to_compvis

# Three shapes of the trunk, small enough for one core.
SMALL = replace(ARCHITECTURES["vq-f8"].resized(32), name="small", ch=32)
LESS = replace(SMALL, ch_mult=(1, 2), num_res_blocks=1, attn_resolutions=(16,))
LIGHT, TINY = ARCHITECTURES["light"].resized(32), ARCHITECTURES["tiny"]


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def fill(module: torch.nn.Module, seed: int = 1) -> None:
    """Random weights everywhere, also in the normalisations, which start at 1 and 0."""
    generator = rng(seed)
    for name, parameter in sorted(module.named_parameters()):
        scale = 1 / math.sqrt(max(1, parameter[0].numel()))
        offset = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        parameter.data = offset + scale * torch.randn(parameter.shape, generator=generator)


def slow_group_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    out = torch.empty_like(x)
    step = x.shape[1] // 32
    for b in range(x.shape[0]):
        for g in range(32):
            part = x[b, g * step : (g + 1) * step]
            variance = ((part - part.mean()) ** 2).mean()
            out[b, g * step : (g + 1) * step] = (part - part.mean()) / (variance + 1e-6) ** 0.5
    return out * weight[None, :, None, None] + bias[None, :, None, None]


def slow_conv(x: Tensor, weight: Tensor, bias: Tensor, stride: int = 1) -> Tensor:
    """Sum of shifted products; 'same' padding at stride 1, right and below only at stride 2."""
    k = weight.shape[2]
    before = k // 2 if stride == 1 else 0
    after = k // 2 if stride == 1 else 1
    b, _, h, w = x.shape
    padded = x.new_zeros(b, x.shape[1], h + before + after, w + before + after)
    padded[:, :, before : before + h, before : before + w] = x
    out = bias[None, :, None, None]
    for i in range(k):
        for j in range(k):
            shifted = padded[:, :, i : i + h : stride, j : j + w : stride]
            out = out + torch.einsum("bchw,oc->bohw", shifted, weight[:, :, i, j])
    return out


def swish(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


@pytest.mark.parametrize("c_out", [32, 64])
def test_res_block_formula(c_out: int):
    block = ResBlock(32, c_out)
    fill(block)
    x = torch.randn(2, 32, 5, 6, generator=rng())
    p = dict(block.named_parameters())
    hidden = swish(slow_group_norm(x, p["norm1.weight"], p["norm1.bias"]))
    hidden = slow_conv(hidden, p["conv1.weight"], p["conv1.bias"])
    hidden = swish(slow_group_norm(hidden, p["norm2.weight"], p["norm2.bias"]))
    hidden = slow_conv(hidden, p["conv2.weight"], p["conv2.bias"])
    skip = x
    if c_out != 32:
        skip = slow_conv(x, p["nin_shortcut.weight"], p["nin_shortcut.bias"])
    torch.testing.assert_close(block(x), skip + hidden, atol=2e-5, rtol=1e-5)


def test_attention_formula():
    block = AttnBlock(32)
    fill(block)
    x = torch.randn(2, 32, 3, 4, generator=rng())
    p = dict(block.named_parameters())
    normed = slow_group_norm(x, p["norm.weight"], p["norm.bias"])
    q, k, v = (slow_conv(normed, p[f"{n}.weight"], p[f"{n}.bias"]) for n in "qkv")
    mixed = torch.zeros_like(x)
    for b in range(2):
        for i in range(12):
            scores = torch.stack(
                [
                    (q[b, :, i // 4, i % 4] * k[b, :, j // 4, j % 4]).sum() / math.sqrt(32)
                    for j in range(12)
                ]
            )
            weights = scores.exp() / scores.exp().sum()
            for j in range(12):
                mixed[b, :, i // 4, i % 4] += weights[j] * v[b, :, j // 4, j % 4]
    expected = x + slow_conv(mixed, p["proj_out.weight"], p["proj_out.bias"])
    torch.testing.assert_close(block(x), expected, atol=2e-5, rtol=1e-5)


def test_resampling_formulas():
    x = torch.randn(1, 3, 4, 6, generator=rng())
    down, up = Downsample(3), Upsample(3)
    torch.testing.assert_close(down(x), slow_conv(x, down.conv.weight, down.conv.bias, stride=2))
    doubled = torch.zeros(1, 3, 8, 12)
    for i in range(8):
        for j in range(12):
            doubled[:, :, i, j] = x[:, :, i // 2, j // 2]
    torch.testing.assert_close(up(x), slow_conv(doubled, up.conv.weight, up.conv.bias))


def test_key_names_of_the_published_file():
    with torch.device("meta"):
        state = build_autoencoder(ARCHITECTURES["vq-f8"]).state_dict()
    assert len(state) == 299 - 5  # without quant_conv, post_quant_conv and the codebook
    shapes = {
        "encoder.conv_in.weight": (128, 3, 3, 3),
        "encoder.down.1.block.0.nin_shortcut.weight": (256, 128, 1, 1),
        "encoder.down.2.downsample.conv.bias": (256,),
        "encoder.down.3.attn.1.proj_out.weight": (512, 512, 1, 1),
        "encoder.mid.block_2.conv2.weight": (512, 512, 3, 3),
        "encoder.norm_out.weight": (512,),
        "encoder.conv_out.weight": (4, 512, 3, 3),
        "decoder.conv_in.weight": (512, 4, 3, 3),
        "decoder.mid.attn_1.q.bias": (512,),
        "decoder.up.3.attn.2.norm.weight": (512,),
        "decoder.up.2.block.0.conv1.weight": (256, 512, 3, 3),
        "decoder.up.0.block.2.conv2.weight": (128, 128, 3, 3),
        "decoder.up.1.upsample.conv.weight": (256, 256, 3, 3),
        "decoder.conv_out.bias": (3,),
    }
    for key, shape in shapes.items():
        assert tuple(state[key].shape) == shape
    assert "encoder.down.3.downsample.conv.weight" not in state
    assert "decoder.up.0.upsample.conv.weight" not in state
    assert not any(".attn." in key and ".3." not in key for key in state)


def test_equals_diffusers():
    import_torchvision()
    oracle = (
        pytest.importorskip("diffusers")
        .VQModel(
            block_out_channels=(32, 64, 64, 128),
            layers_per_block=2,
            down_block_types=("DownEncoderBlock2D",) * 3 + ("AttnDownEncoderBlock2D",),
            up_block_types=("AttnUpDecoderBlock2D",) + ("UpDecoderBlock2D",) * 3,
            latent_channels=4,
            vq_embed_dim=4,
            num_vq_embeddings=64,
            norm_num_groups=32,
            mid_block_add_attention=True,
        )
        .eval()
    )
    fill(oracle)
    state = diffusers_to_compvis(oracle.state_dict())
    trunk = build_autoencoder(SMALL)
    wanted = set(trunk.state_dict())
    trunk.load_state_dict({k: v for k, v in state.items() if k in wanted})
    rest = {"quantize.embedding.weight"} | {
        f"{layer}.{part}"
        for layer in ("quant_conv", "post_quant_conv")
        for part in ("weight", "bias")
    }
    assert set(state) - wanted == rest
    x = torch.rand(2, 3, 64, 64, generator=rng()) * 2 - 1
    z = torch.randn(2, 4, 8, 8, generator=rng())
    with torch.no_grad():
        # Random weights give large features: the scale of the result sets the tolerance.
        for ours, theirs in (
            (trunk.encoder(x), oracle.encoder(x)),
            (trunk.decoder(z), oracle.decoder(z)),
        ):
            assert (ours - theirs).abs().max() < 2e-5 * theirs.abs().max()


def saved_elements(trunk: torch.nn.Module, x: Tensor) -> int:
    """Numbers kept for the backward pass, apart from the weights themselves."""
    weights = {p.data_ptr() for p in trunk.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in weights:
            kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = trunk.encoder(x)
    assert out.requires_grad
    return sum(kept.values())


@pytest.mark.parametrize("arch", [SMALL, LIGHT, TINY], ids=lambda arch: arch.name)
def test_frozen_path_holds_nothing(arch: Architecture):
    trunk = build_autoencoder(arch).train()
    x = torch.rand(2, arch.in_channels, arch.image_size, arch.image_size, generator=rng())
    before = saved_elements(trunk, x)
    full = trunk(x)
    frozen = freeze_down(trunk, arch)
    assert frozen
    assert all(name.startswith(arch.frozen_prefixes) for name in frozen)
    assert not trunk.encoder.downward(x).requires_grad
    assert saved_elements(trunk, x) < 0.5 * before
    torch.testing.assert_close(trunk(x), full)
    trunk(x).sum().backward()
    for name, parameter in trunk.named_parameters():
        assert (parameter.grad is None) == (name in frozen), name


def test_frozen_path_passes_gradients_to_images():
    trunk = build_autoencoder(TINY)
    freeze_down(trunk, TINY)
    x = torch.zeros(1, 1, 64, 64, requires_grad=True)
    trunk.encoder(x).square().sum().backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0


def test_attention_over_many_positions_is_the_same(monkeypatch: pytest.MonkeyPatch):
    query, key, value = torch.randn(3, 2, 12, 8, generator=rng()).unbind(0)
    few = autoencoder.attend(query, key, value)
    monkeypatch.setattr(autoencoder, "FEW_POSITIONS", 4)
    torch.testing.assert_close(autoencoder.attend(query, key, value), few)


def test_compiled_it_learns_the_same():
    # Groups of two channels; with one alone a convolution's bias would be without effect.
    arch = replace(LESS, ch=64, image_size=16)
    trunk, backends = build_autoencoder(arch), (None, "aot_eager")
    fill(trunk)
    x = torch.rand(2, 3, 16, 16, generator=rng())
    found = []
    for backend in backends:
        run = trunk if backend is None else torch.compile(trunk, backend=backend, fullgraph=True)
        out = run(x)
        found.append([out, *torch.autograd.grad(out.square().mean(), [*trunk.parameters()])])
    for plain, compiled in zip(*found, strict=True):
        # Scaled: the gradient of a key's bias is rounding and nothing else.
        scale = plain.abs().max().clamp_min(1e-4)
        torch.testing.assert_close(compiled / scale, plain / scale, atol=2e-3, rtol=0)


def test_compiled_convolutions_read_channels_last():
    layouts = []

    def look(graph: torch.fx.GraphModule, _: Sequence[Tensor]) -> Callable[..., Any]:
        for node in graph.graph.nodes:
            if "convolution" in str(node.target):
                value = node.args[0].meta["val"]
                layouts.append(value.is_contiguous(memory_format=torch.channels_last))
        return make_boxed_func(graph.forward)

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        return aot_module_simplified(graph, inputs, fw_compiler=look)

    trunk = build_autoencoder(LESS).to(memory_format=torch.channels_last)
    x = torch.rand(2, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        torch.compile(trunk, backend=backend, dynamic=False)(x)
    assert len(layouts) > 20
    assert all(layouts)


@pytest.mark.parametrize("arch", [LESS, LIGHT], ids=lambda arch: arch.name)
def test_one_graph_and_channels_last(arch: Architecture):
    trunk = build_autoencoder(arch)
    x = torch.rand(2, arch.in_channels, arch.image_size, arch.image_size, generator=rng())
    expected = trunk(x)
    torch.testing.assert_close(torch.compile(trunk, backend="eager", fullgraph=True)(x), expected)
    trunk = trunk.to(memory_format=torch.channels_last)
    out = trunk(x.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(out, expected, atol=1e-4, rtol=1e-3)
