"""Figures: the right shape, pictures that are what the captions say, and named mistakes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.mixing.toy_run import toy_generator

from dismix import atomic
from dismix.data.manifest import read_manifest, write_manifest
from dismix.data.phantom import PhantomSpec, build_phantom
from dismix.data.splits import merge_splits
from dismix.errors import DisMixError
from dismix.generator.images import load_split
from dismix.mixing import showing
from dismix.mixing.showing import draw_figure
from dismix.show.contact_sheet import LABEL, MARGIN
from dismix.show.headed_grid import headed_grid


@pytest.mark.parametrize("figure", ["policies", "strip", "mixers", "transition"])
def test_every_figure_is_drawn(figure, toy_run):
    picture = draw_figure(toy_run, figure, cache=toy_run.parent / "cache")
    assert picture.width > 400
    again = draw_figure(toy_run, figure, cache=toy_run.parent / "cache")
    assert np.array_equal(np.asarray(picture), np.asarray(again))


@pytest.mark.parametrize(
    ("splits", "wanted"), [({"test": "test"}, "test"), ({"test": "val"}, "val")]
)
def test_transitions_are_of_images_held_out(toy_run, tmp_path, monkeypatch, splits, wanted):
    data = read_manifest(toy_run.parent / "data")
    write_manifest(merge_splits(data, splits), tmp_path / "manifest.csv")
    asked = []

    def seen(manifest, split, *args, **options):
        asked.append(split)
        return load_split(manifest, split, *args, **options)

    monkeypatch.setattr(showing, "load_split", seen)
    draw_figure(
        toy_run, "transition", manifest=tmp_path / "manifest.csv", cache=toy_run.parent / "cache"
    )
    assert asked == [wanted]


def test_pictures_lie_under_their_headers():
    pictures = [[np.full((32, 32, 1), 40 * c, np.uint8) for c in range(3)]]
    sheet = np.asarray(headed_grid(pictures, [("a", "b")], ["x", "y", "z"]))
    for column in range(3):
        left = LABEL + column * (128 + MARGIN)
        block = sheet[22 + MARGIN : 22 + MARGIN + 128, left : left + 128]
        assert (block == 40 * column).all()


def test_long_headers_stay_above_their_pictures():
    pictures = [[np.zeros((128, 128, 1), np.uint8)] * 2]
    short, long = (
        np.asarray(headed_grid(pictures, [("a", "b")], [name, ""])) for name in ("x", "x" * 90)
    )
    right = LABEL + 128 + MARGIN
    assert not np.array_equal(short[:22], long[:22])
    assert np.array_equal(short[:22, right:], long[:22, right:])
    assert np.array_equal(short[:22, : LABEL - MARGIN], long[:22, : LABEL - MARGIN])


def test_two_ranks_are_enough_for_every_figure(tmp_path):
    build_phantom(
        PhantomSpec(train=12, val=4, test=4, size=32, num_ranks=2, annotators=0), tmp_path / "data"
    )
    toy_generator(num_ranks=2).save(tmp_path / "run")
    atomic.write_json(tmp_path / "run" / "run.json", {"manifest": str(tmp_path / "data")})
    for figure in ("policies", "strip", "mixers", "transition"):
        assert draw_figure(tmp_path / "run", figure, cache=tmp_path / "cache").width > 400
    with pytest.raises(DisMixError, match=r"rank 1 has no neighbour above; choose 0$"):
        draw_figure(tmp_path / "run", rank=1, cache=tmp_path / "cache")


def test_mistakes_are_named(toy_run):
    cache = toy_run.parent / "cache"
    with pytest.raises(DisMixError, match="did you mean 'strip'"):
        draw_figure(toy_run, "stripe", cache=cache)
    with pytest.raises(DisMixError, match="severe has no neighbour above; choose none to mod"):
        draw_figure(toy_run, rank=4, cache=cache)
    for rank, words in ((7, "no rank '7'; the ranks are 0, 1, 2, 3, 4"), (-1, "no rank '-1'")):
        with pytest.raises(DisMixError, match=f"--rank: there is {words}"):
            draw_figure(toy_run, rank=rank, cache=cache)
    assert torch.is_grad_enabled()


def test_ranks_are_called_as_the_user_calls_them(toy_run, tmp_path, monkeypatch):
    data = read_manifest(toy_run.parent / "data")
    told = {"cache": toy_run.parent / "cache", "manifest": tmp_path / "manifest.csv"}
    asked = []

    def headers(rows, captions, headers):
        asked.append([headers[0], headers[-1], captions[0][1]])
        return headed_grid(rows, captions, headers)

    monkeypatch.setattr(showing, "headed_grid", headers)
    mild = ("none", "doubtful", "mild", "moderate", "severe")
    for names, rank, low, high in (
        (("1", "2", "3", "4", "5"), "2", "2", "3"),
        (("1", "2", "3", "4", "5"), 1, "2", "3"),
        (mild, "mild", "mild", "moderate"),
        (mild, "2", "mild", "moderate"),
    ):
        named = replace(data, meta=replace(data.meta, ranks=names))
        write_manifest(named, tmp_path / "manifest.csv")
        draw_figure(toy_run, "strip", rank=rank, **told)
        assert asked.pop() == [f"rank {low}", f"rank {high}", f"rank {low} to {high}"]
    write_manifest(
        replace(data, meta=replace(data.meta, ranks=("1", "2", "3", "4", "5"))),
        tmp_path / "manifest.csv",
    )
    with pytest.raises(DisMixError, match=r"no rank '0'; the ranks are 1, 2, 3, 4, 5$"):
        draw_figure(toy_run, rank="0", **told)
    with pytest.raises(DisMixError, match="rank 5 has no neighbour above; choose 1 to 4"):
        draw_figure(toy_run, rank="5", **told)
