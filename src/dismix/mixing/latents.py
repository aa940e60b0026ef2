"""The latent store: the codes of a training split, encoded once and memory-mapped.

A store is a folder ``RUN/latents/<key>``, named by the contents of the generator, of the images
and of their labels, so that codes of another generator or of changed data are never found::

    codes.bin              N records of equal size, see `dismix.mixing.records`
    details*.bin           where asked for, see `dismix.mixing.details`
    targets.safetensors    probs (N, C), consensus (N,), images (N, 32), votes (32,): digests
    index.json             format, generator, shape; written last, makes a store complete

No path and no name of an image is written.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dismix.errors import DisMixError
from dismix.generator.model import Generator
from dismix.generator.reading import READING, reading_at
from dismix.generator.saving import load_tensors
from dismix.labels import OrdinalTarget
from dismix.mixing.mapped import MappedRecords
from dismix.mixing.records import Sources, read_records, record_type

FORMAT, DIGEST_BYTES = 2, 32
FOLDER, CODES, TARGETS, INDEX = "latents", "codes.bin", "targets.safetensors", "index.json"
ENCODE = "encode the training split with `dismix mix encode RUN`"


def _content(digest: str) -> bytes:
    """Return the bytes of a digest; "" is that of a file that could not be read."""
    try:
        content = bytes.fromhex(digest)
    except (TypeError, ValueError):
        content = b"?"
    if len(content) not in (0, DIGEST_BYTES):
        raise DisMixError(
            f"'{digest}' is no digest of an image file",
            cure="give dismix.data.digest.file_digest(path) of each file",
        )
    return content


def _alike(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> bool:
    """Tell whether laws over the ranks are equal but for rounding."""
    return first.shape == second.shape and bool((np.abs(first - second) < 1e-5).all())


class LatentStore:
    """The codes and targets of N training images.

    Args:
        folder: Folder of a complete store.

    Attributes:
        target: Targets (N, C) of the images, from the votes.
        consensus: (N,) ranks by Dawid and Skene's model of the annotators.
        generator: Content digest of the generator.
        origin: The "manifest" it was made from, the fingerprint "data" of its training rows and
            the "reading" of their files; less in older stores.
        images: (N, 32) uint8, content digests of the image files; None in older stores.
        votes: (32,) uint8, digest of the votes behind the consensus; None in older stores.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        index = self._read_index()
        self.count, self.record_bytes = int(index["count"]), int(index["record_bytes"])
        self.generator, self.sha256 = str(index["generator"]), str(index["sha256"])
        self.origin: dict[str, Any] = {
            name: index[name] for name in ("manifest", "data", READING) if name in index
        }
        targets = self._read_targets()
        self.target = OrdinalTarget.from_probs(targets["probs"])
        self.consensus = targets["consensus"]
        self.images, self.votes = targets.get("images"), targets.get("votes")
        self.records = MappedRecords(self.folder / CODES, self.count, self.record_bytes)

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

    def __len__(self) -> int:
        return self.count

    @property
    def nbytes(self) -> int:
        """Bytes of all records."""
        return self.records.nbytes

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

    @property
    def reading(self) -> dict[str, Any]:
        """How the files of the images were read, as far as known."""
        known: dict[str, Any] = self.origin.get(READING) or reading_at(self.origin.get("manifest"))
        return known

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
        places: dict[bytes, list[int]] = {}
        for row, content in enumerate([] if self.images is None else self.images.numpy()):
            places.setdefault(bytes(content), []).append(row)
        found = [places.get(_content(digest), []) for digest in digests]
        if target is not None:
            # The same picture may be there twice, with other labels.
            laws, own = target.probs.cpu().numpy(), self.target.probs.numpy()
            found = [
                [row for row in rows if _alike(own[row], law)]
                for rows, law in zip(found, laws, strict=True)
            ]
        return torch.tensor([rows[-1] if rows else -1 for rows in found], dtype=torch.long)

    def holds(self, digests: Sequence[str], target: OrdinalTarget) -> bool:
        """Tell whether these are the codes of just these images, in this order, so labelled.

        Args:
            digests: SHA-256 of M image files, in hexadecimal.
            target: Their targets.
        """
        if self.images is None or len(digests) != self.count:
            return False
        same = self.images.numpy().tobytes() == bytes.fromhex("".join(digests))
        return same and _alike(self.target.probs.numpy(), target.probs.cpu().numpy())

    def sources(self, rows: Tensor, model: Generator) -> Sources:
        """Return codes of images, on the generator's device.

        Args:
            rows: (B,) long.
            model: The generator of the codes.
        """
        rows = rows.cpu()
        self.require_rows(rows)
        device = model.post_quant_conv.weight.device
        return read_records(model, self.records.read(rows, device))

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
