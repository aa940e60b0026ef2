"""Encode a training split into a latent store, once, resumably.

How far it is stands in ``part.json`` (`dismix.mixing.filling`); ``index.json`` comes last.
"""

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dismix import atomic
from dismix.data.digest import content_digests, file_digest
from dismix.data.manifest import Manifest, read_manifest
from dismix.data.store import ImageStore, build_store, default_cache_dir
from dismix.data.store_settings import settings_for, store_key
from dismix.data.transforms import equalize, to_unit
from dismix.errors import DisMixError
from dismix.generator.model import Generator
from dismix.generator.reading import READING, reading_of
from dismix.generator.run_file import manifest_of, require_fitting
from dismix.generator.saving import digest, save_tensors
from dismix.labels import OrdinalTarget
from dismix.locks import locked
from dismix.mixing.details import write_details
from dismix.mixing.filling import RecordFile
from dismix.mixing.inference import inference
from dismix.mixing.latents import (
    CODES,
    FOLDER,
    FORMAT,
    INDEX,
    TARGETS,
    LatentStore,
    find_store,
)
from dismix.mixing.partner_index import PartnerIndex
from dismix.mixing.records import make_records, record_type
from dismix.mixing.severity import Severity
from dismix.progress import Progress

COUNT, LOCK = "part.json", "lock"
_COLOURS = {1: "grey", 3: "colour"}


def generator_digest(model: Generator) -> str:
    """Return the digest of a generator's structure and weights, wherever it lies."""
    text = json.dumps(model.config.to_dict(), sort_keys=True) + digest(model.state_dict())
    return hashlib.sha256(text.encode()).hexdigest()


def run_manifest(run: str | Path) -> Path:
    """Return the manifest that a run was trained on."""
    path = Path(run) / "run.json"
    try:
        return manifest_of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DisMixError(
            f"does not name the run's manifest ({type(error).__name__})",
            file=path,
            cure="give it with --manifest",
        ) from error


def open_store(run: str | Path, model: Generator) -> LatentStore:
    """Open the store beside a run; of several, that of the data the run was trained on."""

    def own(store: LatentStore) -> bool:
        try:
            rows = training_rows(model, read_manifest(run_manifest(run)))
            digests = content_digests(rows.image_paths, default_cache_dir())
        except (DisMixError, OSError):
            # The data may be gone; the codes are not.
            return False
        return store.holds(digests, rows.target())

    store = find_store(run, generator_digest(model), own)
    require_current(store, run)
    return store


def require_current(store: LatentStore, run: str | Path) -> None:
    """Raise where the manifest that a store was made from has other images or labels by now.

    Args:
        store: Of a run.
        run: Its folder, for the message.
    """
    path = store.origin.get("manifest")
    if not path or not Path(path).is_file():
        # Moved or gone: the codes are all there is.
        return
    try:
        now = _origin(read_manifest(path).split("train"))
    except DisMixError:
        return
    if now["data"] != store.origin.get("data"):
        raise DisMixError(
            f"holds codes of other images or labels than {path} has now", file=store.folder,
            cure=f"run `dismix mix encode {run} --manifest {path}` again, or name this folder with"
            " store=",
        )  # fmt: skip


def _origin(rows: Manifest) -> dict[str, Any]:
    """Return where training rows come from and what they are, pixels left out."""
    path = None if rows.path is None else str(rows.path.resolve())
    return {"manifest": path, "data": rows.fingerprint(), READING: reading_of(rows.meta)}


def training_rows(model: Generator, manifest: Manifest) -> Manifest:
    """Return the training split of a manifest, after checking that it can be mixed."""
    if manifest.num_ranks != model.config.num_ranks:
        raise DisMixError(
            f"has {manifest.num_ranks} ranks, the generator {model.config.num_ranks}",
            file=manifest.path,
            cure="give the manifest the generator was trained on",
        )
    channels = 1 if manifest.meta.grey else 3
    if channels != model.in_channels:
        raise DisMixError(
            f"holds {_COLOURS[channels]} images, the generator was trained on"
            f" {_COLOURS[model.in_channels]} ones",
            file=manifest.path,
            cure=f"import them with --set grey={'true' if model.in_channels == 1 else 'false'}",
        )
    rows = manifest.split("train")
    if len(rows) == 0:
        raise DisMixError("has no training images", file=manifest.path, cure="check the splits")
    PartnerIndex(rows.target().hard, rows.num_ranks).require_two_ranks(manifest.path)
    return rows


def encode_split(
    run: str | Path,
    manifest: str | Path | None = None,
    *,
    device: torch.device | str = "cpu",
    batch_size: int = 64,
    details: bool = False,
    severity: Severity = "label",
    cache: Path | None = None,
    progress: Progress | None = None,
) -> LatentStore:
    """Open the latent store of a run's training split, after encoding what it lacks.

    Args:
        run: Run folder; the store is kept beside it, in ``RUN/latents``.
        manifest: Data to encode; what the run was trained on by default.
        device: Where to encode.
        batch_size: Images at once.
        details: Keep what the codes leave out of the images too (`dismix.mixing.details`).
        severity: What the codes show that leave them out (`dismix.mixing.severity`).
        cache: Folder of the image stores.
        progress: Called as ``progress("encoding", images done, N)``.
    """
    model = Generator.load(run, device)
    rows = training_rows(model, read_manifest(manifest or run_manifest(run)))
    require_fitting(Path(run), rows)
    images = build_store(
        rows.image_paths, settings_for(rows.meta, model.image_size), cache, progress=progress
    )
    store = _encoded(Path(run), model, rows, images, batch_size, progress)
    if details:
        with locked(store.folder / LOCK):
            write_details(
                store, model, images, equalized=rows.meta.equalize, severity=severity,
                batch_size=batch_size, progress=progress,
            )  # fmt: skip
    return store


def _encoded(
    run: Path,
    model: Generator,
    rows: Manifest,
    images: ImageStore,
    batch_size: int,
    progress: Progress | None,
) -> LatentStore:
    target, name = rows.target(), generator_digest(model)
    folder = run / FOLDER / latent_key(name, images, target, rows.meta.equalize)
    if (store := _finished(folder, name, model)) is not None:
        return _up_to_date(store, rows, images)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DisMixError(
            f"the latent store cannot be written ({error.strerror})", file=folder,
            cure="copy the run to a folder that can be written",
        ) from error  # fmt: skip
    with locked(folder / LOCK):
        # Another process may have finished it while this one waited.
        if (store := _finished(folder, name, model)) is not None:
            return _up_to_date(store, rows, images)
        if (folder / INDEX).is_file():
            # Finished once and damaged since: what was counted then is not to be trusted.
            (folder / COUNT).unlink(missing_ok=True)
            (folder / INDEX).unlink()
        save_tensors(folder / TARGETS, _targets(rows, images))
        file = RecordFile(folder / CODES, folder / COUNT, len(images), record_type(model).itemsize)
        _fill(file, model, images, target, rows.meta.equalize, batch_size, progress)
        index = {
            "format": FORMAT, "generator": name, "count": len(images),
            "record_bytes": file.record_bytes, "ranks": target.num_ranks,
            "sha256": file_digest(folder / CODES), **_origin(rows),
        }  # fmt: skip
        atomic.write_json(folder / INDEX, index)
        (folder / COUNT).unlink(missing_ok=True)
        return LatentStore(folder)


def latent_key(generator: str, images: ImageStore, target: OrdinalTarget, equalized: bool) -> str:
    """Return the name of the store of these codes: generator, images, order and labels."""
    parts = [FORMAT, generator, store_key(images.digests, images.settings), equalized]
    parts.append(digest({"probs": target.probs}))
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def consensus_ranks(rows: Manifest) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the consensus rank of each image by Dawid and Skene, from votes or grades."""
    from dismix.data.annotators.consensus import dawid_skene

    ranks = rows.target().hard.numpy().astype(np.int64)
    voted = rows.has_votes
    if rows.votes.shape[1] > 1 and voted.any():
        ranks[voted] = dawid_skene(rows.votes[voted], rows.num_ranks).rank
    return ranks


def _targets(rows: Manifest, images: ImageStore) -> dict[str, torch.Tensor]:
    """Return what stands beside the codes: labels, and digests of images and votes."""
    contents = np.frombuffer(bytes.fromhex("".join(images.digests)), np.uint8)
    return {
        "probs": rows.target().probs,
        "consensus": torch.from_numpy(consensus_ranks(rows)),
        "images": torch.from_numpy(contents.reshape(len(images), -1).copy()),
        "votes": _votes_digest(rows),
    }


def _votes_digest(rows: Manifest) -> torch.Tensor:
    hashed = hashlib.sha256(np.ascontiguousarray(rows.votes).tobytes()).digest()
    return torch.frombuffer(bytearray(hashed), dtype=torch.uint8)


def _up_to_date(store: LatentStore, rows: Manifest, images: ImageStore) -> LatentStore:
    """Return a store whose consensus is that of these votes, and that knows where they are.

    The same shares of votes by other annotators have the same codes, but not the same consensus.
    """
    origin = _origin(rows)
    if store.origin != origin:
        # A help for later, which a folder that cannot be written does without.
        with contextlib.suppress(DisMixError, OSError):
            index = json.loads((store.folder / INDEX).read_text(encoding="utf-8"))
            atomic.write_json(store.folder / INDEX, {**index, **origin})
            store.origin = origin
    votes = _votes_digest(rows)
    if store.votes is not None and torch.equal(store.votes, votes):
        return store
    try:
        save_tensors(store.folder / TARGETS, _targets(rows, images))
    except DisMixError:
        # Older stores say nothing about votes, and may lie where nothing can be written.
        if store.votes is None:
            return store
        raise
    return LatentStore(store.folder)


def _finished(folder: Path, name: str, model: Generator) -> LatentStore | None:
    """Open a store whose contents are those that were written; None if it is to be made."""
    try:
        store = LatentStore(folder)
        store.require_generator(name, model)
    except DisMixError:
        return None
    return store if file_digest(folder / CODES) == store.sha256 else None


def _fill(
    file: RecordFile,
    model: Generator,
    images: ImageStore,
    target: OrdinalTarget,
    equalized: bool,
    batch_size: int,
    progress: Progress | None,
) -> None:
    device, levels = model.post_quant_conv.weight.device, target.levels

    def make(start: int, stop: int) -> bytes:
        pixels = images[start:stop].to(device)
        unit = to_unit(equalize(pixels) if equalized else pixels)
        with inference(device):
            return make_records(model, unit, levels[start:stop].to(device)).tobytes()

    file.fill(make, batch_size, progress)
