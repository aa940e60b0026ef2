"""DisMix in the graders' training: stored codes are used, and only where they are the image's."""

import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from tests.graders.toy import toy_settings, toy_split, toy_training
from tests.mixing.toy_run import make_run

from dismix.accelerators import make_accelerator
from dismix.cli import main
from dismix.data.digest import content_digests
from dismix.data.manifest import read_manifest, write_manifest
from dismix.errors import DisMixError
from dismix.generator.images import load_split
from dismix.generator.trained_on import write_trained_on
from dismix.graders.registry import create_grader
from dismix.graders.start_run import mixer_rows
from dismix.graders.training import Training, reseed_mixer, run_training
from dismix.labels import OrdinalTarget
from dismix.mixing.dismix import DisMix
from dismix.mixing.encoding import encode_split
from dismix.mixing.engine import MixEngine
from dismix.mixing.latents import LatentStore
from dismix.mixing.mixup import Mixup


class Keeper:
    """Stores images, and writes down what the loop tells about those it mixes."""

    takes_rows = True

    def __init__(self) -> None:
        self.calls: list[tuple[torch.Tensor, torch.Tensor | None, bool]] = []

    def __call__(
        self, images: torch.Tensor, target: OrdinalTarget, *, rows: Any, augmented: bool
    ) -> tuple[torch.Tensor, OrdinalTarget]:
        self.calls.append((images, rows, augmented))
        return images, target


def trained(folder: Path, mixer: Any, **changes: Any) -> None:
    settings = toy_settings(**{"epochs": 2, "augment": False, **changes})
    rows = 100 + torch.arange(40)
    training = toy_training(settings, mixer=mixer, mixer_rows=rows)
    run_training(training, toy_split(), toy_split(20, seed=1), folder, make_accelerator(cpu=True))


def test_the_loop_tells_a_mixer_which_images_these_are(tmp_path):
    mixer = Keeper()
    trained(tmp_path / "plain", mixer)
    split = toy_split()
    for images, rows, augmented in mixer.calls:
        assert not augmented
        assert torch.equal(images, split.images(rows - 100, "cpu"))
    turned = Keeper()
    trained(tmp_path / "turned", turned, augment=True)
    assert all(augmented for _, _, augmented in turned.calls)
    # Two views of an image are turned after mixing.
    views = Keeper()
    trained(tmp_path / "views", views, method="rnc", augment=True, epochs=2)
    assert {augmented for _, _, augmented in views.calls} == {True, False}
    for images, rows, augmented in views.calls:
        assert torch.equal(images, split.images(rows - 100, "cpu")) != augmented
    trained(tmp_path / "other", Mixup(4, p=1.0))


def test_a_generator_that_learned_the_test_images_is_refused(tmp_path):
    run, cache = make_run(tmp_path), tmp_path / "cache"
    data = read_manifest(tmp_path / "data")
    write_trained_on(run, content_digests(data.split("train").image_paths, cache))
    encode_split(run, cache=cache)
    assert mixer_rows(DisMix.load(run), data, cache) is not None
    table = data.table.copy()
    table["split"] = table["split"].replace({"train": "test", "test": "train", "val": "train"})
    write_manifest(data.with_table(table), tmp_path / "data" / "anew.csv")
    store = encode_split(run, tmp_path / "data" / "anew.csv", cache=cache)
    swapped = read_manifest(tmp_path / "data" / "anew.csv")
    with pytest.raises(DisMixError, match=r"test images are among those that the generator was"):
        mixer_rows(DisMix.load(run, store=store.folder), swapped, cache)


def test_stored_images_are_found_by_content_and_label(toy_run, tmp_path):
    cache = toy_run.parent / "cache"
    mix = DisMix.load(toy_run)
    data = read_manifest(toy_run.parent / "data")
    assert mixer_rows(mix, data, cache).tolist() == [*range(30)]
    assert mixer_rows(Mixup(5), data, cache) is None
    assert mixer_rows(None, data, cache) is None
    # Another order, fewer images, another label: every row is still the image's own.
    train = data.table[data.table["split"] == "train"]
    kept = train.iloc[[7, 3, 20]].copy()
    kept["image"] = [str(data.image_paths[i]) for i in kept.index]
    votes = [c for c in kept if c.startswith("annotator")]
    kept.loc[kept.index[1], [*votes, "grade"]] = (int(kept["grade"].iloc[1]) + 2) % 5
    held = data.table[data.table["split"] == "val"].copy()
    held["image"] = [str(data.image_paths[i]) for i in held.index]
    write_manifest(data.with_table(pd.concat([kept, held])), tmp_path / "few.csv")
    few = read_manifest(tmp_path / "few.csv")
    assert mixer_rows(mix, few, cache).tolist() == [7, -1, 20]
    assert LatentStore(mix.engine.store.folder).rows_of([]).shape == (0,)


@pytest.mark.parametrize(("split", "word"), [("val", "validation"), ("test", "test")])
def test_held_out_images_in_the_store_are_refused(toy_run, tmp_path, split, word):
    data = read_manifest(toy_run.parent / "data")
    table = data.table.copy()
    table["image"] = [str(path) for path in data.image_paths]
    table.loc[table["split"] == "train", "split"] = [split] * 4 + ["train"] * 26
    write_manifest(data.with_table(table), tmp_path / "swapped.csv")
    with pytest.raises(DisMixError, match=rf"swapped.csv: 4 {word} images are among"):
        mixer_rows(
            DisMix.load(toy_run), read_manifest(tmp_path / "swapped.csv"), toy_run.parent / "cache"
        )


def test_test_images_need_not_be_there(toy_run, tmp_path):
    data = read_manifest(toy_run.parent / "data")
    table = data.table.copy()
    table["image"] = [
        str(tmp_path / "gone.png" / path.name) if split == "test" else str(path)
        for path, split in zip(data.image_paths, table["split"], strict=True)
    ]
    found = mixer_rows(DisMix.load(toy_run), data.with_table(table), toy_run.parent / "cache")
    assert found.tolist() == [*range(30)]


def test_turning_follows_the_caller(toy_run):
    data = read_manifest(toy_run.parent / "data")
    split = load_split(
        data, "train", 32, device=torch.device("cpu"), cache=toy_run.parent / "cache"
    )
    rows = torch.arange(8)
    images, target = split.images(rows, "cpu"), split.target[rows]
    for options in ({}, {"pool": 8}):
        with DisMix.load(toy_run, p=1.0, seed=1, **options) as mix:
            plain = mix(images, target, rows=rows, augmented=False)[0]
            state = mix.state_dict()["_extra_state"]
        with DisMix.load(toy_run, p=1.0, seed=1, turn=False, **options) as still:
            assert torch.equal(still(images, target, rows=rows)[0], plain) == bool(options)
        with DisMix.load(toy_run, p=1.0, seed=1, **options) as again:
            turned = again(images, target, rows=rows.tolist())[0]
            assert not torch.equal(turned, plain)
            assert torch.equal(again.state_dict()["_extra_state"], state)


@pytest.mark.parametrize("pool", [0, 12])
def test_an_interrupted_training_ends_with_the_same_bits(toy_run, tmp_path, pool):
    cache, cpu = toy_run.parent / "cache", torch.device("cpu")
    data = read_manifest(toy_run.parent / "data")
    train, val = (load_split(data, s, 32, device=cpu, cache=cache) for s in ("train", "val"))
    settings = toy_settings(epochs=3, size=32, batch_size=8)

    def run(folder: str, last: int | None = None, *, resume: bool = False) -> dict[str, Any]:
        def stop(text: str, done: int, total: int) -> None:
            if last is not None and done > last:
                raise KeyboardInterrupt

        grader = create_grader("ce", backbone="tiny", num_ranks=5, seed=0, **settings.hparams)
        with DisMix.load(toy_run, pool=pool, reuse=2) as mixer:
            rows = mixer_rows(mixer, data, cache)
            run_training(
                Training(grader, settings, 0, mixer=mixer, mixer_rows=rows), train, val,
                tmp_path / folder, make_accelerator(cpu=True), resume=resume, progress=stop,
                save_seconds=0.0,
            )  # fmt: skip
            return {**grader.backbone.state_dict(), "mixer": mixer.get_extra_state()}

    whole = run("whole")
    with pytest.raises(KeyboardInterrupt):
        run("broken", 4)
    again = run("broken", resume=True)
    for name, value in whole.items():
        assert torch.equal(again[name], value), name


def test_processes_that_resume_draw_apart():
    training = Training(
        toy_training(toy_settings()).grader, toy_settings(), 3, mixer=Mixup(4, p=1.0)
    )
    states = []
    for numbers in ((0,), (1,), (1, 5), (2, 5)):
        reseed_mixer(training, *numbers)
        states.append(training.mixer.get_extra_state())
    assert len({bytes(state.numpy()) for state in states}) == 4
    training.mixer = Keeper()
    reseed_mixer(training, 1)


@pytest.mark.parametrize("extra", [(), ("--mix-set", "pool=16", "--mix-set", "reuse=2")])
def test_the_command_trains_on_stored_codes(tmp_path, monkeypatch, capsys, extra):
    monkeypatch.setenv("DISMIX_CACHE", str(tmp_path / "cache"))
    run = make_run(tmp_path, train=24)
    encode_split(run)

    def never(*_: object) -> None:
        raise AssertionError("encoded an image that is in the store")

    monkeypatch.setattr(MixEngine, "encode", never)
    command = (
        "dismix", "grader", "train", tmp_path / "data", "-o", tmp_path / "grader", "--mix",
        "dismix", "--generator", run, "--backbone", "tiny", "--size", 32, "--epochs", 2,
        "--batch-size", 8, "--mix-set", "p=0.5", *extra, "--cpu", "-q",
    )  # fmt: skip
    monkeypatch.setattr(sys, "argv", [*map(str, command)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    assert "validation" in capsys.readouterr().out
    assert (tmp_path / "grader" / "model.safetensors").is_file()


def test_the_command_without_a_store_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DISMIX_CACHE", str(tmp_path / "cache"))
    run = make_run(tmp_path, train=10)
    command = (
        "dismix", "grader", "train", tmp_path / "data", "-o", tmp_path / "grader", "--mix",
        "dismix", "--generator", run, "--backbone", "tiny", "--size", 32, "--epochs", 1,
        "--batch-size", 8, "--cpu", "-q",
    )  # fmt: skip
    monkeypatch.setattr(sys, "argv", [*map(str, command)])
    with pytest.raises(SystemExit):
        main()
    error = capsys.readouterr().err
    assert "has no latent store; run `dismix mix encode" in error
    assert error.count("\n") == 1
