"""Mixers that look at a model, with every grader; and the benchmark that measures them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.graders.toy import SMALL

from dismix.data.phantom import PhantomSpec, build_phantom
from dismix.errors import DisMixError
from dismix.graders.mixed import loss_of, with_clean_loss
from dismix.graders.registry import GRADERS, create_grader
from dismix.graders.settings import choose_settings
from dismix.graders.start_run import train_grader
from dismix.labels import OrdinalTarget
from dismix.mixing.registry import create_mixer
from dismix.mixing.saliency import gradient_saliency

ROOT = Path(__file__).parents[2]
# The law of shares depends on it.
ALPHA = {"comixup": {"alpha": 1.0}}


def toy(method):
    grader = create_grader(method, backbone="tiny", num_ranks=4, seed=0, **SMALL.get(method, {}))
    images = torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return grader.train(), images, OrdinalTarget.from_labels([0, 1, 2, 3, 0, 2], 4)


@pytest.mark.parametrize("method", list(GRADERS))
def test_saliency_of_every_grader(method):
    grader, images, target = toy(method)
    before = {k: v.clone() for k, v in grader.state_dict().items() if isinstance(v, torch.Tensor)}
    maps = gradient_saliency(grader, images, target).maps
    assert maps.shape == (6, 32, 32)
    assert bool(maps.isfinite().all())
    assert bool((maps.flatten(1).amax(1) > 0).any())
    assert all(p.grad is None for p in grader.parameters())
    assert all(p.requires_grad for p in grader.parameters())
    assert grader.training
    for name, value in before.items():
        # Cut points that no training has fitted yet are NaN.
        assert torch.allclose(grader.state_dict()[name], value, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["puzzlemix", "comixup", "manifold_mixup", "alignmixup", "sumix"])
@pytest.mark.parametrize("method", ["ce", "poe"])
def test_a_training_step_of_a_grader(name, method):
    grader, images, target = toy(method)
    mix = create_mixer(name, 4, p=1.0)
    for _ in range(3):
        mixed, out = mix(images, target, model=grader)
        loss = grader.training_loss(mixed, out, grader.stages[-1])["loss"]
        grader.zero_grad()
        loss.backward()
    assert bool(torch.isfinite(loss))
    assert not out.clean.any()


@pytest.mark.parametrize("name", ["puzzlemix", "comixup"])
def test_clean_images_take_part_where_that_is_asked(name):
    grader, images, target = toy("ce")
    found = {}
    for weight in (0.0, 0.5):
        mix = create_mixer(name, 4, p=1.0, seed=0, clean_lam=weight, **ALPHA.get(name, {}))
        mixed, out = mix(images, target, model=grader, loss_fn=loss_of(grader.stages[-1]))
        parts = grader.training_loss(mixed, out, grader.stages[-1])
        found[weight] = with_clean_loss(parts, mix), parts["loss"], mix.last
    assert found[0.0][0]["loss"] is found[0.0][1]
    parts, mixed_loss, info = found[0.5]
    torch.testing.assert_close(parts["loss"], mixed_loss + 0.5 * info.clean_loss)
    parts["loss"].backward()
    assert bool(info.clean_loss > 0)
    alone = [p.grad.clone() for p in grader.parameters()]
    grader.zero_grad()
    mixed_loss = grader.training_loss(images, target, grader.stages[-1])["loss"]
    mixed_loss.backward()
    assert any(not torch.equal(a, p.grad) for a, p in zip(alone, grader.parameters(), strict=True))


def test_the_clean_loss_reaches_a_training(tmp_path):
    build_phantom(PhantomSpec(train=24, val=8, test=8, size=32), tmp_path / "data")
    small = {"backbone": "tiny", "weights": "none", "size": 32, "epochs": 1}
    settings, losses = choose_settings("ce", changes=small), []
    for weight in (0.0, 100.0):
        run = tmp_path / f"run{weight:g}"
        options = {"p": 1.0, "clean_lam": weight}
        train_grader(
            tmp_path / "data", run, settings, mix="puzzlemix", mix_options=options, cpu=True
        )
        losses.append(json.loads((run / "metrics.jsonl").read_text().splitlines()[0]))
    assert "clean" not in losses[0]
    assert losses[1]["loss"] > 50 * losses[0]["loss"]
    assert losses[1]["clean"] > 0


def test_weights_may_be_named_and_are_checked():
    assert create_mixer("comixup", 4, weights={"niter": 3}).weights.niter == 3
    assert create_mixer("puzzlemix", 4, weights={"beta": 2.0}).weights.beta == 2.0
    for wrong, said in (
        ({"nitr": 3}, "did you mean 'niter'"),
        ({"tau_type": "hrad"}, "did you mean 'hard'"),
        ({"niter": 0}, "give 1 or more"),
    ):
        with pytest.raises(DisMixError, match=said):
            create_mixer("comixup", 4, weights=wrong)
    with pytest.raises(DisMixError, match="spectral residual looks at no loss"):
        create_mixer("guidedmixup", 4, clean_lam=1.0)
    with pytest.raises(DisMixError, match="p_input is 7"):
        create_mixer("alignmixup", 4, p_input=7.0)


@pytest.mark.parametrize("name", ["puzzlemix", "comixup", "guidedmixup"])
def test_a_saliency_that_was_given_goes_before_the_model(name):
    grader, images, target = toy("ce")
    asked = []

    def look(pictures, _):
        asked.append(len(pictures))
        return pictures.mean(1).abs()

    create_mixer(name, 4, p=1.0, saliency_fn=look)(images, target, model=grader)
    assert asked


def test_sumix_refuses_graders_that_cannot_predict_yet():
    grader, images, target = toy("gol")
    with pytest.raises(DisMixError, match="another mixer"):
        create_mixer("sumix", 4, p=1.0)(images, target, model=grader)


@pytest.mark.slow
def test_the_benchmark_runs():
    command = [sys.executable, "benchmarks/mixer_cost.py", "--device", "cpu", "--batch", "4",
               "--size", "32", "--backbone", "tiny", "--steps", "1", "--warm", "1"]  # fmt: skip
    result = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=True)
    found = json.loads(result.stdout.splitlines()[-1])["found"]["cpu"]
    assert {"mixup", "puzzlemix", "comixup"} <= set(found["mixers"])
    assert found["mixers"]["puzzlemix"]["saliency"] > 0
