"""The latent store: the codes of a training split, encoded once and memory-mapped.

A store is a folder ``RUN/latents/<key>``, named by the contents of the generator, of the images
and of their labels, so that codes of another generator or of changed data are never found::

    codes.bin              N records of equal size, see `record_type`
    targets.safetensors    probs (N, C), consensus (N,), images (N, 32), votes (32,): digests
    index.json             format, generator, shape; written last, makes a store complete

A record holds the smallest exact form of the codes: indices (4 KiB an image for the paper's
shape), one index for the whole picture where the ordinal code says the rank alone, vectors where
soft attention leaves no index; and z in half precision, where asking for another rank needs it.
No path and no name of an image is written.
"""

import json
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dismix.errors import DisMixError
from dismix.generator.codes import Codes
from dismix.generator.model import Generator
from dismix.generator.saving import load_tensors
from dismix.labels import OrdinalTarget

FORMAT = 1
FOLDER, CODES, TARGETS, INDEX = "latents", "codes.bin", "targets.safetensors", "index.json"
ENCODE = "encode the training split with `dismix mix encode RUN`"
# Mapped pages count as the process's memory until they are given back.
_RELEASE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Sources:
    """What mixing needs of B images.

    Attributes:
        codes: Their codes, the ordinal ones conditioned on their own labels.
        z: (B, D_o, h, w) before the ordinal quantizer, to ask for another rank; None where
            the generator does not need it.
    """

    codes: Codes
    z: Tensor | None

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: Tensor | slice) -> "Sources":
        return Sources(self.codes[index], None if self.z is None else self.z[index])

    @staticmethod
    def cat(parts: "list[Sources]") -> "Sources":
        """Join batches."""
        z = [part.z for part in parts if part.z is not None]
        return Sources(Codes.cat([part.codes for part in parts]), torch.cat(z) if z else None)


def conditions(model: Generator) -> bool:
    """Tell whether the ordinal code can be asked for a rank at all."""
    return model.quantize_ordinal is not None and model.quantize_ordinal.condition is not None


def keeps_z(model: Generator) -> bool:
    """Tell whether z is needed to ask for another rank; a rank-only code does not look at it."""
    return conditions(model) and not model.config.rank_only


def record_type(model: Generator) -> np.dtype[Any]:
    """Return what a generator stores of an image.

    Example:
        >>> from dismix.generator.config import GeneratorConfig
        >>> record_type(Generator.seeded(GeneratorConfig(num_ranks=5, arch="tiny"), 0)).itemsize
        3072
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
    if keeps_z(model):
        fields.append(("z", "<f2", (config.ordinal_width, grid, grid)))
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
        piece = raw[:, start : start + field.itemsize].contiguous()
        parts[name] = _values(piece, field.base).view(len(raw), *field.shape)
    nonordinal = model.quantize.lookup(parts["nonordinal"])
    if model.quantize_ordinal is None:
        return Sources(Codes(nonordinal, nonordinal), None)
    soft = model.config.attention == "soft"
    ordinal = parts["ordinal"] if soft else model.quantize_ordinal.lookup(parts["ordinal"])
    grid = model.config.ordinal_grid or model.latent_size
    codes = Codes(ordinal.expand(-1, -1, grid, grid), nonordinal)
    return Sources(codes, parts["z"].float() if "z" in parts else None)


def _values(piece: Tensor, kind: np.dtype[Any]) -> Tensor:
    """Read whole numbers as long, whatever unsigned type torch can or cannot compute with."""
    if kind.kind == "f":
        return piece.view(torch.float16 if kind.itemsize == 2 else torch.float32)
    if kind.itemsize == 1:
        return piece.long()
    signed = piece.view(torch.int16 if kind.itemsize == 2 else torch.int32)
    return torch.bitwise_and(signed.long(), 2 ** (8 * kind.itemsize) - 1)


class LatentStore:
    """The codes and targets of N training images.

    Args:
        folder: Folder of a complete store.

    Attributes:
        target: Targets (N, C) of the images, from the votes.
        consensus: (N,) ranks by Dawid and Skene's model of the annotators.
        generator: Content digest of the generator.
        images: (N, 32) uint8, content digests of the image files; None in older stores.
        votes: (32,) uint8, digest of the votes behind the consensus; None in older stores.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        index = self._read_index()
        self.count, self.record_bytes = int(index["count"]), int(index["record_bytes"])
        self.generator, self.sha256 = str(index["generator"]), str(index["sha256"])
        targets = self._read_targets()
        self.target = OrdinalTarget.from_probs(targets["probs"])
        self.consensus = targets["consensus"]
        self.images, self.votes = targets.get("images"), targets.get("votes")
        self._open()

    def _read_index(self) -> dict[str, Any]:
        path = self.folder / INDEX
        if not path.is_file():
            raise DisMixError("is not a complete latent store", file=self.folder, cure=ENCODE)
        try:
            index: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            size = int(index["count"]) * int(index["record_bytes"])
            known = index["format"] == FORMAT
        except (ValueError, KeyError, TypeError) as error:
            raise DisMixError(f"is damaged ({error})", file=path, cure=ENCODE) from error
        if not known:
            raise DisMixError("is of another format", file=path, cure=ENCODE)
        codes = self.folder / CODES
        found = codes.stat().st_size if codes.is_file() else 0
        if found != size:
            raise DisMixError(f"has {found} bytes instead of {size}", file=codes, cure=ENCODE)
        return index

    def _read_targets(self) -> dict[str, Tensor]:
        path = self.folder / TARGETS
        try:
            # Copies: what safetensors returns may lie in the mapped file, which can be replaced.
            targets = {name: tensor.clone() for name, tensor in load_tensors(path).items()}
            known = {len(targets["probs"]), len(targets["consensus"])} == {self.count}
        except DisMixError as error:
            raise DisMixError(error.problem, file=path, cure=ENCODE) from error
        except KeyError as error:
            raise DisMixError(f"has no {error}", file=path, cure=ENCODE) from error
        if not known:
            raise DisMixError(f"is not for {self.count} images", file=path, cure=ENCODE)
        return targets

    def _open(self) -> None:
        with open(self.folder / CODES, "rb") as handle:
            self._mapping = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
        shape = (self.count, self.record_bytes)
        self._array = np.frombuffer(self._mapping, np.uint8).reshape(shape)
        self._touched = 0
        self._resident: dict[torch.device, Tensor] = {}

    def __len__(self) -> int:
        return self.count

    @property
    def nbytes(self) -> int:
        """Bytes of all records."""
        return self.count * self.record_bytes

    def require_generator(self, digest: str, model: Generator) -> None:
        """Raise unless these are the codes of this generator.

        Args:
            digest: The generator's content digest, see `dismix.mixing.encoding`.
            model: The generator.
        """
        if self.generator != digest or record_type(model).itemsize != self.record_bytes:
            raise DisMixError(
                "holds codes of another generator", file=self.folder, cure=f"{ENCODE} again"
            )

    def require_rows(self, rows: Tensor, least: int = 0) -> None:
        """Raise when a row (B,) is below ``least`` or beyond the stored images."""
        wrong = rows[(rows < least) | (rows >= self.count)]
        if len(wrong):
            raise DisMixError(
                f"row {int(wrong[0])} is not in the latent store of {self.count} images",
                file=self.folder,
                cure="rows count the images of the training split from 0, in its order",
            )

    def rows_of(self, digests: Sequence[str], target: OrdinalTarget | None = None) -> Tensor:
        """Return the rows (M,) of images, -1 for those that are not here.

        Args:
            digests: SHA-256 of M image files, in hexadecimal.
            target: Their targets. Codes know the labels they were made with, so that an image
                with another label counts as unknown.
        """
        found = torch.full((len(digests),), -1)
        if self.images is None:
            return found
        places = {bytes(row): i for i, row in enumerate(self.images.numpy())}
        found = torch.tensor([places.get(bytes.fromhex(d), -1) for d in digests], dtype=torch.long)
        if target is None:
            return found
        own = self.target.probs[found.clamp_min(0)]
        alike = own.shape[1] == target.num_ranks and (
            (own - target.probs.cpu()).abs().amax(1) < 1e-5
        )
        return torch.where((found >= 0) & torch.as_tensor(alike), found, -1)

    def sources(self, rows: Tensor, model: Generator) -> Sources:
        """Return codes of images, on the generator's device.

        Args:
            rows: (B,) long.
            model: The generator of the codes.
        """
        rows = rows.cpu()
        self.require_rows(rows)
        device = model.post_quant_conv.weight.device
        if device.type != "cpu" and self.fits_on(device):
            return read_records(model, self._on(device)[rows.to(device)])
        return read_records(model, self._gather(rows).to(device, non_blocking=True))

    def _gather(self, rows: Tensor) -> Tensor:
        raw = np.empty((len(rows), self.record_bytes), np.uint8)
        np.take(self._array, rows.numpy(), axis=0, out=raw, mode="clip")
        self._touched += raw.nbytes
        if self._touched > _RELEASE_BYTES and hasattr(mmap, "MADV_DONTNEED"):
            # The pages stay in the system's cache: reading them again costs next to nothing.
            self._mapping.madvise(mmap.MADV_DONTNEED)
            self._touched = 0
        return torch.from_numpy(raw)

    def fits_on(self, device: torch.device, share: float = 0.1) -> bool:
        """Tell whether all records take at most ``share`` of a GPU's free memory."""
        if device in self._resident:
            return True
        if device.type != "cuda":
            return False
        return self.nbytes <= share * torch.cuda.mem_get_info(device)[0]

    def _on(self, device: torch.device) -> Tensor:
        if device not in self._resident:
            self._resident[device] = torch.from_numpy(self._array.copy()).to(device)
        return self._resident[device]

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process maps the file itself instead of receiving the codes.
        return LatentStore, (self.folder,)


def find_store(
    run: str | Path,
    digest: str,
    own: "Callable[[LatentStore], bool] | None" = None,
) -> LatentStore:
    """Open the only store beside a run that holds the codes of this generator.

    Args:
        run: Run folder.
        digest: Content digest of the generator.
        own: Tells which of several stores is of the data that the run was trained on.
    """
    run = Path(run)
    folders = sorted(path.parent for path in (run / FOLDER).glob(f"*/{INDEX}"))
    if not folders:
        raise DisMixError(
            "has no latent store", file=run, cure=f"run `dismix mix encode {run}` first"
        )
    stores, damaged = [], []
    for folder in folders:
        try:
            stores.append(LatentStore(folder))
        except DisMixError as error:
            # Perhaps of another generator: what is whole may do.
            damaged.append(error)
    stores = [store for store in stores if store.generator == digest]
    if damaged and not stores:
        raise damaged[0]
    if not stores:
        raise DisMixError(
            "holds codes of another generator only", file=run / FOLDER,
            cure=f"run `dismix mix encode {run}` again",
        )  # fmt: skip
    if len(stores) > 1 and own is not None:
        stores = [store for store in stores if own(store)] or stores
    if len(stores) > 1:
        names = ", ".join(store.folder.name for store in stores)
        raise DisMixError(
            f"holds stores of several data sets ({names})", file=run / FOLDER,
            cure="name one of these folders with store=, or delete the old ones",
        )  # fmt: skip
    return stores[0]
