"""Figures that need images: drawn once, then found by the report."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from tests.mixing.toy_run import make_run

from dismix.bench.figures import (
    draw_run_figures,
    draw_study_figures,
    keep_picture,
    make_feature_map,
    mixed_groups,
)
from dismix.bench.report import write_report
from dismix.bench.report_charts import feature_panels
from dismix.errors import DisMixError
from dismix.graders.backbones import create_backbone
from dismix.show import plots


@pytest.fixture
def quick(monkeypatch):
    """Replace the t-SNE, which takes seconds, by two coordinates of its input."""

    def two(features, seed=0):
        return features.reshape(len(features), -1)[:, :2].astype(float)

    monkeypatch.setattr(plots, "embed", two)


@pytest.fixture
def groups():
    rng = torch.Generator().manual_seed(0)
    images = torch.rand(12, 1, 16, 16, generator=rng) * 2 - 1
    ranks = torch.arange(12) % 3
    return {"original": (images, ranks), "mixup": ((images + images.flip(0)) / 2, ranks / 2)}


def test_all_groups_share_one_map(tmp_path, groups, quick):
    network = create_backbone("tiny", weights=None)
    path = make_feature_map(tmp_path, groups, 3, backbone=network, data="dots")
    content = json.loads(path.read_text())
    assert [panel["name"] for panel in content["panels"]] == ["original", "mixup"]
    with torch.no_grad():
        wanted = network.eval()(groups["mixup"][0])[:, :2].numpy()
    assert np.allclose(content["panels"][1]["points"], wanted, atol=0.006)
    assert content["panels"][1]["rank"] == [(i % 3) / 2 for i in range(12)]
    assert Image.open(tmp_path / "figures" / content["files"][0]).width > 600
    html = feature_panels(content)
    # The mixes, and the original ones behind them and in their own panel.
    assert html.count("<circle") == 12 * 3
    assert html.count("<figure") == 2
    assert "rank 0 <span" in html


def test_a_map_names_ranks_as_the_data_do(tmp_path, groups, quick, monkeypatch):
    told = []
    monkeypatch.setattr(
        "dismix.show.headed_grid.headed_grid",
        lambda rows, captions, headers: told.extend(captions) or Image.new("L", (9, 9)),
    )
    network = create_backbone("tiny", weights=None)
    path = make_feature_map(tmp_path, groups, 3, backbone=network, ranks=("1", "2", "3"))
    html = feature_panels(json.loads(path.read_text()))
    assert ">1 <span" in html
    assert "</span> 3<" in html
    assert told == [("original", "ranks 1.0 to 3.0"), ("mixup", "ranks 1.0 to 2.0")]


def test_no_map_of_random_features(tmp_path, groups):
    for options in ({"backbone": "tiny"}, {"weights": "none"}):
        with pytest.raises(DisMixError, match="needs a trained backbone"):
            make_feature_map(tmp_path, groups, 3, **options)
    with pytest.raises(DisMixError, match="absent"):
        absent = tmp_path / "absent.safetensors"
        make_feature_map(tmp_path, groups, 3, backbone="tf_efficientnet_lite0", weights=absent)
    assert not (tmp_path / "figures").exists()


def test_figures_of_a_run(tmp_path, quick):
    run = make_run(tmp_path, train=24)
    network = create_backbone("tiny", weights=None)
    made = draw_run_figures(
        tmp_path / "bench", run, per_rank=3, mixers=("mixup", "dismix"), backbone=network,
        cache=tmp_path / "cache", data="phantom",
    )  # fmt: skip
    names = ["feature_map_phantom.json", "codes_phantom.json", "samples_phantom.json"]
    assert [path.name for path in made] == names
    content = json.loads(made[0].read_text())
    assert [panel["name"] for panel in content["panels"]] == ["original", "mixup", "dismix"]
    assert len({len(panel["points"]) for panel in content["panels"]}) == 1
    assert content["names"] == ["none", "severe"]
    caption = json.loads(made[2].read_text())["caption"]
    assert caption.startswith("The same pairs of ranks doubtful and minimal under")
    assert all(0 <= rank <= 4 for panel in content["panels"] for rank in panel["rank"])


def test_figures_of_a_finished_study(smoke, quick, tmp_path):
    _, bench = smoke
    network = create_backbone("tiny", weights=None)
    made = draw_study_figures(bench.root, per_rank=2, mixers=("mixup", "dismix"), backbone=network)
    assert len(made) == 3
    page = write_report(bench.root, tmp_path).read_text(encoding="utf-8")
    assert page.count("data:image/png") == 3
    for path in made:
        path.with_suffix(".png").unlink()
        path.unlink()
    with pytest.raises(DisMixError, match="no records"):
        draw_study_figures(tmp_path)


def test_groups_depend_on_the_seed_alone(tmp_path):
    from dismix.data.manifest import read_manifest
    from dismix.generator.images import load_split
    from dismix.mixing.encoding import encode_split, run_manifest
    from dismix.mixing.engine import MixEngine

    run = make_run(tmp_path, train=24)
    store = encode_split(run, cache=tmp_path / "cache")
    engine = MixEngine.load(run, store.folder)
    data = read_manifest(run_manifest(run))
    train = load_split(data, "train", 32, device=torch.device("cpu"), cache=tmp_path / "cache")
    one, two = (mixed_groups(engine, train, ["cutmix"], per_rank=2, seed=3) for _ in range(2))
    assert torch.equal(one["cutmix"][0], two["cutmix"][0])
    counts = torch.bincount(one["original"][1].round().long())
    assert counts.max() <= 2 * 2
    other = mixed_groups(engine, train, ["cutmix"], per_rank=2, seed=4)
    assert not torch.equal(one["cutmix"][0], other["cutmix"][0])


def test_any_picture_can_be_kept(tmp_path):
    path = keep_picture(tmp_path, "mine", Image.new("RGB", (4, 4)), "Title", "what it is")
    assert json.loads(path.read_text())["files"] == ["mine.png"]
    assert Image.open(tmp_path / "figures" / "mine.png").size == (4, 4)
