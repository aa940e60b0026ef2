"""Mixes as files: replayable, resumable, readable as any other data set."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from tests.mixing.toy_run import make_run

from dismix.data.batches import Batches
from dismix.data.check import check_path
from dismix.data.manifest import read_manifest, write_manifest
from dismix.data.store import StoreSettings, build_store
from dismix.errors import DisMixError
from dismix.generator.images import load_split
from dismix.mixing import writing
from dismix.mixing.engine import MixEngine
from dismix.mixing.maker import MixMaker, MixSettings
from dismix.mixing.mix_table import read_mixes, summary
from dismix.mixing.nearest import NearestTraining
from dismix.mixing.writing import read_pictures, write_mixes

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def written(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written") / "mixes"
    write_mixes(toy_run, folder, 80, seed=3, cache=toy_run.parent / "cache")
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_written_draw_makes_the_same_picture_again(toy_run, written):
    mixes = read_mixes(written)
    maker = MixMaker(MixEngine.load(toy_run))
    assert torch.equal(maker.pictures(mixes), read_pictures(written, range(80)))
    table = pd.read_csv(written / "mixes.csv")
    np.testing.assert_allclose(table["rank"], maker.targets(mixes).rank.numpy(), atol=1e-5)
    assert set(table["policy"]) == {
        "ordinal_mix",
        "nonordinal_mix",
        "order_swap",
        "generate_and_mix",
    }
    asks = table["policy"] == "generate_and_mix"
    assert table.loc[asks, "partner"].isna().all()
    assert table.loc[~asks, "partner"].notna().all()
    assert (table["seed"] == 3).all()


def test_ranks_are_called_by_their_names(tmp_path):
    run = make_run(tmp_path, train=20)
    data = read_manifest(tmp_path / "data")
    names = ("none", "doubtful", "mild", "moderate", "severe")
    write_manifest(replace(data, meta=replace(data.meta, ranks=names)), tmp_path / "data" / "n.csv")
    lines = write_mixes(
        run, tmp_path / "mixes", 12, manifest=tmp_path / "data" / "n.csv", cache=tmp_path / "cache"
    )
    told = next(line for line in lines if line.startswith("nearest whole rank: "))
    counts = [part.split(": ") for part in told.split(": ", 1)[1].split(", ")]
    assert tuple(name for name, _ in counts) == names[: len(counts)]
    assert sum(int(count) for _, count in counts) == 12


def test_ranks_above_the_highest_mix_are_counted_too():
    table = pd.DataFrame(
        {"policy": ["ordinal_mix"] * 2, "rank": ["0.4", "0.6"], "adjacent": True,
         "similarity": 0.1, "nearest_is_source": False}
    )  # fmt: skip
    told = summary(table, 0.85, ("none", "mild", "severe"))[1]
    assert told == "nearest whole rank: none: 1, mild: 1, severe: 0"


def test_the_folder_reads_back_as_training_data(toy_run, written):
    manifest = read_manifest(written)
    target = manifest.target()
    table = pd.read_csv(written / "mixes.csv")
    np.testing.assert_allclose(target.rank.numpy(), table["rank"], atol=1e-4)
    assert not target.clean.any()
    assert manifest.meta.ranks == read_manifest(toy_run.parent / "data").meta.ranks
    store = build_store(
        manifest.image_paths, StoreSettings(size=32, channels=1), toy_run.parent / "cache"
    )
    batch = next(iter(Batches(store, target, 16, augment=False)))
    assert batch.images.shape == (16, 1, 32, 32)
    torch.testing.assert_close(batch.target.probs.sum(1), torch.ones(16))
    text = (written / "README.md").read_text()
    assert "training targets, not clinical grades" in text


def test_the_same_settings_give_the_same_bytes_and_more_go_on(toy_run, written, tmp_path):
    cache = toy_run.parent / "cache"
    write_mixes(toy_run, tmp_path / "again", 80, seed=3, cache=cache)
    assert files(tmp_path / "again") == files(written)
    write_mixes(toy_run, tmp_path / "few", 10, seed=3, cache=cache)
    first = files(tmp_path / "few" / "images")
    write_mixes(toy_run, tmp_path / "few", 20, seed=3, cache=cache)
    grown = files(tmp_path / "few" / "images")
    assert len(grown) == 20
    assert all(grown[name] == data for name, data in first.items())
    with pytest.raises(DisMixError, match="is for 20 mixes, not 10"):
        write_mixes(toy_run, tmp_path / "few", 10, seed=3, cache=cache)
    with pytest.raises(DisMixError, match="is from other mixes"):
        write_mixes(toy_run, tmp_path / "few", 20, seed=4, cache=cache)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("")
    with pytest.raises(DisMixError, match="holds something else"):
        write_mixes(toy_run, tmp_path / "full", 2, cache=cache)
    with pytest.raises(DisMixError, match="0 mixes"):
        write_mixes(toy_run, tmp_path / "none", 0, cache=cache)


def test_originals_join_with_their_own_labels(toy_run, tmp_path):
    cache = toy_run.parent / "cache"
    write_mixes(toy_run, tmp_path / "m", 6, originals=True, cache=cache)
    manifest, own = read_manifest(tmp_path / "m"), read_manifest(toy_run.parent / "data")
    assert len(manifest) == len(own) + 6
    assert all(path.is_file() for path in manifest.image_paths)
    joined, alone = manifest.target(), own.target()
    torch.testing.assert_close(joined.probs[: len(own)], alone.probs)
    assert joined.clean.tolist() == [True] * len(own) + [False] * 6
    assert (manifest.split("val").table["policy"].isna()).all()


def test_equalised_originals_are_not_equalised_again(tmp_path):
    run = make_run(tmp_path, train=12)
    folder, cache = tmp_path / "data", tmp_path / "cache"
    data = read_manifest(folder)
    write_manifest(replace(data, meta=replace(data.meta, equalize=True)), folder / "manifest.csv")
    write_mixes(run, tmp_path / "m", 4, originals=True, cache=cache)
    made = read_manifest(tmp_path / "m")
    assert not made.meta.equalize
    own = load_split(read_manifest(folder), "val", 32, device=torch.device("cpu"), cache=cache)
    listed = load_split(made, "val", 32, device=torch.device("cpu"), cache=cache)
    rows = torch.arange(len(own))
    assert torch.equal(own.images(rows, "cpu"), listed.images(rows, "cpu"))
    mixes = load_split(made, "train", 32, device=torch.device("cpu"), cache=cache)
    seen = mixes.images(torch.arange(12, 16), "cpu")
    written = read_pictures(tmp_path / "m", range(4)).float() / 127.5 - 1
    assert torch.allclose(seen, written, atol=1e-5)


def test_a_folder_from_before_a_setting_goes_on(tmp_path):
    run = make_run(tmp_path, train=12)
    write_mixes(run, tmp_path / "m", 4, cache=tmp_path / "cache")
    done = tmp_path / "m" / "mixes.json"
    stamp = json.loads(done.read_text())
    del stamp["settings"]["alike"], stamp["settings"]["detail"]
    done.write_text(json.dumps(stamp))
    write_mixes(run, tmp_path / "m", 6, cache=tmp_path / "cache")
    assert len(pd.read_csv(tmp_path / "m" / "mixes.csv")) == 6
    stamp["settings"]["alike"] = 3
    done.write_text(json.dumps(stamp))
    with pytest.raises(DisMixError, match="is from other mixes"):
        write_mixes(run, tmp_path / "m", 6, cache=tmp_path / "cache")


def test_balanced_mixes_make_more_of_rare_ranks(tmp_path):
    run = make_run(tmp_path, train=25)
    folder = tmp_path / "data"
    data = read_manifest(folder)
    table = data.table.copy()
    votes = [c for c in table if c.startswith("annotator")]
    grade = table["grade"].where(table.index % 5 != 0, 4).where(table.index % 5 == 0, 0)
    for column in [*votes, "grade"]:
        table[column] = grade.where(table.index % 10 != 5, 1)
    write_manifest(data.with_table(table), folder / "rare.csv")
    shares = []
    for balanced in (False, True):
        out = tmp_path / f"b{balanced}"
        lines = write_mixes(
            run, out, 60, manifest=folder / "rare.csv", cache=tmp_path / "cache",
            settings=MixSettings("preserving", balanced=balanced),
        )  # fmt: skip
        ranks = pd.read_csv(out / "mixes.csv")["rank"]
        shares.append(float((ranks == 4).mean()))
        assert any("no partner of a neighbouring rank" in line for line in lines)
    assert shares[1] > shares[0] + 0.1


def test_the_nearest_training_image_is_found(toy_run, written):
    rows = read_manifest(toy_run.parent / "data").split("train")
    store = build_store(
        rows.image_paths, StoreSettings(size=32, channels=1), toy_run.parent / "cache"
    )
    finder = NearestTraining(store)
    wanted = torch.tensor([4, 17, 22])
    darker = (store[wanted].float() * 0.7 + 20).round().to(torch.uint8)
    found = finder.find(darker)
    assert found.row.tolist() == wanted.tolist()
    assert found.similarity.min() > 0.9
    noise = torch.randint(255, (3, 1, 32, 32), generator=torch.Generator().manual_seed(0))
    assert finder.find(noise.to(torch.uint8)).similarity.max() < 0.4
    table = pd.read_csv(written / "mixes.csv")
    assert table["similarity"].between(-1, 1.001).all()


SLOW = """
import sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from dismix.mixing import writing
original = writing.save_picture
def slow(picture, file):
    time.sleep(0.02)
    original(picture, file)
writing.save_picture = slow
writing.write_mixes(sys.argv[1], sys.argv[2], 80, seed=3, cache=Path(sys.argv[3]))
"""


def test_a_killed_writing_goes_on(toy_run, written, tmp_path, monkeypatch):
    cache, out = toy_run.parent / "cache", tmp_path / "mixes"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen([sys.executable, "-c", SLOW, toy_run, out, cache], env=environment)
    limit = time.monotonic() + 120
    while len(list(out.glob("images/mix*.png"))) < 10 and time.monotonic() < limit:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = {path.name for path in out.glob("images/mix*.png")}
    assert 10 <= len(kept) < 80
    assert not (out / "mixes.json").exists()
    for path in out.glob("images/mix*.png"):
        Image.open(path).load()
    lines = write_mixes(toy_run, out, 80, seed=3, cache=cache)
    assert lines[0].startswith("policies:")
    assert files(out) == files(written)
    saved: list[Path] = []
    monkeypatch.setattr(writing, "save_picture", lambda picture, file: saved.append(file))
    write_mixes(toy_run, out, 80, seed=3, cache=cache)
    assert not saved


def test_data_check_knows_a_folder_of_mixes(written):
    report = check_path(written)
    text = str(report)
    assert report.ok
    assert report.soft == 80
    assert text.startswith(f"{written / 'manifest.csv'}: 80 images with soft labels, 5 ranks\n")
    assert "not graded" not in text
    # What was drawn alike is one line, not a line a pair.
    assert len(report.of("alike", "twin", "twin-conflict")) <= 1
    assert "training targets only; made from: drawn, no patient data" in text


def test_a_folder_of_mixes_lacks_validation_images_and_is_told_how_to_get_them(
    toy_run, written, tmp_path
):
    device = torch.device("cpu")
    with pytest.raises(DisMixError, match=r"split 'val'; its images are mixes.* --originals"):
        load_split(read_manifest(written), "val", 32, device=device)
    write_mixes(toy_run, tmp_path / "all", 8, originals=True, cache=toy_run.parent / "cache")
    whole = read_manifest(tmp_path / "all")
    load_split(whole, "val", 32, device=device, cache=toy_run.parent / "cache")
    train = whole.with_table(whole.table[whole.table["split"] == "train"])
    with pytest.raises(DisMixError, match=r"split the manifest that they were made of"):
        load_split(train, "val", 32, device=device)
