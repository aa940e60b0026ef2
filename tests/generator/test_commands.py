"""`dismix generator` as a user types it."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.torch import save_file

from dismix.cli import main
from dismix.data.manifest import read_manifest, write_manifest
from dismix.errors import DisMixError
from dismix.locks import in_use
from dismix.mixing.encoding import run_manifest


@pytest.fixture
def dismix(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dismix", "generator", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_evaluate_prints_and_writes(dismix, small_run, tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    judge = tmp_path / "judge.safetensors"
    code, printed, _ = dismix(
        "evaluate", small_run.run, "-o", out, "--split", "val", "--judge", judge,
        "--judge-epochs", 1, "--cpu", "-q",
    )  # fmt: skip
    assert code == 0
    assert "12 val images, encoded without labels" in printed
    assert json.loads(out.read_text())["split"] == "val"
    assert judge.is_file()
    assert out.with_suffix(".jpg").is_file()


def test_a_run_folder_in_use_is_refused(dismix, small_run, tmp_path: Path) -> None:
    with in_use(tmp_path / "run"):
        code, _, errors = dismix(
            "train", small_run.data, "-o", tmp_path / "run", "--arch", "tiny", "--size", 32,
            "--cpu", "-q",
        )  # fmt: skip
    assert code == 2
    assert f"run: is in use by process {os.getpid()}; wait for it or end it" in errors


def test_grades_without_images_or_with_one_are_told_before_training(
    dismix, small_run, tmp_path: Path, monkeypatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise DisMixError("stopped by a test")

    monkeypatch.setattr("dismix.generator.images.load_split", stop)
    data = read_manifest(small_run.data)
    data = replace(data, table=data.table[["image", "split", "grade"]])
    options = ("--arch", "tiny", "--size", 32, "--cpu", "-q")
    _, _, errors = dismix("train", small_run.data, "-o", tmp_path / "a", *options)
    assert "warning" not in errors
    train, grades = (data.table["split"] == "train").to_numpy(), data.grades
    worst = np.flatnonzero(train & (grades == 4))
    few = ~train | (grades < 3)
    few[worst[0]] = True
    write_manifest(data.rows(few), tmp_path / "few.csv")
    _, _, errors = dismix("train", tmp_path / "few.csv", "-o", tmp_path / "b", *options)
    assert (
        "no training image has grade 3 ('moderate'), so the generator never learns what it looks"
        " like"
    ) in errors
    assert "very few training images of grade 4 ('severe'): 1\n" in errors
    assert errors.endswith("error: stopped by a test\n")


@pytest.mark.parametrize("name", ["guide", "generator", "last"])
def test_a_full_disk_is_one_line(dismix, small_run, tmp_path: Path, monkeypatch, name: str) -> None:
    def full(tensors: object, path: Path, metadata: object) -> None:
        if name in Path(path).name:
            raise SafetensorError("I/O error: No space left on device (os error 28)")
        save_file(tensors, path, metadata)

    for module in ("saving", "checkpoint"):
        monkeypatch.setattr(f"dismix.generator.{module}.save_file", full)
    settings = [f"--set={key}={value}" for key, value in small_run.settings.items()]
    code, _, errors = dismix(
        "train", small_run.data, "-o", tmp_path / "run", "--arch", "tiny", "--size", 32, "--cpu",
        "-q", *settings,
    )  # fmt: skip
    assert code == 2
    assert f"{name}.safetensors: cannot write here (No space left on device); free" in errors


def test_ablate_prints_the_paper_beside_ours(dismix, small_run, tmp_path: Path) -> None:
    settings = [f"--set={name}={value}" for name, value in small_run.settings.items()]
    code, printed, errors = dismix(
        "ablate", small_run.data, "-o", tmp_path, "--arch", "tiny", "--size", 32, "--cpu", "-q",
        "--only", "no_reversal", "--judge-epochs", 0, *settings,
    )  # fmt: skip
    assert code == 0, errors
    assert "| no_reversal |" in printed
    assert "62.13 / 22.95" in printed
    code, _, errors = dismix("ablate", small_run.data, "-o", tmp_path, "--only", "nothing")
    assert code == 2
    assert errors.startswith("error: unknown ablation 'nothing'")


def test_a_run_finds_its_data_from_another_folder(
    dismix, small_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small_run.data.parent)
    run = tmp_path / "run"
    settings = [f"--set={name}={value}" for name, value in small_run.settings.items()]
    code, _, errors = dismix(
        "train", small_run.data.name, "-o", run, "--arch", "tiny", "--size", 32, "--cpu", "-q",
        *settings,
    )  # fmt: skip
    assert code == 0, errors
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    code, _, errors = dismix("evaluate", run, "--split", "val", "--judge-epochs", 0, "--cpu", "-q")
    assert code == 0, errors
    assert run_manifest(run) == small_run.data.resolve()


def test_tensorboard_is_asked_for_before_anything_is_done(
    dismix, small_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    code, _, errors = dismix("train", small_run.data, "-o", tmp_path / "run", "--tensorboard")
    assert code == 2
    assert "pip install 'dismix[tensorboard]'" in errors
    assert not (tmp_path / "run").exists()


def test_a_usual_length_that_is_too_short_is_said_first(
    dismix, small_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise DisMixError("stopped by the test")

    monkeypatch.setattr("dismix.generator.start_run.ready_graders", stop)
    short = (
        "warning: 20 epochs of 40 images are 100 steps, and it takes about 2500; add --epochs 500"
    )
    options = ("--arch", "tiny", "--size", 32, "--cpu", "-q")
    _, _, errors = dismix("train", small_run.data, "-o", tmp_path / "a", *options)
    assert errors.splitlines() == [short, "error: stopped by the test"]
    _, _, errors = dismix("train", small_run.data, "-o", tmp_path / "b", *options, "--epochs", 20)
    assert errors.splitlines() == ["error: stopped by the test"]


def test_mistakes_are_named_before_anything_is_done(dismix, small_run, tmp_path: Path) -> None:
    run = tmp_path / "run"
    code, _, errors = dismix("train", small_run.data, "-o", run, "--set", "epochs=0")
    assert (code, run.exists()) == (2, False)
    assert errors.strip() == "error: setting 'epochs': is 0; give a number above 0"
    layers = ("--size", 32, "--set", "discriminator_layers=4")
    _, _, errors = dismix("train", small_run.data, "-o", run, "--arch", "tiny", *layers)
    assert "'discriminator_layers': 4 layers leave nothing of 32 pixels; give fewer" in errors
    grid = ("--size", 32, "--set", "rank_only=false", "--set", "ordinal_grid=16")
    _, _, errors = dismix("train", small_run.data, "-o", run, "--arch", "tiny", *grid)
    assert "'ordinal_grid': the decoder reads 4 x 4 cells" in errors
    assert not run.exists()
    uneven = ("ablate", small_run.data, "-o", run, "--arch", "tiny", "--size", 36, "-q")
    _, _, errors = dismix(*uneven, "--only", "full", "--judge-epochs", 0)
    assert "tiny: image size 36 is not a multiple of 8; use 32" in errors
    assert not (run / "full").exists()
    code, _, errors = dismix("evaluate", tmp_path / "nothing", "-q")
    assert code == 2
    assert "run.json: no such file; give the folder of a trained generator" in errors
    table = (small_run.data / "manifest.csv").read_text().splitlines()
    names = table[0].split(",")
    graded = [i for i, name in enumerate(names) if name == "grade" or name.startswith("annotator_")]
    rows = [line.split(",") for line in table[1:]]
    for row in rows:
        row[names.index("image")] = str(small_run.data / row[names.index("image")])
        for place in graded:
            row[place] = "1" if row[place] else ""
    one, new = tmp_path / "one", tmp_path / "new"
    one.mkdir()
    (one / "manifest.csv").write_text("\n".join([table[0], *map(",".join, rows)]) + "\n")
    meta = (small_run.data / "manifest.meta.json").read_text()
    (one / "manifest.meta.json").write_text(meta)
    code, _, errors = dismix("train", one, "-o", new, "--arch", "tiny")
    assert (code, new.exists()) == (2, False)
    assert "all training images have grade 1: there is no order to learn" in errors
    learned = [line for line in table if line.split(",")[names.index("split")] != "val"]
    (one / "manifest.csv").write_text("\n".join(learned) + "\n")
    code, _, errors = dismix("train", one, "-o", new, "--arch", "tiny")
    assert (code, new.exists()) == (2, False)
    assert "has no images in split 'val'; `dismix data split MANIFEST --val" in errors
