"""Mixers that look at a model, with every grader; and the benchmark that measures them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.graders.toy import SMALL

from dismix.errors import DisMixError
from dismix.graders.registry import GRADERS, create_grader
from dismix.labels import OrdinalTarget
from dismix.mixing.registry import create_mixer
from dismix.mixing.saliency import gradient_saliency

ROOT = Path(__file__).parents[2]


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
        assert torch.equal(grader.state_dict()[name], value)


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
