"""From a manifest and a few names to a trained grader in a run folder."""

import json
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dismix import atomic
from dismix.errors import DisMixError
from dismix.graders.settings import TrainSettings
from dismix.locks import in_use
from dismix.progress import Progress
from dismix.provenance import provenance

if TYPE_CHECKING:
    from dismix.data.manifest import Manifest
    from dismix.graders.state import Mixer

RUN_FILE = "run.json"
RESULT = "result.json"


def train_grader(
    manifest: str | Path,
    run: str | Path,
    settings: TrainSettings,
    *,
    seed: int = 0,
    mix: str | None = None,
    mix_options: Mapping[str, Any] | None = None,
    generator: str | Path | None = None,
    weight_column: str | None = None,
    allow_missing: bool = False,
    resume: bool = False,
    cpu: bool = False,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train a grader and return what ``result.json`` holds.

    Args:
        manifest: Manifest with a training and a validation split. Of test images, where there
            are any, only the bytes are compared with those of the training images and of those
            that a mixer has in store.
        run: Folder to fill: ``model.safetensors``, ``metrics.jsonl``, ``card.md`` and so on.
        settings: From `dismix.graders.settings.choose_settings`.
        seed: Seed of all choices.
        mix: Name of a mixer of `dismix.mixing`, or None.
        mix_options: Its options.
        generator: Run folder of a generator, for ``mix="dismix"``.
        weight_column: Column of the manifest with a weight for each image.
        allow_missing: Go on although some grade has no training image.
        resume: Continue when the folder holds an interrupted run.
        cpu: Do not use a GPU.
        cache: Folder of the image stores.
        progress: Called while images are decoded and after each step.
    """
    from dismix.accelerators import make_accelerator
    from dismix.data.digest import content_digests
    from dismix.data.manifest import read_manifest
    from dismix.data.store import default_cache_dir
    from dismix.generator.images import load_split
    from dismix.generator.trained_on import read_trained_on, write_trained_on
    from dismix.graders.card import write_card
    from dismix.graders.checks import check_training
    from dismix.graders.registry import create_grader
    from dismix.graders.saving import about_grader
    from dismix.graders.split_twins import twins_note
    from dismix.graders.training import Training, run_training

    run, data = Path(run), read_manifest(manifest)
    grader = create_grader(
        settings.method, backbone=settings.backbone, weights=settings.weights,
        num_ranks=data.num_ranks, seed=seed, **settings.hparams,
    )  # fmt: skip
    check_training(
        grader, settings, data.split("train").target(), data, allow_missing=allow_missing
    )
    accelerator = make_accelerator(cpu=cpu)
    made = provenance(accelerator.device.type)
    grader.about = about_grader(data, settings, seed, mix, made)
    sample_weights = _sample_weights(data.split("train"), weight_column)
    described = {
        "settings": settings.to_dict(), "seed": seed, "manifest": str(manifest), "mix": mix,
        "data": data.split("train", "val").fingerprint(),
        "mix_options": dict(mix_options or {}), "weight_column": weight_column,
        "generator": None if generator is None else str(generator),
        "ranks": [*data.meta.ranks],
    }  # fmt: skip
    if sample_weights is not None:
        described["weights"] = sha256(sample_weights.numpy().tobytes()).hexdigest()[:16]
    with ExitStack() as held:
        if accelerator.is_main_process:
            held.enter_context(in_use(run))
            claim(run, described, resume, accelerator.device.type)
        accelerator.wait_for_everyone()
        if resume and (done := _finished(run, settings)) is not None:
            return done
        splits = {
            name: load_split(
                data, name, settings.size, device=accelerator.device, cache=cache, progress=progress
            )
            for name in ("train", "val")
        }
        if accelerator.is_main_process:
            # Known by now: decoding has read them. A run that goes on has learned from what lay
            # there before, too.
            known_in = cache or default_cache_dir()
            seen = content_digests(data.split("train").image_paths, known_in)
            if note := twins_note(data, seen, known_in):
                warnings.warn(note, stacklevel=2)
            write_trained_on(run, {*seen, *(read_trained_on(run) if resume else ())})
        mixer = make_mixer(mix, data.num_ranks, generator, mix_options or {})
        training = Training(
            grader.to(accelerator.device), settings, seed, mixer=mixer,
            sample_weights=sample_weights,
            mixer_rows=mixer_rows(mixer, data, cache),
        )  # fmt: skip
        run_training(
            training, splits["train"], splits["val"], run, accelerator, resume=resume,
            progress=progress,
        )  # fmt: skip
        result = _judge_chosen(run, settings, splits, accelerator.device)
        if accelerator.is_main_process:
            atomic.write_json(run / RESULT, result)
            write_card(run, data)
        return result


def _finished(run: Path, settings: TrainSettings) -> dict[str, Any] | None:
    """Return the result of a run that is over and whose checkpoint was deleted, else None."""
    from dismix.generator.checkpoint import FILE
    from dismix.graders.state import model_file

    models = [run / model_file(rule, n) for n, rule in enumerate(settings.select)]
    if (run / FILE).is_file() or not all(p.is_file() for p in [run / RESULT, *models]):
        return None
    cure = "restore it; without the checkpoint it cannot be written again"
    return atomic.read_json(run / RESULT, "select", "epoch", "validation", cure=cure)


def _judge_chosen(
    run: Path, settings: TrainSettings, splits: Mapping[str, Any], device: Any
) -> dict[str, Any]:
    """Return epoch and validation metrics of the model of each rule, the first one's on top."""
    from dismix.graders.evaluation import evaluate
    from dismix.graders.saving import load_grader
    from dismix.graders.state import model_file

    rules: dict[str, Any] = {}
    for number, rule in enumerate(settings.select):
        name = model_file(rule, number)
        grader = load_grader(run / name, device)
        metrics = evaluate(grader, splits["val"])
        rules[rule] = {"file": name, "epoch": grader.about["epoch"], "validation": metrics}
        if grader.by_rank and not grader.cuts.isnan().any():
            rules[rule]["cuts"] = grader.cuts.tolist()
    first = settings.select[0]
    return {"select": first, **rules[first], "rules": rules}


def make_mixer(
    name: str | None,
    num_ranks: int,
    generator: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> "Mixer | None":
    """Make a mixer by name, or None for "none".

    Args:
        name: See `dismix.mixing.MIXERS`.
        num_ranks: C.
        generator: Run folder for mixers that need a generator.
        options: Of the mixer.
    """
    if name is None or name == "none":
        if generator is not None:
            raise DisMixError("a generator is given but no mixer", cure="add --mix dismix")
        if options:
            raise DisMixError(
                f"options of a mixer are given ({', '.join(options)}) but no mixer",
                cure="choose one, or leave them out",
            )
        return None
    from dismix.mixing import create_mixer

    given = dict(options or {})
    if generator is not None:
        given["run"] = generator
    elif name == "dismix":
        raise DisMixError(
            "the mixer 'dismix' needs a generator", cure="give --generator RUN, a trained one"
        )
    mixer: Mixer = create_mixer(name, num_ranks, **given)
    return mixer


def mixer_rows(mixer: "Mixer | None", data: "Manifest", cache: Path | None = None) -> Any:
    """Return where a mixer has the training images in store (N,), None if it stores nothing.

    Args:
        mixer: From `make_mixer`.
        data: All splits.
        cache: Folder of the image stores.

    Raises:
        DisMixError: Images that the grader is chosen or tested on would be mixed into training,
            the generator has learned them, or its images were read in another way.
    """
    from dismix.data.digest import content_digests
    from dismix.data.store import default_cache_dir
    from dismix.generator.reading import require_same_reading, run_reading
    from dismix.generator.run_file import require_same_ranks

    if not getattr(mixer, "takes_rows", False):
        return None
    engine = mixer.engine  # type: ignore[union-attr]
    run, reading = engine.run, {"grey": engine.model.in_channels == 1, **engine.store.reading}
    if run is not None:
        require_same_ranks(run, data)
        reading = {**run_reading(run), **reading}
    require_same_reading(reading, data)
    rows_of: Any = mixer.rows_of  # type: ignore[union-attr]
    folder = cache or default_cache_dir()
    train = data.split("train")
    own = content_digests(train.image_paths, folder)
    for split, word in (("val", "validation"), ("test", "test")):
        # Test images need not be here yet.
        paths = [path for path in data.split(split).image_paths if path.is_file()]
        # An image that is in both splits of these data is no fault of the mixer's: all training
        # on them warns of it (`dismix.graders.split_twins`).
        held_out = sorted({*content_digests(paths, folder)} - {*own})
        leaked = int((rows_of(held_out) >= 0).sum())
        learned = len({*held_out} & getattr(mixer, "trained_on", frozenset()))
        if learned and not leaked:
            raise DisMixError(
                f"{learned} {word} images are among those that the generator was trained on",
                file=data.path,
                cure="train a generator on the training split of these data",
            )
        if leaked:
            raise DisMixError(
                f"{leaked} {word} images are among the images that the mixer mixes in",
                file=data.path,
                cure="use a generator trained on the training split of these data",
            )
    return rows_of(own, train.target())


def _sample_weights(train: "Manifest", column: str | None) -> Any:
    import torch

    from dismix.registry import near_names

    if column is None:
        return None
    if column not in train.table:
        raise DisMixError(
            f"has no column '{column}'",
            file=train.path,
            cure=near_names(column, [str(c) for c in train.table.columns]),
        )
    import numpy as np
    import pandas as pd

    from dismix.data.delimited import with_point

    cells = train.table[column].map(lambda c: with_point(c) if isinstance(c, str) else c)
    numbers = pd.to_numeric(cells, errors="coerce").to_numpy(float)
    bad = ~((numbers >= 0) & np.isfinite(numbers))
    if bad.any():
        row = int(bad.argmax())
        raise DisMixError(
            f"'{train.table[column].iloc[row]}' is no weight",
            file=train.path,
            row=int(train.lines[row]),
            column=column,
            cure="give finite numbers that are not negative",
        )
    if not numbers.any():
        raise DisMixError(
            "all weights are 0", file=train.path, column=column, cure="give some above 0"
        )
    return torch.tensor(numbers, dtype=torch.float32)


def claim(run: Path, described: dict[str, Any], resume: bool, device: str | None = None) -> None:
    """Write ``run.json``, or check that it says the same.

    Args:
        run: Run folder.
        described: What the run is started with.
        resume: Whether it goes on.
        device: Kind of the device that computes.
    """
    from dismix.generator.checkpoint import FILE
    from dismix.generator.run_file import continued, refuse_other
    from dismix.graders.saving import MODEL
    from dismix.graders.state import refuse_unfinished

    path = run / RUN_FILE
    # Through JSON, so that tuples and lists compare equal.
    described = json.loads(json.dumps(described))
    now = provenance(device)
    if path.is_file():
        # The checkpoint may have been deleted when the run was over; the model must not go too.
        if not resume and ((run / FILE).is_file() or (run / MODEL).is_file()):
            raise DisMixError(
                "holds a run already", file=run, cure="add --resume, or choose another folder"
            )
        if not resume:
            refuse_unfinished(run)
        else:
            refuse_other(path, described)
            now = continued(path, now)
    # The data are to be found from other folders too; where they lie may change, though.
    found = {"manifest_at": str(Path(described["manifest"]).resolve()), "provenance": now}
    atomic.write_json(path, {**described, **found})
