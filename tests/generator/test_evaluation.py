"""The evaluation of a run: its numbers against slow ones, its file, its mistakes."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from dismix.data.manifest import read_manifest, write_manifest
from dismix.errors import DisMixError
from dismix.generator.config import GeneratorConfig
from dismix.generator.evaluation import (
    EVALUATION,
    EVALUATION_LAST,
    _training_mixes,
    evaluate_generator,
    read_evaluation,
)
from dismix.generator.evaluation_text import control_rows, probe_rows, summary
from dismix.generator.fidelity import psnr
from dismix.generator.images import SplitImages, load_split
from dismix.generator.judge import Judge
from dismix.generator.measures import along_looks, along_ranks, reconstruction
from dismix.generator.model import Generator
from dismix.generator.probes import encode_split
from dismix.generator.run_log import METRICS
from dismix.labels import OrdinalTarget


@pytest.fixture(scope="module")
def evaluated(small_run, tmp_path_factory: pytest.TempPathFactory):
    judge = tmp_path_factory.mktemp("judge") / "judge.safetensors"
    found = evaluate_generator(small_run.run, judge=judge, judge_epochs=2, device="cpu")
    return found, judge


def test_numbers_equal_slow_ones(small_run, evaluated) -> None:
    found, judge_file = evaluated
    assert found["split"] == "test"
    assert found["images"] == 20
    model, judge = Generator.load(small_run.run), Judge.load(judge_file)
    test = load_split(read_manifest(small_run.data), "test", 32, device=torch.device("cpu"))
    images = test.images(torch.arange(20), "cpu")
    with torch.no_grad():
        codes = [model.encode(image[None]) for image in images]
        made = torch.cat([model.decode(code) for code in codes]).clamp(-1, 1)
    assert found["reconstruction"]["psnr"] == pytest.approx(
        float(psnr(made, images).mean()), abs=1e-3
    )
    chosen = np.concatenate([code.nonordinal_indices.numpy().ravel() for code in codes])
    shares = np.unique(chosen, return_counts=True)[1] / len(chosen)
    book = found["codebooks"]["nonordinal"]
    assert book["perplexity"] == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-3)
    assert book["usage"] == pytest.approx(len(shares) / 32, abs=1e-4)
    truth = test.target.hard.numpy()
    predicted = judge.probabilities(images).argmax(1).numpy()
    assert found["judge"]["accuracy"] == pytest.approx((predicted == truth).mean(), abs=1e-4)
    levels = torch.tensor([[1.0, 1.0, 0.0, 0.0]]).expand(20, -1)
    with torch.no_grad():
        at_two = model.decode(model.encode(images, levels)).clamp(-1, 1)
    read = float(judge.expected_rank(at_two).mean())
    assert found["rank_control"]["at_ranks"][2] == pytest.approx(read, abs=1e-3)


def test_long_parts_are_seen_moving(small_run) -> None:
    model = Generator.load(small_run.run)
    data = read_manifest(small_run.data)
    split = load_split(data, "val", model.image_size, device=torch.device("cpu"))
    told: list[tuple[str, int, int]] = []
    reconstruction(model, split, None, lambda *step: told.append(step))
    encode_split(model, split, batch_size=4, progress=lambda *step: told.append(step))
    assert ("rebuilding images", len(split), len(split)) in told
    assert [done for stage, done, _ in told if stage == "encoding for the probes"][:2] == [4, 8]
    assert told[-1] == ("encoding for the probes", len(split), len(split))


def test_an_image_that_is_rebuilt_exactly_leaves_numbers_that_can_be_written(monkeypatch) -> None:
    config = GeneratorConfig(num_ranks=3, arch="tiny", image_size=32, nonordinal_codes=32)
    model = Generator.seeded(config, 0).eval()
    black = torch.zeros(4, 1, 32, 32, dtype=torch.uint8)
    split = SplitImages(black, OrdinalTarget.from_labels([0, 1, 2, 0], 3), False)
    monkeypatch.setattr(model, "decode", lambda codes: torch.full((len(codes), 1, 32, 32), -1.5))
    found = reconstruction(model, split, None)["reconstruction"]
    assert found["psnr"] == found["psnr_worst_tenth"] == 100
    json.dumps(found, allow_nan=False)


def test_what_is_written(small_run, evaluated) -> None:
    found, _ = evaluated
    written = json.loads((small_run.run / EVALUATION).read_text())
    assert written == json.loads(json.dumps(found))
    assert (small_run.run / "evaluation.jpg").stat().st_size > 0
    assert {"commit", "hardware"} <= written["provenance"].keys()
    wanted = {f"{b}_{k}" for b in ("ordinal", "nonordinal") for k in ("linear", "conv")}
    assert written["probes"].keys() == wanted
    assert {"accuracy", "balanced", "mae"} == written["probes"]["ordinal_conv"].keys()
    assert {"train", "val", "judged", "chance"} <= written["mixing_accuracy"].keys()
    assert len(written["severity"]["rank_control"]["at_ranks"]) == 5
    text = summary(found)
    assert "rank in z_n" in text
    assert len(probe_rows(found)) == 6
    assert len(control_rows(found)) == 3


def test_the_same_judge_and_weights_give_the_same_numbers(
    small_run, evaluated, tmp_path: Path
) -> None:
    found, judge = evaluated
    chosen = (small_run.run / EVALUATION).read_text()
    torch.rand(7)
    again = evaluate_generator(
        small_run.run, tmp_path / "other.json", judge=judge, device="cpu", checkpoint="last"
    )
    changing = ("seconds", "provenance", "checkpoint")
    assert {k: v for k, v in again.items() if k not in changing} == {
        k: v for k, v in found.items() if k not in changing
    }
    assert (tmp_path / "other.jpg").is_file()
    # What was not chosen stands apart.
    assert (small_run.run / EVALUATION).read_text() == chosen
    assert json.loads((small_run.run / EVALUATION_LAST).read_text())["checkpoint"] == "last"


def test_other_data_and_splits_leave_the_runs_own_evaluation(
    small_run, evaluated, tmp_path: Path
) -> None:
    _, judge = evaluated
    run, chosen = small_run.run, (small_run.run / EVALUATION).read_text()
    options = {"judge": judge, "device": "cpu"}
    evaluate_generator(run, tmp_path / "val.json", split="val", **options)
    assert (run / EVALUATION).read_text() == chosen
    assert not (run / "evaluation_val.json").exists()
    evaluate_generator(run, split="val", **options)
    assert json.loads((run / "evaluation_val.json").read_text())["split"] == "val"
    data = read_manifest(json.loads((run / "run.json").read_text())["manifest_at"])
    fewer = data.path.parent / "fewer.csv"
    write_manifest(data.rows(np.arange(len(data)) > 0), fewer)
    with pytest.warns(UserWarning, match="trained on other images"):
        evaluate_generator(run, manifest=fewer, **options)
    assert (run / "evaluation_fewer.json").is_file()
    assert (run / EVALUATION).read_text() == chosen
    # The same training images, as probes need them, beside test images from elsewhere.
    beside = data.path.parent / "beside.csv"
    kept = (data.table["split"] != "test").to_numpy(copy=True)
    kept[np.flatnonzero(~kept)[:7]] = True
    write_manifest(data.rows(kept), beside)
    assert evaluate_generator(run, manifest=beside, **options)["images"] == 7
    assert (run / "evaluation_beside.json").is_file()
    assert (run / EVALUATION).read_text() == chosen
    # Named or not, the run's own are its own.
    evaluate_generator(run, manifest=data.path, **options)
    assert not (run / "evaluation_data.json").exists()


def test_an_evaluation_of_other_weights_is_not_shown(small_run, evaluated, tmp_path: Path) -> None:
    for name in ("generator.json", "generator.safetensors"):
        (tmp_path / name).write_bytes((small_run.run / name).read_bytes())
    assert read_evaluation(tmp_path) is None
    (tmp_path / EVALUATION).write_text(json.dumps({"weights": "other"}))
    assert read_evaluation(tmp_path) is None
    known = json.loads((small_run.run / EVALUATION).read_text())
    for checkpoint in ("best", "last"):
        (tmp_path / EVALUATION).write_text(json.dumps(known | {"checkpoint": checkpoint}))
        assert (read_evaluation(tmp_path) is None) == (checkpoint == "last")


def test_damaged_weights_have_no_evaluation(tmp_path: Path) -> None:
    (tmp_path / EVALUATION).write_text(json.dumps({"weights": "any"}))
    (tmp_path / "generator.safetensors").write_bytes(b"cut short")
    assert read_evaluation(tmp_path) is None


def test_the_checkpoint_is_none_of_the_epochs_that_only_rebuild(tmp_path: Path) -> None:
    scores = {5: 0.9, 10: 0.8, 15: 0.3, 20: 0.4}
    lines = [{"epoch": epoch, "loss": 1.0} for epoch in range(1, 21)]
    for line in lines:
        if line["epoch"] in scores:
            score = scores[line["epoch"]]
            line |= {"score": score, "mixing_accuracy_val": score, "mixing_accuracy_train": 0.5}
    (tmp_path / METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    half = {"recipe": {"epochs": 20, "plain": 0.5}}
    assert _training_mixes(tmp_path, half, "best") == {"epoch": 20, "train": 0.5, "val": 0.4}
    # Runs from before there were such epochs.
    before = {"recipe": {"epochs": 20}}
    assert _training_mixes(tmp_path, before, "best")["epoch"] == 5
    assert _training_mixes(tmp_path, before, "last")["epoch"] == 20
    assert _training_mixes(tmp_path / "elsewhere", {}, "best") == {}


def test_mistakes(small_run, tmp_path: Path) -> None:
    with pytest.raises(DisMixError, match="holds no unseen images"):
        evaluate_generator(small_run.run, split="train", judge_epochs=0, device="cpu")
    with pytest.raises(DisMixError, match="trained generator"):
        evaluate_generator(tmp_path, device="cpu")
    with pytest.raises(DisMixError, match="the judge reads 3 ranks"):
        evaluate_generator(small_run.run, judge=Judge(3, "conv").eval(), device="cpu")


def test_readings_along_traverses_against_loops() -> None:
    readings = np.random.default_rng(0).normal(size=(5, 7)).cumsum(0)
    found = along_ranks(readings)
    ups = [readings[r + 1, i] > readings[r, i] for r in range(4) for i in range(7)]
    assert found["steps_up"] == pytest.approx(np.mean(ups))
    whole = [all(np.diff(readings[:, i]) > 0) for i in range(7)]
    assert found["images_monotone"] == pytest.approx(np.mean(whole))
    x = np.arange(5) - 2.0
    assert found["slope"] == pytest.approx((x * readings.mean(1)).sum() / (x**2).sum())
    looks = along_looks(readings)
    moved = [abs(readings[3, i] - readings[0, i]) for i in range(7)]
    assert looks["mean_absolute_change"][3] == pytest.approx(np.mean(moved))


def test_images_that_were_learned_are_told(small_run, tmp_path) -> None:
    data = read_manifest(small_run.data)
    table = data.table.copy()
    learned = table.index[table["split"] == "train"][:3]
    # Of people of their own, or the manifest would be refused.
    table.loc[learned, ["split", "group"]] = [["test", f"moved {n}"] for n in range(3)]
    write_manifest(data.with_table(table), small_run.data / "leaked.csv")
    with pytest.warns(UserWarning, match="trained on 3 of the 23 images"):
        evaluate_generator(
            small_run.run, tmp_path / "e.json", manifest=small_run.data / "leaked.csv",
            judge_epochs=0, device="cpu",
        )  # fmt: skip


def test_without_the_weights_of_vgg16_it_goes_on_and_says_so(
    small_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DISMIX_WEIGHTS", str(tmp_path))
    run = Path(shutil.copytree(small_run.run, tmp_path / "run"))
    # As for larger pictures, whose judge is VGG16.
    monkeypatch.setattr("dismix.generator.evaluation.SMALL", 8)
    with pytest.warns(UserWarning, match=r"no judge reads.* not found; put .*DISMIX_WEIGHTS"):
        found = evaluate_generator(run, device="cpu")
    assert "judge" not in found
    # As ablations ask for the one that all of them are read by.
    kept = tmp_path / "judge.safetensors"
    with pytest.warns(UserWarning, match="no judge reads"):
        assert "judge" not in evaluate_generator(run, judge=kept, device="cpu")
    assert not kept.exists()
    assert "lpips" not in found["reconstruction"]
    assert "LPIPS - (`dismix doctor`)" in summary(found)
