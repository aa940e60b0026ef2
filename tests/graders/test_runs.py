"""From a manifest to a trained grader and back: files, messages, resuming, seeds, commands."""

import copy
import io
import json
import re
import shutil
import subprocess
import sys
import time
import warnings
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import save_file

from dismix.cli import main
from dismix.data.manifest import ManifestMeta, make_manifest, read_manifest, write_manifest
from dismix.errors import DisMixError
from dismix.generator.trained_on import read_trained_on
from dismix.graders.base import Grader
from dismix.graders.checks import check_training
from dismix.graders.export import export_grader
from dismix.graders.predict import predict_files, predict_manifest
from dismix.graders.registry import create_grader
from dismix.graders.report import evaluate_run, metrics_text
from dismix.graders.seeds import summarise, train_seeds
from dismix.graders.settings import TrainSettings, choose_settings, usual_batch
from dismix.graders.start_run import train_grader
from dismix.labels import OrdinalTarget
from dismix.locks import in_use

RANKS = ("none", "mild", "severe")
QUICK = {"backbone": "tiny", "epochs": 2, "batch_size": 8, "size": 16, "validate_every": 1}


@pytest.fixture
def manifest(tmp_path, monkeypatch):
    """30 pictures whose brightness is the grade, three annotators who disagree at times."""
    monkeypatch.setenv("DISMIX_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    rows = []
    for i in range(30):
        pixels = (90 * (i % 3) + rng.integers(0, 30, (20, 20, 3))).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i:02d}.png")
        split = "test" if i >= 24 else "val" if i >= 18 else "train"
        votes = {f"annotator_{k}": (i + (k == 2 and i % 4 == 0)) % 3 for k in range(3)}
        rows.append({"image": f"{i:02d}.png", "split": split, "grade": i % 3, "weight": 1, **votes})
    meta = ManifestMeta(ranks=RANKS, source="drawn by a test")
    path = tmp_path / "manifest.csv"
    write_manifest(make_manifest(pd.DataFrame(rows), meta, tmp_path), path)
    return path


def quick(method="ce", **changes):
    return choose_settings(method, changes={**QUICK, **changes})


@pytest.fixture
def run(manifest, tmp_path):
    train_grader(manifest, tmp_path / "run", quick(select="last,accuracy"), cpu=True)
    return tmp_path / "run"


def test_a_run_leaves_model_metrics_result_and_card(manifest, run):
    result = json.loads((run / "result.json").read_text())
    assert result["select"] == "last"
    assert result["validation"]["count"] == 6
    assert set(result["rules"]) == {"last", "accuracy"}
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2]
    assert {"loss", "val_accuracy", "val_averaged_accuracy", "images_per_second"} <= set(rows[0])
    card = (run / "card.md").read_text()
    for words in ("drawn by a test", "Annotators: 3, votes: 90", "| severe | 2 |", "## Limits",
                  "epoch 2, the last", "Grades in training: as they occur"):  # fmt: skip
        assert words in card
    grader = Grader.load(run)
    assert grader.about["ranks"] == [*RANKS]
    assert grader.predict(torch.zeros(2, 3, 16, 16)).label.shape == (2,)


def test_runs_are_not_overwritten_and_resume_only_as_they_began(manifest, run):
    with pytest.raises(DisMixError, match="holds a run already; add --resume"):
        train_grader(manifest, run, quick(select="last,accuracy"), cpu=True)
    with pytest.raises(DisMixError, match="was started with other settings"):
        train_grader(manifest, run, quick(lr=0.5), cpu=True, resume=True)
    again = train_grader(manifest, run, quick(select="last,accuracy"), cpu=True, resume=True)
    assert again == json.loads((run / "result.json").read_text())


def test_resuming_asks_for_the_same_data_wherever_they_lie(manifest, run, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(manifest.parent, moved, ignore=shutil.ignore_patterns("run", "moved", "cache"))
    settings = quick(select="last,accuracy")
    again = train_grader(moved / manifest.name, run, settings, cpu=True, resume=True)
    assert again == json.loads((run / "result.json").read_text())
    data = read_manifest(manifest)
    table = data.table.copy()
    first = int((table["split"] == "val").to_numpy().argmax())
    table.loc[first, "annotator_0"] = (int(table.loc[first, "annotator_0"]) + 1) % 3
    write_manifest(data.with_table(table), manifest)
    with pytest.raises(DisMixError, match="was started with other images or labels"):
        train_grader(manifest, run, settings, cpu=True, resume=True)
    # Test rows have no part in a training; runs of earlier versions did not note their data.
    table = data.table.copy()
    table.loc[table["split"] == "test", "grade"] = 0
    write_manifest(data.with_table(table), manifest)
    assert train_grader(manifest, run, settings, cpu=True, resume=True) == again
    write_manifest(data, manifest)
    described = json.loads((run / "run.json").read_text())
    del described["data"]
    (run / "run.json").write_text(json.dumps(described))
    assert train_grader(manifest, run, settings, cpu=True, resume=True) == again


def test_a_run_killed_before_its_first_checkpoint_is_not_begun_anew_silently(
    manifest, run, tmp_path, capsys
):
    for name in ("last.safetensors", "model.safetensors", "model-accuracy.safetensors",
                 "result.json", "card.md"):  # fmt: skip
        (run / name).unlink()
    words = ("train", manifest, "-o", run, "--select", "last,accuracy", "--cpu", "-q",
             *(w for k, v in QUICK.items() for w in ("--set", f"{k}={v}")))  # fmt: skip
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    code, _, err = command(capsys, *words)
    assert code == 2
    assert err.endswith(
        "holds a run already (2 epochs, no checkpoint yet); add --resume, which begins it anew, "
        "or choose another folder\n"
    )
    assert before == {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    with pytest.raises(DisMixError, match="2 epochs, no checkpoint yet"):
        train_grader(manifest, run, quick(select=("last", "accuracy")), cpu=True)
    code, out, _ = command(capsys, *words, "--resume")
    assert (code, out[:6]) == (0, "epoch ")
    logged = (run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in logged] == [1, 2]
    (tmp_path / "seeds").mkdir()
    shutil.copytree(run, tmp_path / "seeds" / "seed_1")
    for name in ("last.safetensors", "model.safetensors"):
        (tmp_path / "seeds" / "seed_1" / name).unlink()
    with pytest.raises(DisMixError, match=r"seed_1: holds a run already \(2 epochs, no"):
        train_seeds(manifest, tmp_path / "seeds", quick(), [0, 1], cpu=True)
    assert not (tmp_path / "seeds" / "seed_0").exists()


def test_a_finished_run_survives_the_deletion_of_its_checkpoint(manifest, run):
    (run / "last.safetensors").unlink()
    before = (run / "model.safetensors").read_bytes()
    with pytest.raises(DisMixError, match="holds a run already"):
        train_grader(manifest, run, quick(select="last,accuracy"), cpu=True)
    again = train_grader(manifest, run, quick(select="last,accuracy"), cpu=True, resume=True)
    assert again == json.loads((run / "result.json").read_text())
    assert (run / "model.safetensors").read_bytes() == before
    assert not (run / "last.safetensors").exists()


@pytest.mark.parametrize("content", ['{"select": "la', "{}", "[1]"])
@pytest.mark.parametrize("name", ["result.json", "run.json", "data.json"])
def test_a_damaged_file_of_a_run_is_one_line(manifest, run, name, content):
    settings = quick(select="last,accuracy")
    whole = (run / name).read_text()
    (run / name).write_text(content)
    with pytest.raises(DisMixError, match=rf"{name}: .*; restore it"):
        evaluate_run(run, manifest, cpu=True)
    assert not (run / "evaluation-test.json").exists()
    if name == "run.json":
        with pytest.raises(DisMixError, match=r"run\.json: "):
            train_grader(manifest, run, settings, cpu=True, resume=True)
    else:
        train_grader(manifest, run, settings, cpu=True, resume=True)
        assert (run / name).read_text() == whole
        evaluate_run(run, manifest, cpu=True)
        (run / "evaluation-val.json").write_text(content)
        with pytest.raises(DisMixError, match=r"evaluation-val\.json: .*; delete it, and evaluate"):
            evaluate_run(run, manifest, cpu=True)


def test_evaluation_finds_the_data_from_another_folder(manifest, tmp_path, monkeypatch):
    monkeypatch.chdir(manifest.parent)
    train_grader("manifest.csv", "near", quick("gol", epochs=1), cpu=True)
    assert "holds features and votes of all training images" in Path("near/card.md").read_text()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert evaluate_run("../near", cpu=True)["metrics"]["count"] == 6
    # Another project's data of the same name are not those of the training.
    data = read_manifest(manifest)
    mine = data.rows((data.table["image"] != "29.png").to_numpy())
    write_manifest(mine, tmp_path / "elsewhere" / "manifest.csv")
    assert evaluate_run("../near", cpu=True)["metrics"]["count"] == 6


def test_evaluations_on_other_data_stand_beside_the_own_one(manifest, run):
    evaluate_run(run, cpu=True)
    data = read_manifest(manifest)
    other = manifest.parent / "their images.csv"
    write_manifest(data.rows((data.table["image"] != "29.png").to_numpy()), other)
    evaluate_run(run, other, cpu=True)
    assert len([*run.glob("evaluation-test*.json")]) == 2
    assert len([*run.glob("evaluation-test-their_images-*.json")]) == 1
    card = (run / "card.md").read_text()
    assert "## Evaluation: test split of manifest.csv" in card
    assert "## Evaluation: test split of their images.csv" in card


def test_data_that_were_split_anew_are_told(manifest, run):
    data = read_manifest(manifest)
    table = data.table.copy()
    table["split"] = table["split"].replace({"train": "test", "test": "train"})
    write_manifest(data.with_table(table), manifest)
    with pytest.warns(UserWarning, match="the grader was trained on 18 of the 18 images that it"):
        evaluate_run(run, cpu=True)
    # Runs of earlier versions do not know what they saw.
    (run / "trained_on.txt").unlink()
    with pytest.warns(UserWarning, match="no longer those that this grader was trained on"):
        evaluate_run(run, cpu=True)


def test_learned_test_images_are_told(manifest, run, tmp_path, capsys):
    def warned(*words):
        code, _, err = command(capsys, "evaluate", run, *words, "--cpu", "-q")
        assert code == 0
        return err

    data = read_manifest(manifest)
    assert warned() == warned(manifest, "--split", "val") == warned("--split", "train") == ""
    # Known by content, whatever they are called.
    shutil.copy(tmp_path / "00.png", tmp_path / "new.png")
    table = data.table.copy()
    table.loc[29, "image"] = "new.png"
    other = tmp_path / "other.csv"
    write_manifest(data.with_table(table), other)
    assert warned(other) == (
        f"warning: {other}: the grader was trained on 1 of the 6 images that it is judged on here; "
        "give data split as those it was trained on\n"
    )
    with pytest.warns(UserWarning, match="trained on 1 of the 6 images"):
        evaluate_run(run / "model.safetensors", other, cpu=True)


@pytest.mark.parametrize("mix", [None, "mixup"])
def test_files_in_training_and_in_a_held_out_split_are_told(manifest, tmp_path, mix):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*same bytes")
        train_grader(manifest, tmp_path / "apart", quick(epochs=1), mix=mix, cpu=True)
    for held_out, learned in (("27.png", "03.png"), ("20.png", "02.png"), ("28.png", "02.png")):
        shutil.copy(tmp_path / learned, tmp_path / held_out)
    # Test images need not be there yet.
    (tmp_path / "29.png").unlink()
    said = (
        "manifest.csv: the validation image 20.png and the training image 02.png have the same"
        " bytes (and 2 more), so"
    )
    with pytest.warns(UserWarning, match=re.escape(said)) as told:
        train_grader(manifest, tmp_path / "twins", quick(epochs=1), mix=mix, cpu=True)
    assert sum("same bytes" in str(one.message) for one in told) == 1


def test_a_run_that_goes_on_remembers_what_it_saw_before(manifest, run, tmp_path):
    settings, before = quick(select="last,accuracy"), read_trained_on(run)
    assert len(before) == 18
    Image.new("RGB", (20, 20)).save(tmp_path / "00.png")
    train_grader(manifest, run, settings, cpu=True, resume=True)
    assert len(read_trained_on(run)) == 19
    assert read_trained_on(run) > before


@pytest.mark.parametrize(("cuts", "said"), [("fitted", "half-way"), ("nearest", "half-way")])
def test_the_card_says_where_grades_are_cut(manifest, tmp_path, cuts, said):
    # Six validation images are too few to fit on.
    train_grader(manifest, tmp_path / "cut", quick("rnc", cuts=cuts), cpu=True)
    card = (tmp_path / "cut" / "card.md").read_text()
    where = "'mild' from 0.50, 'severe' from 1.50 on"
    assert f"Decision: by the expected rank, counted from 0: {where} ({said})" in card


def test_settings_made_by_hand_leave_a_card(manifest, tmp_path):
    settings = TrainSettings("rnc", backbone="tiny", size=16, epochs=2, batch_size=8)
    train_grader(manifest, tmp_path / "hand", settings, cpu=True)
    assert "(half-way)" in (tmp_path / "hand" / "card.md").read_text()


def test_the_card_tells_what_counted_more(manifest, tmp_path):
    settings = quick(epochs=1, rank_weights="1,2,3", balanced=True, select="loss")
    train_grader(manifest, tmp_path / "w", settings, weight_column="weight", cpu=True)
    card = (tmp_path / "w" / "card.md").read_text()
    assert (
        "Grades in training: drawn equally often; weighted 1, 2, 3; images weighted by the column "
        "'weight'"
    ) in card
    assert "chosen by 'loss' on validation" in card


def test_evaluation_joins_the_card_and_test_images_have_no_say(manifest, run):
    before = (run / "model.safetensors").read_bytes()
    found = evaluate_run(run, cpu=True)
    assert found["metrics"]["count"] == 6
    assert (run / "model.safetensors").read_bytes() == before
    assert "## Evaluation: test split of manifest.csv" in (run / "card.md").read_text()
    data = read_manifest(manifest)
    table = data.table.copy()
    table.loc[table["split"] == "test", "grade"] = 0
    other = manifest.parent / "other.csv"
    write_manifest(data.with_table(table), other)
    train_grader(other, manifest.parent / "again", quick(select="last,accuracy"), cpu=True)
    first = Grader.load(run).state_dict()
    second = Grader.load(manifest.parent / "again").state_dict()
    assert all(torch.equal(v, second[k]) for k, v in first.items() if torch.is_tensor(v))


def test_evaluating_on_other_ranks_is_refused(run, tmp_path):
    table = pd.DataFrame({"image": ["00.png", "01.png"], "split": "test", "grade": [0, 1]})
    write_manifest(make_manifest(table, None, tmp_path), tmp_path / "two.csv")
    with pytest.raises(DisMixError, match=r"two.csv: has 2 ranks, the grader 3"):
        evaluate_run(run, tmp_path / "two.csv", cpu=True)
    with pytest.raises(DisMixError, match="no trained grader here"):
        evaluate_run(tmp_path / "cache", cpu=True)
    table = pd.DataFrame({"image": ["00.png", "01.png"], "split": "test", "grade": [0, 2]})
    meta = ManifestMeta(ranks=("green", "yellow", "red"))
    write_manifest(make_manifest(table, meta, tmp_path), tmp_path / "colours.csv")
    with pytest.warns(UserWarning, match=r"ranks green, yellow, red.*none, mild, severe; they are"):
        evaluate_run(run, tmp_path / "colours.csv", cpu=True)


def test_ranks_from_the_other_end_are_refused(run, tmp_path):
    table = pd.DataFrame({"image": ["00.png", "01.png"], "split": "test", "grade": [0, 2]})
    turned = tmp_path / "turned.csv"
    write_manifest(make_manifest(table, ManifestMeta(ranks=RANKS[::-1]), tmp_path), turned)
    with pytest.raises(DisMixError, match="give data whose ranks are in the grader's order"):
        evaluate_run(run, turned, cpu=True)
    with pytest.raises(DisMixError, match="give data whose ranks are in the grader's order"):
        predict_manifest(Grader.load(run), read_manifest(turned))


def test_images_are_read_as_in_training_whatever_other_data_say(run, manifest):
    data = read_manifest(manifest)
    meta = replace(data.meta, equalize=not data.meta.equalize, fit="crop")
    other = manifest.parent / "other_meta.csv"
    write_manifest(replace(data, meta=meta), other)
    with pytest.warns(UserWarning, match=r"fit is crop, equalize is .* in these data"):
        found = evaluate_run(run, other, cpu=True)
    assert found["metrics"] == evaluate_run(run, manifest, cpu=True)["metrics"]


def test_images_of_more_bits_than_the_graders_are_told(manifest, tmp_path):
    data = read_manifest(manifest)
    paths = [path.with_suffix(".tif") for path in data.image_paths]
    for path, old in zip(paths, data.image_paths, strict=True):
        Image.fromarray(np.asarray(Image.open(old).convert("L"), np.uint16) * 16).save(path)
    table = data.table.assign(image=[str(path) for path in paths])
    meta = replace(data.meta, grey=True, bits=12)
    write_manifest(replace(data, table=table, meta=meta), manifest)
    train_grader(manifest, tmp_path / "run", quick(epochs=1), cpu=True)
    grader = Grader.load(tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predict_files(grader, paths)
    bright = paths[0].with_name("bright.tif")
    Image.fromarray(np.asarray(Image.open(paths[0])) * 16).save(bright)
    said = (
        "^1 of 1 16-bit images holds values above 4095, which bits=12 cuts off, as the grader's"
        " training images were read"
    )
    with pytest.warns(UserWarning, match=said):
        predict_files(grader, [bright])


@pytest.mark.parametrize("grey", [True, False])
def test_images_of_another_kind_than_the_graders_are_told(manifest, tmp_path, grey):
    """The pictures of the fixture are in colour, and are graded without a word."""
    data = read_manifest(manifest)
    if grey:
        for path in data.image_paths:
            Image.open(path).convert("L").convert("RGB").save(path)
    data = replace(data, meta=replace(data.meta, grey=grey))
    write_manifest(data, manifest)
    train_grader(manifest, tmp_path / "run", quick(), cpu=True)
    grader = Grader.load(tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predict_files(grader, data.image_paths)
        predict_manifest(grader, data)
        evaluate_run(tmp_path / "run", cpu=True)
    # One of the others among them tells nothing; of a colour grader, some in colour would do.
    for number, path in enumerate(data.image_paths):
        image = Image.open(path).convert("L").convert("RGB")
        if grey:
            image.putpixel((4, 4), (200, 0, 0))
        if number != 25 or not grey:
            image.save(path)
    said = (
        r"^(\d+) of (\d+) images looked at are {}, the grader's training images were read as {}: of"
        " pictures of another kind than these its grades mean nothing$"
    ).format(*(("in colour", "grey") if grey else ("grey", "colour")))
    for use in (
        lambda: predict_files(grader, data.image_paths),
        lambda: predict_manifest(grader, data, split="test"),
        lambda: evaluate_run(tmp_path / "run", cpu=True),
    ):
        with pytest.warns(UserWarning, match=said):
            use()


def test_names_that_no_table_can_hold_are_refused_before_grading(run):
    with pytest.raises(DisMixError, match=r"gr\\udcf6sse.png': the name is not UTF-8 text"):
        predict_files(Grader.load(run), ["gr\udcf6sse.png"])


def test_unreadable_images_are_named_and_the_rest_graded(run, tmp_path):
    grader = Grader.load(run)
    (tmp_path / "bad.png").write_text("no picture")
    files = [tmp_path / n for n in ("00.png", "bad.png", "absent.png", "01.png", "02.png")]
    found = predict_files(grader, files, batch_size=2)
    assert [Path(p.image).name for p in found.found] == ["00.png", "01.png", "02.png"]
    assert [Path(path).name for path, _ in found.skipped] == ["bad.png", "absent.png"]
    assert "cannot be read" in found.skipped[0][1] or "not an image" in found.skipped[0][1]
    rows = found.to_csv().splitlines()
    assert rows[0] == "image,grade,name,p_0,p_1,p_2,expected_rank,uncertainty"
    assert len(rows) == 4
    read = json.loads(found.to_json())
    assert read["ranks"] == [*RANKS]
    assert len(read["skipped"]) == 2
    assert sum(read["predictions"][0]["probabilities"]) == pytest.approx(1)
    # The same numbers as from the pixels themselves.
    pixels = np.asarray(Image.open(files[0]).resize((16, 16), Image.Resampling.BILINEAR))
    image = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None]
    assert found.found[0].expected_rank == pytest.approx(float(grader.predict(image).rank), abs=0.1)


def test_predicting_a_folder_and_with_an_untrained_grader(run, tmp_path):
    assert len(predict_files(Grader.load(run), [tmp_path]).found) == 30
    for alone in (tmp_path / "00.png", str(tmp_path / "00.png")):
        assert [p.image for p in predict_files(Grader.load(run), alone).found] == [str(alone)]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DisMixError, match="holds no images"):
        predict_files(Grader.load(run), [tmp_path / "empty"])
    with pytest.raises(DisMixError, match="does not know how its images were read"):
        predict_files(create_grader("ce", num_ranks=3), [tmp_path / "00.png"])


def test_pixels_that_a_grader_cannot_mean_are_refused(run):
    grader, pixels = Grader.load(run), np.full((2, 3, 16, 16), 200, np.uint8)
    with pytest.raises(DisMixError, match=r"of type ndarray; give torch.as_tensor\(images\)"):
        grader.predict(pixels)
    whole = torch.as_tensor(pixels)
    with pytest.raises(DisMixError, match="pixels of 200, and must be uint8 or within"):
        grader.predict(whole.float())
    right, scaled = grader.predict(whole), grader.predict(whole.float() / 127.5 - 1)
    assert torch.allclose(right.probabilities, scaled.probabilities, atol=1e-6)


def test_a_manifest_has_its_known_grades_beside_the_predictions(run, manifest, tmp_path):
    table = pd.read_csv(manifest)
    # The reference grade of a test image and its votes differ: testing goes by the grade.
    table.loc[24, ["grade", "annotator_0", "annotator_1", "annotator_2"]] = [2, 0, 0, 1]
    table.to_csv(manifest, index=False)
    data, grader = read_manifest(manifest), Grader.load(run)
    found = predict_manifest(grader, data, batch_size=7)
    read = pd.read_csv(io.StringIO(found.to_csv()))
    assert [*read.columns[-3:]] == ["split", "known_grade", "known_rank"]
    assert read["image"].tolist() == table["image"].tolist()
    assert read["split"].tolist() == table["split"].tolist()
    votes = table[["annotator_0", "annotator_1", "annotator_2"]]
    voted = (table["split"] != "test").to_numpy()
    assert read["known_grade"][voted].tolist() == votes.mode(axis=1)[0][voted].tolist()
    assert read["known_rank"][voted].to_numpy() == pytest.approx(
        votes.mean(axis=1)[voted], abs=1e-5
    )
    assert read["known_grade"][~voted].tolist() == table["grade"][~voted].tolist()
    plain = predict_files(grader, data.image_paths, batch_size=7)
    assert read["grade"].tolist() == [p.grade for p in plain.found]
    assert "known_grade" not in plain.to_csv() + plain.to_json()


@pytest.mark.parametrize("split", ["val", "test"])
def test_predictions_of_a_split_are_worth_what_evaluation_says(run, manifest, split):
    found = predict_manifest(Grader.load(run), read_manifest(manifest), split=split)
    judged = evaluate_run(run, manifest, split, cpu=True)["metrics"]
    right = sum(p.grade == p.known.known_grade for p in found.found)
    assert right / 6 == pytest.approx(judged["accuracy"])
    assert found.comparison() == (
        f"{right} of 6 as known ({100 * judged['accuracy']:.1f} %), "
        f"mean error {judged['mae']:.3f} grades"
    )
    assert {p.known.split for p in found.found} == {split}


def test_known_grades_stay_with_their_images_when_one_is_skipped(run, manifest, tmp_path):
    (tmp_path / "25.png").write_text("no picture")
    found = predict_manifest(Grader.load(run), read_manifest(manifest), split="test", batch_size=2)
    assert [path for path, _ in found.skipped] == ["25.png"]
    known = {p.image: p.known.known_grade for p in found.found}
    assert known == {f"{i}.png": i % 3 for i in (24, 26, 27, 28, 29)}


def test_a_manifest_with_other_ranks_or_an_empty_split_is_refused(run, manifest, tmp_path):
    table = pd.DataFrame({"image": ["00.png", "01.png"], "split": "train", "grade": [0, 1]})
    two = make_manifest(table, None, tmp_path, path=tmp_path / "two.csv")
    with pytest.raises(DisMixError, match=r"two.csv: has 2 ranks, the grader 3"):
        predict_manifest(Grader.load(run), two)
    with pytest.raises(DisMixError, match=r"two.csv: has no images in split 'test'"):
        predict_manifest(Grader.load(run), two, split="test")


def test_predict_takes_a_manifest_or_its_folder(run, manifest, tmp_path, capsys):
    code, out, err = command(capsys, "predict", run, manifest, "--split", "test", "--cpu")
    assert (code, err) == (0, "")
    rows = out.splitlines()
    assert rows[0].endswith(",uncertainty,split,known_grade,known_rank")
    assert [row.rsplit(",", 3)[1:] for row in rows[1:]] == [
        ["test", str(i % 3), str(i % 3)] for i in range(24, 30)
    ]
    target = tmp_path / "out.json"
    code, out, _ = command(capsys, "predict", run, tmp_path, "-o", target, "--cpu", "-q")
    assert code == 0
    assert re.fullmatch(r"30 images graded, \d+ of 30 as known .* grades -> .*out.json\n", out)
    first = json.loads(target.read_text())["predictions"][0]
    assert (first["image"], first["split"], first["known_grade"]) == ("00.png", "train", 0)
    for words, endings in (((), ".csv or .json"), (("--json",), ".json")):
        target = tmp_path / "out.xlsx"
        code, _, err = command(capsys, "predict", run, tmp_path, "-o", target, "--cpu", *words)
        assert (code, err) == (
            2, f"error: {target}: cannot write '.xlsx' files; end it {endings}\n"
        )  # fmt: skip
    code, _, err = command(capsys, "predict", run, tmp_path / "00.png", "--split", "test")
    assert (code, err) == (
        2, "error: --split: image files have no splits; leave it out, or give a manifest\n",
    )  # fmt: skip
    code, _, err = command(capsys, "predict", run, tmp_path / "00.png", manifest)
    assert code == 2
    assert "manifest.csv: is a manifest among other paths; give a manifest alone" in err
    votes = manifest.read_bytes()
    code, _, err = command(capsys, "predict", run, tmp_path, "-o", manifest, "--cpu", "-q")
    assert (code, err) == (
        2, f"error: {manifest}: is the manifest with the known grades; name another file\n"
    )  # fmt: skip
    assert manifest.read_bytes() == votes


def test_a_missing_grade_is_an_error_unless_allowed(manifest):
    data = read_manifest(manifest)
    target = OrdinalTarget.from_labels([0, 1] * 6, 3)
    grader = create_grader("ce", num_ranks=3)
    with pytest.raises(DisMixError, match=r"no training image has grade 2 \('severe'\).*allow-mi"):
        check_training(grader, quick(), target, data)
    meta = replace(data.meta, ranks=("1", "2", "3"))
    with pytest.raises(DisMixError, match="no training image has grade '3', so"):
        check_training(grader, quick(), target, replace(data, meta=meta))
    with pytest.warns(UserWarning, match="could never give it"):
        check_training(grader, quick(), target, data, allow_missing=True)
    with pytest.warns(UserWarning, match=r"very few training images of grade 2 \('severe'\): 1"):
        check_training(grader, quick(), OrdinalTarget.from_labels([0, 1] * 6 + [2], 3), data)


def test_a_validation_part_of_one_grade_is_warned_of(manifest):
    data = read_manifest(manifest)
    target = OrdinalTarget.from_labels([0, 1, 2] * 4, 3)
    grader = create_grader("ce", num_ranks=3)
    table = data.table[(data.table["split"] != "val") | (data.target().hard.numpy() == 2)]
    words = r"all \d validation images have grade 2 \('severe'\): .*split anew"
    with pytest.warns(UserWarning, match=words):
        check_training(grader, quick(), target, data.with_table(table.reset_index(drop=True)))


def test_batches_and_sets_that_are_too_small(manifest):
    data = read_manifest(manifest)
    grader = create_grader("ce", num_ranks=3)
    target = OrdinalTarget.from_labels([0, 1, 2] * 4, 3)
    with pytest.raises(DisMixError, match="batches of 1 are too small for 'ce'; give --batch-size"):
        check_training(grader, quick(batch_size=1), target, data)
    with pytest.raises(DisMixError, match="has 1 training image, 'ce' needs 2"):
        check_training(grader, quick(), target[:1], data)
    with pytest.warns(UserWarning, match=r"only 12 training images.* 64, .*; add --batch-size 8$"):
        check_training(grader, quick(batch_size=64), target, data)
    many = OrdinalTarget.from_labels([0, 1, 2] * 50, 3)
    words = "10 epochs of 150 images in batches of 64 are 20 steps; add --batch-size 16, or more"
    with pytest.warns(UserWarning, match=words):
        check_training(grader, quick(batch_size=64, epochs=10), many, data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_training(grader, quick(), target, data)
        check_training(grader, quick(batch_size=64, epochs=200), many, data)
        # Chosen by the user.
        check_training(grader, quick(batch_size=48, epochs=1), many, data)


@pytest.mark.parametrize(("backbone", "size"), [("vit_tiny_patch16_224", 256), ("vgg11", 16)])
def test_sizes_that_a_backbone_cannot_take(manifest, backbone, size):
    grader = create_grader("ce", backbone=backbone, weights=None, num_ranks=3)
    target = OrdinalTarget.from_labels([0, 1, 2] * 4, 3)
    settings = quick(backbone=backbone, size=size)
    with pytest.raises(DisMixError, match=rf"'{backbone}' cannot read images of {size} px.*--size"):
        check_training(grader, settings, target, read_manifest(manifest))


@pytest.mark.parametrize("written", ["heavy", "inf", "-1"])
def test_weight_columns_are_checked(manifest, tmp_path, written):
    with pytest.raises(DisMixError, match="has no column 'wieght'; did you mean 'weight'"):
        train_grader(manifest, tmp_path / "a", quick(), weight_column="wieght", cpu=True)
    table = pd.read_csv(manifest)
    table["weight"] = table["weight"].astype(object)
    table.loc[4, "weight"] = written
    table.to_csv(manifest, index=False)
    with pytest.raises(DisMixError, match=f"row 6, column 'weight': '{written}' is no weight"):
        train_grader(manifest, tmp_path / "b", quick(), weight_column="weight", cpu=True)


def test_weights_may_have_decimal_commas(manifest):
    from dismix.graders.start_run import _sample_weights

    table = pd.read_csv(manifest)
    table["weight"] = table["weight"].astype(object)
    table.loc[table.index[table["split"] == "train"][:2], "weight"] = ["0,5", "2,0"]
    table.to_csv(manifest, index=False)
    weights = _sample_weights(read_manifest(manifest).split("train"), "weight")
    assert weights[:2].tolist() == [0.5, 2.0]


def test_mixers_by_name(manifest, tmp_path):
    pytest.importorskip("dismix.mixing.registry")
    train_grader(manifest, tmp_path / "m", quick(epochs=1), mix="mixup", cpu=True)
    with pytest.raises(DisMixError, match=r"unknown mixer 'mixupp'; did you mean 'mixup'"):
        train_grader(manifest, tmp_path / "n", quick(), mix="mixupp", cpu=True)
    with pytest.raises(DisMixError, match="needs a generator; give --generator RUN"):
        train_grader(manifest, tmp_path / "o", quick(), mix="dismix", cpu=True)
    with pytest.raises(DisMixError, match="a generator is given but no mixer; add --mix dismix"):
        train_grader(manifest, tmp_path / "p", quick(), generator="g", cpu=True)
    with pytest.raises(DisMixError, match=r"options of a mixer are given \(p\) but no mixer"):
        train_grader(manifest, tmp_path / "q", quick(), mix="none", mix_options={"p": 1}, cpu=True)


def test_a_folder_of_seeds_is_told_from_one_without_a_grader(run, tmp_path):
    shutil.copytree(run, tmp_path / "several" / "seed_3")
    with pytest.raises(DisMixError, match=r"several seeds of a grader; give .*several/seed_3"):
        Grader.load(tmp_path / "several")
    with pytest.raises(DisMixError, match="no trained grader here"):
        Grader.load(tmp_path)


def test_a_damaged_or_foreign_model_file(run, tmp_path):
    (tmp_path / "cut.safetensors").write_bytes((run / "model.safetensors").read_bytes()[:500])
    with pytest.raises(DisMixError, match=r"cut.safetensors: is no trained grader"):
        Grader.load(tmp_path / "cut.safetensors")
    with pytest.raises(DisMixError, match="is no trained grader"):
        Grader.load(run / "last.safetensors")
    with pytest.raises(DisMixError, match="no trained grader here"):
        Grader.load(tmp_path / "nowhere")


@pytest.mark.slow
def test_images_of_weight_zero_are_no_reference(manifest, tmp_path):
    table = pd.read_csv(manifest)
    train = table.index[table["split"] == "train"]
    # Not a grade at an end of the scale: the one window of three ranks needs both.
    table.loc[train[1::3], "weight"] = 0
    table.to_csv(manifest, index=False)
    for method in ("gol", "mwr"):
        folder = tmp_path / method
        train_grader(manifest, folder, quick(method), weight_column="weight", cpu=True)
        known = Grader.load(folder).reference
        assert len(known["embeddings" if method == "gol" else "features"]) == 12
    table.loc[train, "weight"] = 0
    table.to_csv(manifest, index=False)
    with pytest.raises(DisMixError, match="column 'weight': all weights are 0; give some above 0"):
        train_grader(manifest, tmp_path / "none", quick(), weight_column="weight", cpu=True)
    assert not (tmp_path / "none").exists()


def test_resuming_asks_for_the_same_weights(manifest, tmp_path):
    options = {"weight_column": "weight", "cpu": True}
    train_grader(manifest, tmp_path / "run", quick(), **options)
    table = pd.read_csv(manifest)
    table["weight"] = 1 + np.arange(len(table))
    table.to_csv(manifest, index=False)
    with pytest.raises(DisMixError, match="was started with other weights"):
        train_grader(manifest, tmp_path / "run", quick(), **options, resume=True)


def test_where_a_model_was_made_stays_known(manifest, run):
    said = json.loads((run / "run.json").read_text())
    said["provenance"]["hardware"] = "a machine far away"
    (run / "run.json").write_text(json.dumps(said))
    train_grader(manifest, run, quick(select="last,accuracy"), cpu=True, resume=True)
    now = json.loads((run / "run.json").read_text())["provenance"]
    assert now["hardware"] == "a machine far away"
    assert len(now["resumed"]) == 1


def test_a_loss_that_is_nothing_from_the_start_is_told(manifest, tmp_path):
    with pytest.raises(DisMixError, match="the loss is 0 in every step"):
        train_grader(
            manifest, tmp_path / "run", quick("mwr"), mix="mixup", mix_options={"p": 1.0}, cpu=True
        )


@pytest.mark.parametrize("method", ["cloc", "rnc", "ord2seq"])
def test_graders_can_be_copied(method):
    grader = create_grader(method, backbone="tiny", num_ranks=4, seed=0)
    twin = copy.deepcopy(grader)
    assert twin.stages == grader.stages


def test_a_killed_seed_is_one_line(manifest, tmp_path, monkeypatch):
    def broken(*_):
        raise BrokenProcessPool("terminated abruptly")

    monkeypatch.setattr("dismix.graders.seeds._watch", broken)
    with pytest.raises(DisMixError, match=r"was killed.*; add --resume, and a smaller --at-once"):
        train_seeds(manifest, tmp_path / "seeds", quick(), [0, 1], at_once=1, cpu=True)


def test_a_run_folder_in_use_is_refused(manifest, tmp_path):
    with in_use(tmp_path / "run"), pytest.raises(DisMixError, match="run: is in use by process"):
        train_grader(manifest, tmp_path / "run", quick(), cpu=True)
    with in_use(tmp_path / "many"), pytest.raises(DisMixError, match="many: is in use by process"):
        train_seeds(manifest, tmp_path / "many", quick(), [0, 1], at_once=1, cpu=True)


def test_seeds_end_when_their_parent_is_killed(manifest, tmp_path):
    words = [
        "grader", "train", str(manifest), "-o", str(tmp_path / "many"), "--backbone", "tiny",
        "--epochs", "100000", "--batch-size", "8", "--size", "16", "--seeds", "2", "--at-once", "1",
        "--cpu", "--quiet",
    ]  # fmt: skip
    seed, begun = tmp_path / "many" / "seed_0", time.monotonic()
    with subprocess.Popen([sys.executable, "-m", "dismix", *words]) as parent:
        while not (seed / "metrics.jsonl").is_file():
            assert parent.poll() is None
            assert time.monotonic() < begun + 120
            time.sleep(0.1)
        parent.kill()
    killed = time.monotonic()
    while True:
        try:
            with in_use(seed):
                return
        except DisMixError:
            assert time.monotonic() < killed + 20, "the worker goes on"
            time.sleep(0.1)


@pytest.mark.parametrize("name", ["model", "last"])
def test_a_full_disk_is_one_line(manifest, tmp_path, monkeypatch, name):
    def full(tensors, path, metadata):
        if name in path.name:
            raise SafetensorError("I/O error: No space left on device (os error 28)")
        save_file(tensors, path, metadata)

    for module in ("graders.saving", "generator.checkpoint"):
        monkeypatch.setattr(f"dismix.{module}.save_file", full)
    told = rf"{name}\.safetensors: cannot write here \(No space left on device\); free some space"
    with pytest.raises(DisMixError, match=told):
        train_grader(manifest, tmp_path / "run", quick(), cpu=True)


def test_exporting_to_a_full_disk_is_one_line(run, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    # torch, given the name of a file on a full disk, aborts the process.
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(DisMixError, match=r"m\.pt2: cannot write here \(No space left.*; free"):
        export_grader(Grader.load(run), tmp_path / "m.pt2")
    assert not (tmp_path / "m.pt2").exists()


def test_exporting_leaves_the_grader_as_it_was(run, tmp_path):
    grader = Grader.load(run).train()
    export_grader(grader, tmp_path / "grader.pt2")
    assert grader.training
    assert all(parameter.requires_grad for parameter in grader.parameters())


def test_seeds_at_once_equal_seeds_alone(manifest, tmp_path):
    found = train_seeds(manifest, tmp_path / "many", quick(), [0, 1], cpu=True, at_once=2)
    train_grader(manifest, tmp_path / "one", quick(), seed=1, cpu=True)
    alone = Grader.load(tmp_path / "one").state_dict()
    together = Grader.load(tmp_path / "many" / "seed_1").state_dict()
    assert all(torch.equal(v, together[k]) for k, v in alone.items() if torch.is_tensor(v))
    assert len(found["validation"]["accuracy"]["values"]) == 2
    judged = evaluate_run(tmp_path / "many", cpu=True)
    assert judged["summary"]["mae"]["low"] <= judged["summary"]["mae"]["mean"]
    with pytest.raises(DisMixError, match="holds a run already"):
        train_seeds(manifest, tmp_path / "many", quick(), [0, 1], cpu=True, at_once=2)


def test_a_kappa_that_is_undefined_stops_nothing(manifest, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("dismix.graders.metrics.quadratic_kappa", lambda table: float("nan"))
    options = ("--backbone", "tiny", "--size", "16", "--epochs", "2", "--batch-size", "8", "--cpu")
    code, out, _ = command(capsys, "train", manifest, "-o", tmp_path / "one", *options)
    assert code == 0
    assert "kappa - ->" in out
    log = [json.loads(line) for line in (tmp_path / "one/metrics.jsonl").read_text().splitlines()]
    assert not any("qwk" in name for row in log for name in row)
    assert evaluate_run(tmp_path / "one", cpu=True)["metrics"]["qwk"] is None
    assert json.loads((tmp_path / "one/evaluation-test.json").read_text())["metrics"]["qwk"] is None
    assert "| quadratic kappa | - |" in (tmp_path / "one/card.md").read_text()
    assert "qwk -" in command(capsys, "evaluate", tmp_path / "one", "--cpu")[1]
    judged = {"split": "test", "manifest": "m", "metrics": [{"qwk": None}] * 2}
    assert metrics_text({**judged, "summary": summarise(judged["metrics"])}).endswith("qwk -")
    assert summarise([{"qwk": None}, {"qwk": 0.5}])["qwk"]["values"] == [0.5]


def test_summary_of_one_seed_has_no_width():
    found = summarise([{"accuracy": 0.5, "mae": 1.0}])
    assert found["accuracy"]["low"] == found["accuracy"]["high"] == 0.5


@pytest.mark.slow
def test_torch_export_equals_the_model(run, tmp_path):
    assert export_grader(Grader.load(run), tmp_path / "m.pt2") <= 1e-4
    loaded = torch.export.load(str(tmp_path / "m.pt2")).module()
    images = torch.rand(5, 3, 16, 16) * 2 - 1
    assert torch.allclose(loaded(images)[0], Grader.load(run).predict(images).probabilities)


@pytest.mark.slow
def test_onnx_export_equals_the_model(run, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    assert export_grader(Grader.load(run), tmp_path / "m.onnx") <= 1e-4
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"))
    for count in (1, 7):
        images = torch.rand(count, 3, 16, 16) * 2 - 1
        probs, rank, label = session.run(None, {"images": images.numpy()})
        grades = Grader.load(run).predict(images)
        assert np.abs(probs - grades.probabilities.numpy()).max() < 1e-4
        assert np.abs(rank - grades.rank.numpy()).max() < 1e-4
        assert label.tolist() == grades.label.tolist()


def test_export_says_what_it_cannot_do(run, tmp_path, monkeypatch):
    grader = Grader.load(run)
    with pytest.raises(DisMixError, match=r"cannot tell the format from '.h5'"):
        export_grader(grader, tmp_path / "m.h5")
    assert export_grader(grader, tmp_path / "LOUD.PT2") < 1e-4
    grader.exportable = False
    with pytest.raises(DisMixError, match="'ce' cannot be exported"):
        export_grader(grader, tmp_path / "m.onnx")
    grader.exportable = True
    monkeypatch.setattr("dismix.graders.export.find_spec", lambda name: None)
    with pytest.raises(DisMixError, match=r"needs the package 'onnx'; pip install dismix\[export"):
        export_grader(grader, tmp_path / "m.onnx")
    monkeypatch.setattr("dismix.graders.export._difference", lambda *_: 0.1)
    with pytest.raises(DisMixError, match=r"output differs by 0.1"):
        export_grader(grader, tmp_path / "m.pt2")
    assert not list(tmp_path.glob("m.*"))


def command(capsys, *words):
    """Run a command; return exit code, stdout and stderr."""
    sys.argv = ["dismix", "grader", *map(str, words)]
    code = 0
    try:
        main()
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    out = capsys.readouterr()
    return code, out.out, out.err


def test_the_commands(manifest, tmp_path, capsys):
    run = tmp_path / "cli"
    common = ("--backbone", "tiny", "--epochs", 2, "--size", 16, "--batch-size", 8, "--cpu", "-q")
    code, out, err = command(
        capsys, "train", manifest, "-o", run, "--method", "corn", *common, "--select", "loss",
        "--rank-weights", "1,1,2", "--set", "dropout=0.1", "--balanced",
    )  # fmt: skip
    assert code == 0, err
    assert " by loss: validation accuracy " in out
    saved = json.loads((run / "run.json").read_text())["settings"]
    assert saved["hparams"] == {"dropout": 0.1}
    assert saved["rank_weights"] == [1, 1, 2]
    assert saved["balanced"] is True
    code, out, _ = command(capsys, "evaluate", run, "--cpu", "-q")
    assert code == 0
    assert "mae_expected" in out
    assert "true grade: decisions" in out
    code, out, _ = command(capsys, "evaluate", run, "--split", "val", "--json", "--cpu", "-q")
    assert json.loads(out)["metrics"]["count"] == 6
    code, out, err = command(capsys, "predict", run, tmp_path / "00.png", tmp_path / "no.png")
    assert (code, len(out.splitlines())) == (1, 2)
    assert err.startswith("skipped: ")
    assert "no.png: " in err
    target = tmp_path / "out.json"
    code, out, _ = command(capsys, "predict", run, tmp_path / "00.png", "-o", target, "-q")
    assert (code, len(json.loads(target.read_text())["predictions"])) == (0, 1)
    code, out, err = command(capsys, "train", manifest, "-o", run, "--method", "corm", *common)
    assert (code, err) == (2, "error: unknown grader 'corm'; did you mean 'corn' or 'coral'?\n")
    code, out, _ = command(capsys, "methods")
    assert "coral" in out


def test_a_grader_that_gives_one_grade_says_so(manifest, tmp_path, capsys):
    run = tmp_path / "idle"
    common = ("--backbone", "tiny", "--epochs", 1, "--size", 16, "--batch-size", 8, "--cpu", "-q")
    code, out, err = command(capsys, "train", manifest, "-o", run, *common, "--set", "lr=1e-12")
    assert (code, out.count("\n"), err.count("\n")) == (0, 1, 1)
    assert err.startswith("note: all images were given one and the same grade")
    # Batches of 8 are as small as a study would take them.
    assert "--batch-size" not in err
    _, out, _ = command(capsys, "evaluate", run, "--cpu", "-q")
    assert out.splitlines()[-1] == err.strip()


def test_the_note_on_one_grade_names_the_batch_that_a_study_takes(manifest, tmp_path, capsys):
    run = tmp_path / "idle"
    common = ("--backbone", "tiny", "--epochs", 1, "--size", 16, "--batch-size", 20, "--cpu", "-q")
    _, _, err = command(capsys, "train", manifest, "-o", run, *common, "--set", "lr=1e-12")
    images = len(read_manifest(manifest).split("train"))
    words = f"longer (--epochs), in smaller batches (--batch-size {usual_batch(images)}), or"
    assert words in err
    _, out, _ = command(capsys, "evaluate", run, "--cpu", "-q")
    assert words in out
    assert words in command(capsys, "evaluate", run / "model.safetensors", "--cpu", "-q")[1]
    _, out, _ = command(capsys, "evaluate", run, "--cpu", "-q", "--json")
    assert words in json.loads(out)["notes"][0]


def test_help_says_from_where_predicted_grades_count(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    _, out, _ = command(capsys, "predict", "--help")
    assert "Grades and ranks count from 0" in " ".join(out.split())


def test_folders_are_graded_with_links_and_unread_kinds_are_listed(run, manifest, tmp_path):
    folder, other = tmp_path / "new", tmp_path / "other"
    for place, name in ((folder, "a.png"), (other, "b.png")):
        place.mkdir()
        shutil.copy(read_manifest(manifest).image_paths[0], place / name)
    (folder / "c.gif").write_bytes(b"GIF89a")
    (folder / "link").symlink_to(other)
    found = predict_files(Grader.load(run), [folder])
    assert [Path(p.image).name for p in found.found] == ["a.png", "b.png"]
    assert [Path(path).name for path, _ in found.skipped] == ["c.gif"]
