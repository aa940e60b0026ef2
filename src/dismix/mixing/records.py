"""What a latent store keeps of an image: the smallest exact form of its codes.

Indices where they say all, one index for the whole picture where the ordinal code says the rank
alone, vectors where soft attention leaves no index; z in half precision, where asking for
another rank needs it; and the levels that the generator reads in the image, told no label.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dismix.generator.codes import Codes
from dismix.generator.model import Generator


@dataclass(frozen=True)
class Sources:
    """What mixing needs of B images.

    Attributes:
        codes: Their codes, the ordinal ones conditioned on their own labels.
        z: (B, D_o, h, w) before the ordinal quantizer, to ask for another rank; None where
            the generator does not need it.
        detail: (B, channels, H, W) what the codes leave out of the images; None where nobody
            asked for it.
        read: (B, C-1) levels that the generator reads in the images, told no label; None where
            it cannot be asked for a rank.
    """

    codes: Codes
    z: Tensor | None
    detail: Tensor | None = None
    read: Tensor | None = None

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: Tensor | slice) -> "Sources":
        others = (self.z, self.detail, self.read)
        return Sources(
            self.codes[index], *(None if part is None else part[index] for part in others)
        )

    @staticmethod
    def cat(parts: "list[Sources]") -> "Sources":
        """Join batches; all but the codes survive when every part has them."""
        return Sources(
            Codes.cat([part.codes for part in parts]),
            _joined([part.z for part in parts]),
            _joined([part.detail for part in parts]),
            _joined([part.read for part in parts]),
        )


def _joined(parts: list[Tensor | None]) -> Tensor | None:
    known = [part for part in parts if part is not None]
    return torch.cat(known) if len(known) == len(parts) else None


def conditions(model: Generator) -> bool:
    """Tell whether the ordinal code can be asked for a rank at all."""
    return model.quantize_ordinal is not None and model.quantize_ordinal.condition is not None


def needs_z(model: Generator) -> bool:
    """Tell whether asking for another rank looks at z; a code of the rank alone does not."""
    return conditions(model) and not model.config.rank_only


def record_type(model: Generator) -> np.dtype[Any]:
    """Return what a generator stores of an image.

    Example:
        >>> from dismix.generator.config import GeneratorConfig
        >>> record_type(Generator.seeded(GeneratorConfig(num_ranks=5, arch="tiny"), 0)).itemsize
        776
    """
    config, size = model.config, model.latent_size
    grid = config.ordinal_grid or size
    side = 1 if config.rank_only else grid
    fields: list[Any] = []
    if model.quantize_ordinal is not None:
        if config.attention == "soft":
            fields.append(("ordinal", "<f4", (config.ordinal_width, side, side)))
        else:
            fields.append(("ordinal", _index_type(config.ordinal_codes), (side, side)))
    fields.append(("nonordinal", _index_type(config.nonordinal_codes), (size, size)))
    if needs_z(model):
        fields.append(("z", "<f2", (config.ordinal_width, grid, grid)))
    if conditions(model):
        fields.append(("read", "<f2", (config.num_ranks - 1,)))
    return np.dtype(fields)


def _index_type(codes: int) -> str:
    return "<u1" if codes <= 2**8 else "<u2" if codes <= 2**16 else "<u4"


def make_records(model: Generator, images: Tensor, levels: Tensor) -> np.ndarray[Any, Any]:
    """Encode images into records.

    Args:
        model: Generator in evaluation mode.
        images: (B, channels, H, W) in [-1, 1].
        levels: (B, C-1) of their own labels.
    """
    latents = model.latents(images)
    ordinal, nonordinal = model.quantized(latents, levels)
    records = np.zeros(len(images), record_type(model))
    assert records.dtype.names is not None
    side = 1 if model.config.rank_only else None
    if "ordinal" in records.dtype.names:
        soft = model.config.attention == "soft"
        values = ordinal.codes if soft else ordinal.indices
        # A code of the rank alone is the same everywhere.
        records["ordinal"] = values[..., :side, :side].cpu().numpy()
    records["nonordinal"] = nonordinal.indices.cpu().numpy()
    if "z" in records.dtype.names:
        records["z"] = latents.ordinal.half().cpu().numpy()
    if "read" in records.dtype.names:
        records["read"] = model.levels_read(latents.ordinal).half().cpu().numpy()
    return records


def read_records(model: Generator, raw: Tensor) -> Sources:
    """Turn the bytes of records back into codes.

    Args:
        model: The generator they were made by.
        raw: (B, record bytes) uint8 on the generator's device.
    """
    kind, parts = record_type(model), {}
    assert kind.names is not None
    assert kind.fields is not None
    for name in kind.names:
        field, start = kind.fields[name][:2]
        # A copy even of a single record, which may begin where no wider number can.
        piece = raw[:, start : start + field.itemsize].clone(memory_format=torch.contiguous_format)
        parts[name] = _values(piece, field.base).view(len(raw), *field.shape)
    nonordinal = model.quantize.lookup(parts["nonordinal"])
    if model.quantize_ordinal is None:
        return Sources(Codes(nonordinal, nonordinal), None)
    soft = model.config.attention == "soft"
    ordinal = parts["ordinal"] if soft else model.quantize_ordinal.lookup(parts["ordinal"])
    grid = model.config.ordinal_grid or model.latent_size
    codes = Codes(ordinal.expand(-1, -1, grid, grid), nonordinal)
    z, read = (parts[name].float() if name in parts else None for name in ("z", "read"))
    return Sources(codes, z, read=read)


def _values(piece: Tensor, kind: np.dtype[Any]) -> Tensor:
    """Read whole numbers as long, whatever unsigned type torch can or cannot compute with."""
    if kind.kind == "f":
        return piece.view(torch.float16 if kind.itemsize == 2 else torch.float32)
    if kind.itemsize == 1:
        return piece.long()
    signed = piece.view(torch.int16 if kind.itemsize == 2 else torch.int32)
    return torch.bitwise_and(signed.long(), 2 ** (8 * kind.itemsize) - 1)
