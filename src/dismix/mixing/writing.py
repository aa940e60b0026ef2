"""Mixes as files: a folder of pictures that any framework can train on.

The folder holds ``images/``, ``manifest.csv`` with soft labels (`dismix.data.laws`), ``mixes.csv``
with the provenance of each mix, ``README.md`` and, written last, ``mixes.json``. While the work
goes on the settings stand in ``mixes.part.json`` instead: an interrupted writing goes on, and the
same settings always give the same mixes. A larger count goes on after the smaller one.
"""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import Tensor

from dismix import atomic
from dismix.data.manifest import (
    Manifest,
    ManifestMeta,
    make_manifest,
    read_manifest,
    write_manifest,
)
from dismix.data.store import ImageStore, build_store
from dismix.data.store_settings import settings_for
from dismix.data.twins import SAME_PICTURE
from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.encoding import encode_split, run_manifest, training_rows
from dismix.mixing.engine import MixEngine
from dismix.mixing.maker import CHUNK, MixMaker, MixSettings, StoredMixes
from dismix.mixing.mix_table import TABLE, image_name, mix_table, summary, write_table
from dismix.mixing.nearest import Nearest, NearestTraining
from dismix.mixing.originals import original_images, save_picture
from dismix.progress import Progress

DONE, PART, README = "mixes.json", "mixes.part.json", "README.md"
FORMAT = 1
_NOTE = "mixes made by dismix, training targets only"


def write_mixes(
    run: str | Path,
    output: str | Path,
    count: int,
    *,
    settings: MixSettings | None = None,
    manifest: str | Path | None = None,
    originals: bool = False,
    seed: int = 0,
    device: str = "cpu",
    cache: Path | None = None,
    progress: Progress | None = None,
) -> list[str]:
    """Write mixes of a run's training split, or finish or extend what is there.

    Args:
        run: Run folder; its training split is encoded first when that was not done yet.
        output: Folder to fill.
        count: Number of mixes.
        settings: Policies, labels, pairing.
        manifest: Data to mix; what the run was trained on by default.
        originals: List the manifest's own images too, so that the folder's manifest alone
            trains and evaluates; equalised copies where the generator sees equalised images.
        seed: Decides all mixes.
        device: Where to decode.
        cache: Folder of the image stores.
        progress: Called while mixes are written.

    Returns:
        Lines about what was written.
    """
    if count < 1:
        raise DisMixError(f"{count} mixes", column="-n", cure="ask for one or more")
    output, settings = Path(output), settings or MixSettings()
    store = encode_split(
        run, manifest, device=device, details=settings.detail > 0, severity=settings.severity,
        cache=cache, progress=progress,
    )  # fmt: skip
    engine = MixEngine.load(run, store.folder, device=device)
    maker = MixMaker(engine, settings)
    data = read_manifest(manifest or run_manifest(run))
    rows = training_rows(engine.model, data)
    images = build_store(rows.image_paths, settings_for(rows.meta, engine.model.image_size), cache)
    stamp = {
        "format": FORMAT, "generator": store.generator, "store": store.folder.name,
        "seed": seed, "settings": _plain(settings),
    }  # fmt: skip
    _claim(output, stamp, count)
    mixes = maker.draw(count, [seed])
    target = maker.targets(mixes)
    _write_pictures(maker, mixes, output, progress)
    near = _nearest(output, count, images, equalized=rows.meta.equalize, progress=progress)
    table = mix_table(mixes, target, rows.table["image"].tolist(), seed, near)
    write_table(table, output / TABLE)
    own = None
    if originals:
        size = engine.model.image_size
        own = original_images(output, data, size, cache=cache, progress=progress)
    write_manifest(_manifest(output, data, table, target, own), output / "manifest.csv")
    lines = summary(table, SAME_PICTURE, rows.meta.ranks)
    atomic.write_text(output / README, _readme(count, rows.meta, settings, seed, lines))
    atomic.write_json(output / DONE, {**stamp, "count": count})
    (output / PART).unlink(missing_ok=True)
    return lines


def _plain(settings: MixSettings) -> dict[str, object]:
    """Return settings as JSON gives them back."""
    plain: dict[str, object] = json.loads(json.dumps(asdict(settings)))
    return plain


def _claim(output: Path, stamp: dict[str, object], count: int) -> None:
    """Let pass: nothing, an empty folder, or these mixes, whole, interrupted or fewer."""
    cure = "choose another folder, or delete this one"
    found = next((output / n for n in (DONE, PART) if (output / n).is_file()), None)
    if found is None:
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise DisMixError("holds something else than mixes", file=output, cure=cure)
    else:
        try:
            held = json.loads(found.read_text(encoding="utf-8"))
            held_count = int(held.pop("count"))
            # What came later had its default then.
            held["settings"] = {**_plain(MixSettings()), **held["settings"]}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DisMixError(f"is damaged ({error})", file=found, cure=cure) from error
        if held != stamp:
            raise DisMixError("is from other mixes", file=found, cure=cure)
        if held_count > count:
            raise DisMixError(
                f"is for {held_count} mixes, not {count}", file=found,
                cure=f"ask for at least {held_count}, or choose another folder",
            )  # fmt: skip
    atomic.write_json(output / PART, {**stamp, "count": count})
    (output / DONE).unlink(missing_ok=True)


def _write_pictures(
    maker: MixMaker, mixes: StoredMixes, output: Path, progress: Progress | None
) -> None:
    """Decode and write what is missing, always in the same groups of mixes."""
    files = [output / image_name(number) for number in range(len(mixes))]
    for left_by_a_kill in files[0].parent.glob(".mix_*.part.png"):
        left_by_a_kill.unlink()
    with ThreadPoolExecutor(2) as threads:
        for start in range(0, len(mixes), CHUNK):
            part = slice(start, min(start + CHUNK, len(mixes)))
            if not all(file.is_file() for file in files[part]):
                pictures = maker.pictures(mixes[part]).cpu()
                list(threads.map(save_picture, pictures, files[part]))
            if progress is not None:
                progress("writing mixes", part.stop, len(mixes))


def read_pictures(output: Path, numbers: range) -> Tensor:
    """Read written mixes back: (B, channels, H, W) uint8."""
    loaded = [np.asarray(Image.open(output / image_name(number))) for number in numbers]
    return torch.from_numpy(np.stack([np.atleast_3d(p).transpose(2, 0, 1) for p in loaded]))


def _nearest(
    output: Path, count: int, images: ImageStore, *, equalized: bool, progress: Progress | None
) -> Nearest:
    finder = NearestTraining(images, equalized=equalized, progress=progress)

    def parts() -> Iterator[Nearest]:
        for start in range(0, count, CHUNK):
            numbers = range(start, min(start + CHUNK, count))
            yield finder.find(read_pictures(output, numbers))
            if progress is not None:
                progress("comparing with training images", numbers.stop, count)

    found = list(parts())
    return Nearest(
        np.concatenate([part.row for part in found]),
        np.concatenate([part.similarity for part in found]),
    )


def _manifest(
    output: Path,
    data: Manifest,
    table: pd.DataFrame,
    target: OrdinalTarget,
    originals: Sequence[str] | None,
) -> Manifest:
    mixed = table[["image", "policy", "rank"]].assign(split="train")
    for rank in range(target.num_ranks):
        mixed[f"prob_{rank}"] = target.probs[:, rank].double().round(decimals=6).numpy()
    # What the generator learned was equalised already.
    meta = replace(
        data.meta, equalize=False,
        notes="; made from: ".join(filter(None, [_NOTE, data.meta.notes])),
    )  # fmt: skip
    if originals is not None:
        mixed = pd.concat([data.table.assign(image=originals), mixed], ignore_index=True)
    return make_manifest(mixed, meta, output)


def _readme(
    count: int, meta: ManifestMeta, settings: MixSettings, seed: int, lines: list[str]
) -> str:
    notes = "\n".join(f"- {line}" for line in lines)
    return f"""# {count} mixed images

Made by `dismix mix write` from the training images of a graded set ({meta.source or "unnamed"}).

**Interpolated ranks are training targets, not clinical grades.** A rank such as 1.4 says where
between two grades the generator was asked to draw; no annotator graded these pictures. They show
no single patient but are made of patients' images and may resemble them: see `similarity` below.
Do not use them to evaluate, to teach or to diagnose, and do not split them: they come from
training images and belong to the training split only.

- `manifest.csv`: one row a picture, its law over the ranks in `prob_0` to
  `prob_{len(meta.ranks) - 1}` ({", ".join(meta.ranks)}); `rank` is the law's mean.
- `{TABLE}`: sources, policy, lam and seed of each picture, and the training image nearest to it. It
  names training images: look at it before the folder leaves the house.
- settings: policies {_text(settings.policies)}, lam ~ Beta({settings.alpha:g}, {settings.alpha:g}),
  labels by {settings.labels}, {settings.pairing} pairs by {settings.ranks},
  {"" if settings.balanced else "not "}balanced over ranks, severity of the {settings.severity},
  detail {settings.detail:g} with the {settings.detail_with}, the most alike of {settings.alike}
  partners, at most {settings.reach:g} of the partner where a policy interpolates (order_swap does
  not), seed {seed}.

{notes}
"""


def _text(policies: str | tuple[str, ...]) -> str:
    return policies if isinstance(policies, str) else ", ".join(policies)
