"""A grader in a loop of one's own: trained, saved, loaded, asked about files, exported."""

import warnings

import pytest
import torch
from PIL import Image
from tests.graders.toy import SMALL

from dismix.data.manifest import read_manifest
from dismix.errors import DisMixError
from dismix.graders.about import about_images
from dismix.graders.backbones import Backbone, create_backbone
from dismix.graders.base import Grader
from dismix.graders.cross_entropy import CrossEntropyGrader
from dismix.graders.export import export_grader
from dismix.graders.predict import predict_files, predict_manifest
from dismix.graders.registry import GRADERS, create_grader
from dismix.graders.saving import MODEL, save_grader
from dismix.labels import OrdinalTarget

RANKS = ["none", "mild", "severe"]
IMAGES = torch.rand(9, 1, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1
LABELS = torch.arange(9) % 3


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i, image in enumerate(IMAGES):
        pixels = ((image[0] + 1) * 127.5).round().to(torch.uint8).numpy()
        Image.fromarray(pixels).resize((48, 48)).save(folder / f"{i}.png")
    return folder


def made(name="ce", **options):
    return create_grader(name, num_ranks=3, **SMALL.get(name, {}), **options)


def trained(name, **options):
    """What the guide shows."""
    grader = made(name, **options)
    optimizer = torch.optim.Adam(grader.parameters(), 1e-3)
    for stage in grader.stages:
        grader.on_stage_start(stage)
        grader.start_epoch(0)
        shown = IMAGES if stage.views == 1 else torch.stack([IMAGES, IMAGES.flip(-1)], 1)
        loss = grader.training_loss(shown, LABELS, stage)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if grader.uses_reference:
        grader.eval()
        with torch.no_grad():
            grader.fit_reference([(IMAGES, OrdinalTarget.from_labels(LABELS, 3))])
    return grader


@pytest.mark.parametrize("name", list(GRADERS))
def test_a_grader_of_ones_own_loop_grades_files(name, tmp_path, pictures):
    grader = trained(name)
    grader.about = about_images(RANKS, 32, grey=True)
    save_grader(grader, tmp_path / "run")
    loaded = Grader.load(tmp_path / "run")
    assert torch.equal(loaded.predict(IMAGES).rank, grader.predict(IMAGES).rank)
    found = predict_files(loaded, pictures)
    assert len(found.found) == 9
    assert not found.skipped
    assert {p.name for p in found.found} <= {*RANKS}


def test_the_exported_file_takes_the_graders_own_images(tmp_path):
    grader = trained("corn")
    grader.about = about_images(RANKS, 48, grey=True)
    assert export_grader(grader, tmp_path / "m.pt2") <= 1e-4
    images = torch.rand(4, 1, 48, 48) * 2 - 1
    probabilities, _, _ = torch.export.load(str(tmp_path / "m.pt2")).module()(images)
    assert torch.allclose(probabilities, grader.predict(images).probabilities, atol=1e-5)


def test_export_does_not_guess_the_size(tmp_path):
    grader = made()
    with pytest.raises(DisMixError, match=r"not know the size of its images; give size= and chan"):
        export_grader(grader, tmp_path / "m.pt2")
    with pytest.raises(DisMixError, match="not know the channels of its images"):
        export_grader(grader, tmp_path / "m.pt2", size=40)
    assert export_grader(grader, tmp_path / "m.pt2", size=40, channels=1) <= 1e-4
    loaded = torch.export.load(str(tmp_path / "m.pt2")).module()
    assert loaded(torch.zeros(5, 1, 40, 40))[0].shape == (5, 3)


@pytest.mark.parametrize("name", ["gol", "mwr"])
def test_export_asks_for_the_reference_images(name, tmp_path):
    with pytest.raises(DisMixError, match=r"'\w+' has no reference images yet; call fit_reference"):
        export_grader(made(name), tmp_path / "m.pt2", size=32, channels=3)


def test_files_need_to_know_how_images_are_read(tmp_path, pictures):
    save_grader(made(), tmp_path)
    grader = Grader.load(tmp_path)
    told = r"not know how its images were read; set grader.about = about_images\(ranks, size\)"
    for about in ({}, {"size": 32}):
        grader.about = about
        with pytest.raises(DisMixError, match=told):
            predict_files(grader, pictures)
    grader.about = about_images(RANKS, 32)
    assert len(predict_files(grader, pictures).found) == 9


def test_about_is_checked_when_it_is_made_and_saved(tmp_path):
    with pytest.raises(DisMixError, match="unknown fit 'padd'; did you mean 'pad'"):
        about_images(RANKS, 32, fit="padd")
    grader = made()
    grader.about = about_images(RANKS[:2], 32)
    with pytest.raises(DisMixError, match="about names 2 ranks, the grader has 3"):
        save_grader(grader, tmp_path)
    nameless = CrossEntropyGrader(create_backbone("tiny"), 3)
    with pytest.raises(DisMixError, match="a CrossEntropyGrader without a method's name could not"):
        save_grader(nameless, tmp_path)
    assert not (tmp_path / MODEL).exists()


def own_backbone(out_dim=8):
    trunk = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.ReLU())
    return Backbone(trunk, "mine", out_dim, relu_out=True)


def test_a_backbone_of_ones_own_is_given_again(tmp_path):
    grader = trained("corn", backbone=own_backbone())
    save_grader(grader, tmp_path)
    with pytest.raises(DisMixError, match=r"backbone 'mine', which .*Grader.load\(path, backb"):
        Grader.load(tmp_path)
    loaded = Grader.load(tmp_path, backbone=own_backbone())
    assert torch.equal(loaded.predict(IMAGES).rank, grader.predict(IMAGES).rank)
    with pytest.raises(DisMixError, match=r"weights of another grader .*give backbone= if it had"):
        Grader.load(tmp_path, backbone=create_backbone("tiny"))


def test_backbones_say_what_their_trunk_must_give():
    with pytest.raises(DisMixError, match=r"is a Sequential, not a Backbone; wrap it: Backbone\("):
        made(backbone=torch.nn.Sequential())
    with pytest.raises(DisMixError, match=r"'mine' gives .* 8 features, and out_dim is 5; set out"):
        made(backbone=own_backbone(5)).predict(IMAGES)
    pooled = own_backbone()
    pooled.trunk.extend([torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()])
    with pytest.raises(DisMixError, match=r"gives \(9, 8\), not a map \(B, d, h, w\).*Unflatten"):
        made(backbone=pooled).predict(IMAGES)
    pooled.trunk.append(torch.nn.Unflatten(1, (8, 1, 1)))
    assert len(made(backbone=pooled).predict(IMAGES)) == 9


def test_missing_weights_are_told_as_python_takes_them(monkeypatch, tmp_path):
    monkeypatch.setenv("DISMIX_WEIGHTS", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(DisMixError, match=r'in Python, weights= also takes a file, "timm" .*"no'):
        made(backbone="resnet18")


@pytest.mark.parametrize("device", ["gpu", "cuda:77"])
def test_devices_that_are_not_there(device, tmp_path):
    save_grader(made(), tmp_path)
    with pytest.raises(DisMixError, match=f"there is no device '{device}' here; give \"cpu\""):
        Grader.load(tmp_path, device)


def test_paths_are_no_graders(tmp_path, pictures):
    told = "'runs/g' is of type str, no grader; give Grader.load"
    with pytest.raises(DisMixError, match=told):
        predict_files("runs/g", pictures)
    with pytest.raises(DisMixError, match=told):
        export_grader("runs/g", tmp_path / "m.pt2")
    with pytest.raises(DisMixError, match=told):
        save_grader("runs/g", tmp_path)
    (tmp_path / "m.csv").write_text("image,grade\npictures/0.png,0\npictures/1.png,1\n")
    with pytest.raises(DisMixError, match=told):
        predict_manifest("runs/g", read_manifest(tmp_path / "m.csv"))


def warned(grader, images):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        grader.predict(images)
    return [str(w.message) for w in caught]


def test_pixels_of_another_scale_are_told_once():
    unit = (IMAGES + 1) / 2
    (told,) = warned(grader := made(), unit)
    assert "pixels from" in told
    assert "images * 2 - 1" in told
    assert not warned(grader, unit)
    imagenet = (unit - 0.4) / 0.2
    assert "does not look like [-1, 1]" in warned(made(), imagenet)[0]
    for right in (IMAGES, torch.zeros(2, 3, 8, 8), ((IMAGES + 1) * 127.5).to(torch.uint8)):
        assert not warned(made(), right)


def test_images_of_another_size_are_told_once():
    grader = made()
    assert not warned(grader, IMAGES)
    grader.about = about_images(RANKS, 64)
    (told,) = warned(grader, IMAGES)
    assert told.startswith("these images are 32 x 32 px, and this grader learned from 64 x 64")
    assert not warned(grader, IMAGES)
    assert not warned(grader, torch.nn.functional.interpolate(IMAGES, (64, 64)))


def test_warnings_name_the_line_that_predicts():
    with pytest.warns(UserWarning, match="does not look like") as caught:
        made().predict((IMAGES + 1) / 2)
    assert caught[0].filename == __file__
