"""Quality of mixes: the numbers against slow loops, and a page from a judge of a few steps."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from dismix.data.manifest import read_manifest
from dismix.errors import DisMixError
from dismix.generator.images import load_split
from dismix.generator.judge import Judge
from dismix.labels import OrdinalTarget
from dismix.mixing import quality_page
from dismix.mixing.engine import MixEngine
from dismix.mixing.quality import (
    LAMS,
    Readings,
    RealFeatures,
    baseline,
    draw_rank_pairs,
    make_mixes,
    measure_mixes,
    monotone_share,
    within_slope,
)
from dismix.mixing.quality_page import write_quality


@pytest.fixture(scope="module")
def toy(toy_run):
    data = read_manifest(toy_run.parent / "data")
    train = load_split(
        data, "train", 32, device=torch.device("cpu"), cache=toy_run.parent / "cache"
    )
    return MixEngine.load(toy_run), train


def brightness(images):
    return images.double().mean(dim=(1, 2, 3)).numpy()


def test_numbers_against_slow_loops():
    rng = np.random.default_rng(0)
    read, intended = rng.uniform(0, 4, (5, 7)), np.sort(rng.uniform(0, 4, (5, 7)), axis=0)
    read[:, :3] = np.sort(read[:, :3], axis=0)
    good = monotone = 0
    error = above = below = 0.0
    for pair in range(7):
        for lam in range(5):
            if 0 < lam < 4:
                good += math.floor(read[lam, pair] + 0.5) == math.floor(intended[lam, pair] + 0.5)
                error += abs(read[lam, pair] - intended[lam, pair]) / 21
            x = intended[lam, pair] - intended[:, pair].mean()
            above += x * (read[lam, pair] - read[:, pair].mean())
            below += x * x
        monotone += all(read[k, pair] <= read[k + 1, pair] for k in range(4))
    found = Readings(read, intended).numbers(preserving=False)
    assert found["agreement"] == pytest.approx(good / 21)
    assert found["error"] == pytest.approx(error)
    assert found["slope"] == pytest.approx(above / below)
    assert found["monotone"] == pytest.approx(monotone / 7)
    assert monotone_share(read[::-1], intended[::-1]) == pytest.approx(monotone / 7)
    assert within_slope(read, np.ones_like(read)) == 0.0


def test_pairs_lie_as_far_apart_as_asked():
    ranks = torch.arange(50) % 5
    for gaps in ((1,), (2, 3, 4)):
        pairs = draw_rank_pairs(ranks, 300, 1, gaps)
        apart = ranks[pairs.first] - ranks[pairs.second]
        assert set(apart.abs().tolist()) == set(gaps)
        assert {True, False} == set((apart > 0).tolist())
    with pytest.raises(DisMixError, match="ranks apart"):
        draw_rank_pairs(torch.zeros(4, dtype=torch.long), 3, 0)


def test_labels_of_mixes_and_mixers(toy):
    engine, train = toy
    ranks = engine.store.target.hard
    pairs = draw_rank_pairs(ranks, 12, 0, gaps=(1, 2, 3))
    first, second = ranks[pairs.first].float(), ranks[pairs.second].float()
    for method in ("ordinal_mix", "generate_and_mix", "mixup"):
        pictures, intended = make_mixes(engine, train, method, pairs, 0.25)
        torch.testing.assert_close(intended, 0.25 * first + 0.75 * second)
        assert pictures.shape == (12, 1, 32, 32)
    for method in ("nonordinal_mix", "order_swap"):
        _, intended = make_mixes(engine, train, method, pairs, 0.25)
        assert torch.equal(intended, torch.where(pairs.from_second, second, first))
    a, b = train.images(pairs.first, "cpu"), train.images(pairs.second, "cpu")
    blended, _ = make_mixes(engine, train, "mixup", pairs, 0.25)
    torch.testing.assert_close(blended, 0.25 * a + 0.75 * b)
    same, _ = make_mixes(engine, train, "ordinal_mix", pairs, 1.0)
    kept = ~pairs.from_second
    # As their label says, whole ranks, not as the votes do.
    hard = OrdinalTarget.from_labels(ranks[pairs.first], 5)
    rebuilt = engine.decode(engine.showing(engine.stored(pairs.first), hard).codes)
    torch.testing.assert_close(same[kept], rebuilt[kept])


def test_distances_leave_the_sources_out(toy):
    engine, train = toy
    ranks = engine.store.target.hard

    def extract(images):
        return images.flatten(1).double().numpy()

    space = RealFeatures(extract, train, ranks)
    pairs = draw_rank_pairs(ranks, 6, 0)
    found = space.distance(train.images(pairs.first, "cpu"), ranks[pairs.first].float(), pairs)
    everything = extract(train.images(torch.arange(30), "cpu"))
    for k in range(6):
        i, j = int(pairs.first[k]), int(pairs.second[k])
        others = [n for n in range(30) if ranks[n] == ranks[i] and n not in (i, j)]
        wanted = min(np.linalg.norm(everything[n] - everything[i]) for n in others)
        assert found[k] * space.unit == pytest.approx(wanted, rel=1e-4)


def test_every_method_is_measured_on_the_same_pairs(toy):
    engine, train = toy
    pairs = draw_rank_pairs(engine.store.target.hard, 5, 0)
    numbers, readings = measure_mixes(engine, train, brightness, pairs=pairs)
    assert list(numbers) == [
        "ordinal_mix", "nonordinal_mix", "order_swap", "generate_and_mix", "mixup", "cutmix",
    ]  # fmt: skip
    assert all(found.read.shape == (len(LAMS), 5) for found in readings.values())
    assert "preserved" in numbers["order_swap"]
    assert "slope" in numbers["mixup"]
    ends = [brightness(train.images(rows, "cpu")) for rows in (pairs.first, pairs.second)]
    np.testing.assert_allclose(readings["mixup"].read[[0, -1]], ends, atol=1e-6)
    ceiling = baseline(engine, train, brightness)
    assert set(ceiling) == {"real images", "reconstructions"}


def test_the_page_is_written_and_the_judge_kept(toy_run, tmp_path):
    judge = tmp_path / "judge.safetensors"
    options = {"judge": judge, "pairs": 4, "cache": toy_run.parent / "cache"}
    lines = write_quality(toy_run, tmp_path / "q.html", epochs=1, **options)
    assert lines[0].split() == [
        "agreement", "error", "slope", "monotone", "preserved", "distance",
    ]  # fmt: skip
    assert any(line.startswith("cutmix") for line in lines)
    record = json.loads((tmp_path / "q.json").read_text())
    assert record["judge"]["kind"] == "conv"
    # A pass over 30 images teaches nothing, and that is said.
    assert len(record["judge"]["by_true_rank"]) == 5
    told = "the judge hardly tells the ranks of real images apart (slope "
    assert lines[-1].startswith(f"note: {told}")
    assert f"Note: {told}" in (tmp_path / "q.html").read_text()
    assert "not clinical grades" in (tmp_path / "q.html").read_text()
    again = write_quality(toy_run, tmp_path / "q.html", **options)
    assert again == lines
    Judge(3, "conv").save(judge)
    with pytest.raises(DisMixError, match="reads 3 ranks, the data have 5"):
        write_quality(toy_run, tmp_path / "q.html", **options)


@pytest.mark.parametrize("there", [True, False])
def test_a_judge_is_judged_on_validation_images_where_they_are_at_hand(
    toy_run, tmp_path, monkeypatch, there
):
    asked = []

    def readings(judge, split, device):
        asked.append(split.target.hard.tolist())
        return {"by_true_rank": [0.0, 0.5, None, 1.5, 2.0]}

    monkeypatch.setattr(quality_page, "judge_readings", readings)
    parts = read_manifest(toy_run.parent / "data")
    if not there:
        is_file, gone = Path.is_file, {*parts.split("val").image_paths}
        monkeypatch.setattr(Path, "is_file", lambda path: path not in gone and is_file(path))
    cache = toy_run.parent / "cache"
    lines = write_quality(toy_run, tmp_path / "q.html", epochs=1, pairs=4, cache=cache)
    assert asked == [parts.split("val" if there else "train").target().hard.tolist()]
    assert not any("hardly" in line for line in lines)
