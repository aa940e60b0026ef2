"""Which images a run has learned from: also those that were replaced on the way."""

import shutil
from pathlib import Path

from PIL import Image, ImageOps

from dismix.data.manifest import read_manifest
from dismix.generator.start_run import train_generator
from dismix.generator.trained_on import FILE, read_trained_on, write_trained_on


def test_a_run_that_goes_on_remembers_what_it_saw_before(small_run, tmp_path: Path) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    shutil.copytree(small_run.data, data)
    shutil.copytree(small_run.run, run)
    before = read_trained_on(run)
    assert len(before) == 40
    first = read_manifest(data).split("train").image_paths[0]
    ImageOps.invert(Image.open(first).convert("L")).save(first)
    options = {"arch": "tiny", "settings": small_run.settings, "size": 32, "cpu": True}
    train_generator(data, run, **options, resume=True)
    assert len(read_trained_on(run)) == 41
    assert read_trained_on(run) > before


def test_what_a_killed_run_left_is_not_taken_over(small_run, tmp_path: Path) -> None:
    write_trained_on(tmp_path, ["of other images"])
    options = {"arch": "tiny", "settings": small_run.settings, "size": 32, "cpu": True}
    train_generator(small_run.data, tmp_path, **options)
    assert "of other images" not in (tmp_path / FILE).read_text().splitlines()
