import pytest
import torch

from dismix.data.manifest import read_manifest
from dismix.data.phantom import PhantomSpec, build_phantom
from dismix.errors import DisMixError
from dismix.generator.images import load_split
from dismix.generator.judge import train_judge
from dismix.study.budget import Speed, choose, expected
from dismix.study.choices import Choices, Settled, settle
from dismix.study.planning import study_plan
from dismix.study.speed import _Ticks

CPU = Settled("cpu", "tiny", "tiny", 64)
SPEED = Speed(0.0005, 0.001, 0.03, 0.02, 0.002, "a machine")


def test_without_a_budget_lengths_are_usual_or_as_asked():
    usual = choose(Choices(), CPU, 300, SPEED)
    assert (usual.epochs, usual.generator_epochs, usual.repeats, usual.train) == (60, 39, 3, 204)
    asked = choose(Choices(epochs=5, generator_epochs=2, repeats=1), CPU, 300, SPEED)
    assert (asked.epochs, asked.generator_epochs, asked.repeats) == (5, 2, 1)


@pytest.mark.parametrize("minutes", [8, 15, 30, 90])
def test_a_budget_is_kept_and_used(minutes):
    found = choose(Choices(budget=minutes), CPU, 300, SPEED)
    assert found.seconds <= 60 * minutes
    if minutes < 60:
        assert found.seconds > 0.75 * 60 * minutes
    lengths = (found.epochs, found.generator_epochs, found.guide_steps)
    assert expected(SPEED, 5, found.train, lengths, found.repeats)[0] == pytest.approx(
        found.seconds
    )


def test_more_minutes_never_shorten_anything():
    found = [choose(Choices(budget=m), CPU, 300, SPEED) for m in (6, 10, 20, 40, 80, 160)]
    for name in ("epochs", "generator_epochs", "repeats", "guide_steps"):
        values = [getattr(one, name) for one in found]
        assert values == sorted(values), name
    # Longer than twice the usual length is not worth it.
    assert found[-1].epochs <= 120


def test_a_budget_in_which_nothing_is_learned_names_the_least():
    with pytest.raises(DisMixError) as caught:
        choose(Choices(budget=2), CPU, 10_000, SPEED)
    assert "2 minutes are too few for 10,000 images in 5 folds" in str(caught.value)
    least = int(str(caught.value).split("give ")[1].split()[0])
    assert choose(Choices(budget=least), CPU, 10_000, SPEED).seconds <= 60 * least


def test_ten_thousand_images_on_a_cpu_are_hours():
    assert choose(Choices(), CPU, 10_000, SPEED).seconds > 3600


def test_all_mixers_get_the_same_budget():
    plan = study_plan(Choices(), CPU, choose(Choices(), CPU, 300, SPEED), votes=True, speed=SPEED)
    assert plan.settings["epochs"] == 60
    assert plan.overrides == ()
    assert plan.factors[0]["mixer"] == ("none", "mixup", "dismix")
    assert plan.factors[0]["variability"] == ("own",)
    single = study_plan(Choices(), CPU, choose(Choices(), CPU, 300, SPEED), votes=False)
    assert single.factors[0]["labels"] == ("clean",)


def test_wrong_choices_are_one_line():
    for wrong, match in (
        ({"metric": "qwk"}, "no metric of single images"), ({"folds": 1}, "give 2 or more"),
        ({"budget": 5, "epochs": 3}, "either --budget or --epochs"),
        ({"budget": 1}, "--budget: 1 minutes are too few for any study; leave it out: --plan"),
        # Two points are meant; of 200 every mixer would fall short.
        ({"metric": "accuracy", "worth": 2}, "--worth: 2 is no gain in accuracy; give a share"),
        ({"worth": -0.1}, "--worth: -0.1 is no gain in mean error in grades; give 0 or more"),
        ({"worth": float("nan")}, "nan is no gain"),
        ({"changes": {"grader": "cloc"}}, "'grader' is fixed by a study; use --grader"),
        ({"changes": {"seed": "0,1"}}, "use --repeats"),
        ({"changes": {"fold": "1/5"}}, "use --folds"),
        # What is announced, estimated and warned of hangs on these.
        ({"changes": {"epochs": "3"}}, "use --epochs"),
        ({"changes": {"generator.epochs": "1"}}, "use --generator-epochs"),
        ({"changes": {"backbone": "tiny"}}, "use --backbone"),
        *(({"changes": {name: "x"}}, "`dismix bench run` takes it")
          for name in ("mixer", "labels", "p", "variability", "scarcity", "policies", "ablation")),
    ):  # fmt: skip
        with pytest.raises(DisMixError, match=match):
            Choices(**wrong)


def test_a_size_that_generators_cannot_have_is_refused_before_a_trial():
    with pytest.raises(DisMixError, match="tiny: image size 30 is not a multiple of 8; use 32"):
        settle(Choices(size=30, cpu=True))


def test_a_gpu_without_weights_gets_tiny_networks_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setenv("DISMIX_WEIGHTS", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    found = settle(Choices())
    assert (found.device, found.arch, found.backbone, found.size) == ("cuda", "tiny", "tiny", 64)
    assert "set DISMIX_WEIGHTS" in found.notes[0]
    for name in ("vgg16_imagenet_features_and_lpips_heads", "tf_efficientnet_lite0_imagenet"):
        (tmp_path / f"{name}.safetensors").touch()
    found = settle(Choices())
    assert (found.arch, found.backbone, found.size) == ("light", "vgg16", 256)
    assert "start from nothing" in found.notes[0]
    (tmp_path / "taef2_f8c32_autoencoder.safetensors").touch()
    assert settle(Choices()).notes == ()
    plan = study_plan(Choices(), found, choose(Choices(), found, 300, SPEED), votes=True)
    assert plan.generator["weights"] == "auto"


def test_photographs_on_a_cpu_get_a_guide_that_reads_them(monkeypatch, tmp_path):
    monkeypatch.setenv("DISMIX_WEIGHTS", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    asked = Choices(backbone="tf_efficientnet_lite0", cpu=True)
    assert not settle(asked).guided
    (tmp_path / "tf_efficientnet_lite0_imagenet.safetensors").touch()
    found = settle(asked)
    assert (found.arch, found.size, found.guided, found.notes) == ("tiny", 128, True, ())
    plan = study_plan(asked, found, choose(asked, found, 300, SPEED), votes=True)
    assert plan.mixers["dismix"]["blend"] == 1
    assert plan.generator["settings"]["guide_kind"] == "lite0"
    # Tiny graders keep what is measured on drawn pictures, and are told of the other way.
    tiny = settle(Choices(cpu=True))
    assert (tiny.backbone, tiny.size, tiny.guided) == ("tiny", 64, False)
    assert "--backbone tf_efficientnet_lite0" in tiny.notes[0]
    plan = study_plan(Choices(), tiny, choose(Choices(), tiny, 300, SPEED), votes=True)
    assert "blend" not in plan.mixers["dismix"]
    assert "guide_kind" not in plan.generator["settings"]
    # Who chose tiny ones knows.
    assert settle(Choices(cpu=True, backbone="tiny")).notes == ()


def test_a_judge_is_not_taken_for_a_training(tmp_path):
    ticks = _Ticks(None)
    for stage in ("training | ce", "generator training", "teaching the judge", "training | ce"):
        for done in (1, 2, 3):
            ticks(stage, done, 3)
    assert len(ticks.runs) == 3
    told = []
    build_phantom(PhantomSpec(train=12, val=0, test=0, size=32), tmp_path)
    split = load_split(read_manifest(tmp_path), "train", 32, device=torch.device("cpu"))
    train_judge(split, torch.device("cpu"), epochs=1, kind="conv",
                progress=lambda stage, *_: told.append(stage))  # fmt: skip
    assert {*told} == {"teaching the judge"}
