"""Published weights as the start of an autoencoder: renamed, fitted, checked, never in part.

Keys are those of the publishers; a diffusers `VQModel` file is renamed to CompVis'.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from dismix.errors import DisMixError
from dismix.generator.architectures import Architecture, build_autoencoder
from dismix.generator.weights import load_weights, require_weights

PRETRAINED: dict[str, str] = {
    "vq-f8": "vq-f8",
    "light": "taef2_f8c32_autoencoder",
    "light-f16": "taef2_f8c32_autoencoder",
}
"""The file that starts each architecture."""

_PROJECTIONS = ("quant_conv.", "post_quant_conv.", "quantize.embedding.")


def join_halves(encoder: Mapping[str, Tensor], decoder: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Join the two files TAESD publishes into one state with the keys of the `light` trunk.

    Example:
        >>> list(join_halves({"0.weight": torch.ones(1)}, {"1.bias": torch.ones(1)}))
        ['encoder.0.weight', 'decoder.1.bias']
    """
    return {f"encoder.{k}": v for k, v in encoder.items()} | {
        f"decoder.{k}": v for k, v in decoder.items()
    }


_RENAMED: tuple[tuple[str, str], ...] = (
    (r"\.mid_block\.resnets\.0\.", ".mid.block_1."),
    (r"\.mid_block\.resnets\.1\.", ".mid.block_2."),
    (r"\.mid_block\.attentions\.0\.", ".mid.attn_1."),
    (r"\.down_blocks\.(\d+)\.", r".down.\1."),
    (r"\.resnets\.(\d+)\.", r".block.\1."),
    (r"\.attentions\.(\d+)\.", r".attn.\1."),
    (r"\.downsamplers\.0\.", ".downsample."),
    (r"\.upsamplers\.0\.", ".upsample."),
    (r"\.conv_shortcut\.", ".nin_shortcut."),
    (r"\.conv_norm_out\.", ".norm_out."),
    (r"\.group_norm\.", ".norm."),
    (r"\.(?:to_q|query)\.", ".q."),
    (r"\.(?:to_k|key)\.", ".k."),
    (r"\.(?:to_v|value)\.", ".v."),
    (r"\.(?:to_out\.0|proj_attn)\.", ".proj_out."),
)


def diffusers_to_compvis(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the tensors of a diffusers `VQModel` to CompVis' names.

    Attention weights become 1x1 convolutions, and the decoder's levels are counted from the
    full resolution down.

    Example:
        >>> state = {"encoder.mid_block.attentions.0.to_q.weight": torch.ones(2, 2)}
        >>> [(k, tuple(v.shape)) for k, v in diffusers_to_compvis(state).items()]
        [('encoder.mid.attn_1.q.weight', (2, 2, 1, 1))]
    """
    numbers = [re.match(r"decoder\.up_blocks\.(\d+)\.", key) for key in state]
    last = max((int(n[1]) for n in numbers if n), default=0)
    renamed = {}
    for key, tensor in state.items():
        key = re.sub(r"\.up_blocks\.(\d+)\.", lambda m: f".up.{last - int(m[1])}.", key)
        for pattern, name in _RENAMED:
            key = re.sub(pattern, name, key)
        attention = re.search(r"\.attn[._].*\.(q|k|v|proj_out)\.weight$", key)
        renamed[key] = tensor[:, :, None, None] if attention and tensor.dim() == 2 else tensor
    return renamed


def widen_post_quant(
    weight: Tensor, bias: Tensor, *, ordinal_dim: int | None = None
) -> tuple[Tensor, Tensor]:
    """Widen the published `post_quant_conv` for concat(z_o, z_n) as [0 | published].

    Args:
        weight: (z_channels, D, 1, 1).
        bias: (z_channels,).
        ordinal_dim: Length of z_o; None takes D.

    Returns:
        Weight (z_channels, ordinal_dim + D, 1, 1) and the same bias: z_n decodes as before and
        z_o has no effect yet.

    Example:
        >>> widen_post_quant(torch.ones(1, 2, 1, 1), torch.zeros(1))[0].flatten()
        tensor([0., 0., 1., 1.])
    """
    silent = weight.new_zeros(weight.shape[0], ordinal_dim or weight.shape[1], 1, 1)
    return torch.cat([silent, weight], dim=1), bias


def to_grey(state: Mapping[str, Tensor], first: str, last: str) -> dict[str, Tensor]:
    """Make colour weights take and give grey: the sum over inputs, the mean over outputs.

    The result on a grey image is exactly the channel mean of the colour network's result on
    its replicated channels.

    Args:
        state: Tensors of a trunk with 3 image channels; one with 1 is returned as it is.
        first: Name of the first convolution.
        last: Name of the last convolution.
    """
    state = dict(state)
    if f"{first}.weight" in state and state[f"{first}.weight"].shape[1] == 3:
        state[f"{first}.weight"] = state[f"{first}.weight"].float().sum(1, keepdim=True)
    for part in ("weight", "bias"):
        key = f"{last}.{part}"
        if key in state and state[key].shape[0] == 3:
            state[key] = state[key].float().mean(0, keepdim=True)
    return state


def expected_shapes(arch: Architecture) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every tensor in a published file of this architecture.

    Unknown sizes are 0: the codebook's number of entries.

    Example:
        >>> from dismix.generator.architectures import ARCHITECTURES
        >>> expected_shapes(ARCHITECTURES["vq-f8"])["post_quant_conv.weight"]
        (4, 4, 1, 1)
    """
    with torch.device("meta"):
        trunk = build_autoencoder(arch)
    # A neck is ours: nothing is published for it.
    shapes = {
        key: tuple(tensor.shape)
        for key, tensor in trunk.state_dict().items()
        if ".neck." not in key
    }
    if arch.kind == "vq":
        shapes["quant_conv.weight"] = (arch.embed_dim, arch.z_channels, 1, 1)
        shapes["quant_conv.bias"] = (arch.embed_dim,)
        shapes["post_quant_conv.weight"] = (arch.z_channels, arch.embed_dim, 1, 1)
        shapes["post_quant_conv.bias"] = (arch.z_channels,)
        shapes["quantize.embedding.weight"] = (0, arch.embed_dim)
    return shapes


def published_state(
    state: Mapping[str, Tensor], arch: Architecture, file: str | Path | None = None
) -> dict[str, Tensor]:
    """Return exactly the tensors of an autoencoder file, verified, under the published names.

    Drops the training parts (`loss.*`, `model_ema.*`), renames diffusers' keys, and adapts
    colour weights to a grey architecture.

    Args:
        state: Tensors as read by `load_weights`.
        arch: The architecture they should have.
        file: Where they come from, for messages.

    Returns:
        `encoder.*` and `decoder.*`; with `vq` also `quant_conv.*`, `post_quant_conv.*` and
        `quantize.embedding.weight`.
    """
    kept = {k: v for k, v in state.items() if not k.startswith(("loss.", "model_ema."))}
    if any(key.startswith("encoder.down_blocks.") for key in kept):
        kept = diffusers_to_compvis(kept)
    expected = expected_shapes(arch)
    if arch.in_channels == 1:
        trunk = [k.removesuffix(".weight") for k in expected if k.endswith(".weight")]
        first = next(k for k in trunk if k.startswith("encoder."))
        last = [k for k in trunk if k.startswith("decoder.")][-1]
        kept = to_grey(kept, first, last)
    _check_shapes(kept, expected, arch, file)
    return {key: kept[key] for key in expected}


def _check_shapes(
    state: Mapping[str, Tensor],
    expected: Mapping[str, tuple[int, ...]],
    arch: Architecture,
    file: str | Path | None,
) -> None:
    """Raise on the first tensor that is missing, surplus or of another shape (0 = any size)."""

    def fits(key: str) -> bool:
        if key not in state or key not in expected:
            return False
        shape, wanted = tuple(state[key].shape), expected[key]
        return len(shape) == len(wanted) and all(
            w in (0, n) for n, w in zip(shape, wanted, strict=True)
        )

    wrong = next((key for key in [*expected, *state] if not fits(key)), None)
    if wrong is not None:
        found = str(tuple(state[wrong].shape)) if wrong in state else "missing"
        raise DisMixError(
            f"tensor '{wrong}' is {found}, but the architecture {arch.name} (kind {arch.kind}, "
            f"ch {arch.ch}, ch_mult {arch.ch_mult}) has {expected.get(wrong, 'no such tensor')}",
            file=file,
            cure="choose the architecture the file was made for, or another file",
        )


def load_pretrained(
    model: nn.Module, arch: Architecture, path: str | Path | None = None
) -> dict[str, Tensor]:
    """Put published weights into `model.encoder` and `model.decoder`.

    Args:
        model: An `Autoencoder`, or any module with such an encoder and decoder.
        arch: Its architecture.
        path: The file; None searches for the published one of `arch.name`.

    Returns:
        The remaining tensors, for the caller to place: `quant_conv.*`, `post_quant_conv.*` and
        `quantize.embedding.weight` with `vq`, none with `light`.
    """
    if path is None:
        if arch.name not in PRETRAINED:
            raise DisMixError(
                f"there are no published weights for '{arch.name}'",
                cure="train it from nothing, or give a file",
            )
        path = require_weights(PRETRAINED[arch.name])
    state = published_state(load_weights(path), arch, path)
    for half in ("encoder", "decoder"):
        module = model.get_submodule(half)
        # All that is published is there, see `published_state`; a neck keeps its first weights.
        module.load_state_dict(
            {k.removeprefix(f"{half}."): v for k, v in state.items() if k.startswith(f"{half}.")},
            strict=not arch.neck,
        )
    return {key: state[key] for key in state if key.startswith(_PROJECTIONS)}
