"""Metrics and TensorBoard."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest
from tests.generator.toy import toy_recipe, toy_split, toy_training

from dismix.accelerators import make_accelerator
from dismix.errors import DisMixError
from dismix.generator.run_log import RunLog, read_metrics
from dismix.generator.training import run_training


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    log = RunLog(tmp_path, 0)
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(DisMixError, match=r"metrics\.jsonl: cannot write here \(No space left"):
        log.write({"epoch": 1})


class Board:
    """Stands in for torch's writer and remembers what it was given."""

    made: "list[Board]" = []  # noqa: RUF012

    def __init__(self, folder: str, purge_step: int) -> None:
        self.folder, self.purge_step, self.closed = folder, purge_step, False
        self.scalars: list[tuple[str, float, int]] = []
        self.images: list[tuple[str, tuple[int, ...], int]] = []
        Board.made.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.append((name, value, step))

    def add_image(self, name: str, pixels: Any, step: int, dataformats: str) -> None:
        assert dataformats == "HWC"
        self.images.append((name, pixels.shape, step))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def test_lines_of_a_killed_run_are_dropped(tmp_path: Path) -> None:
    log = RunLog(tmp_path, 0)
    for epoch in (1, 2, 3):
        log.write({"epoch": epoch, "loss": 0.5})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 4, "lo')
    assert [line["epoch"] for line in read_metrics(tmp_path)] == [1, 2, 3]
    RunLog(tmp_path, 2)
    assert [line["epoch"] for line in read_metrics(tmp_path)] == [1, 2]
    RunLog(tmp_path / "other", 0, active=False).write({"epoch": 1})
    assert not (tmp_path / "other").exists()


def test_tensorboard_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(DisMixError, match="not installed") as caught:
        RunLog(tmp_path, 0, tensorboard=True)
    assert "dismix[tensorboard]" in str(caught.value)


def test_tensorboard_gets_curves_and_strips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Board  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    recipe = toy_recipe(epochs=1, strip_every=1, evaluate_every=1)
    run_training(
        toy_training(recipe), toy_split(), toy_split(9), tmp_path, make_accelerator(cpu=True),
        tensorboard=True,
    )  # fmt: skip
    board = Board.made[-1]
    assert board.purge_step == 1
    assert board.closed
    names = {name for name, _, step in board.scalars if step == 1}
    assert {"training/loss", "weights/reconstruct", "validation/psnr_val"} <= names
    assert board.images[0][0] == "strip"
    assert board.images[0][1][2] == 3
