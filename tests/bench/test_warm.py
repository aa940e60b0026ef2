"""Many runs in one process: images are decoded once, first weights are read once."""

import torch
from safetensors.torch import save_file
from tests.bench.study import tiny_plan, tiny_study

import dismix.bench.warm as warm
from dismix.bench.runner import run_study
from dismix.bench.warm import KEPT, Warm
from dismix.graders.backbones import create_backbone


def test_images_and_weights_are_read_once_for_all_runs(tmp_path, monkeypatch):
    weights = tmp_path / "tiny.safetensors"
    save_file(create_backbone("tiny").trunk.state_dict(), weights)
    settings = {**tiny_plan().settings, "weights": str(weights), "epochs": 1}
    study, bench = tiny_study(
        tmp_path / "bench", settings=settings,
        factors={"grader": ["ce"], "mixer": ["none", "mixup"], "seed": [0, 1]},
    )  # fmt: skip
    calls = {"load_split": 0, "create_backbone": 0}
    for name in calls:
        whole = getattr(warm, name)

        def counted(*arguments, name=name, whole=whole, **options):
            calls[name] += 1
            return whole(*arguments, **options)

        monkeypatch.setattr(warm, name, counted)
    monkeypatch.setattr(warm, "WARM", Warm())
    assert run_study(study, bench, cpu=True).done == 4
    assert calls == {"load_split": 3, "create_backbone": 1}


def test_copies_of_a_backbone_do_not_share_weights(tmp_path):
    weights = tmp_path / "tiny.safetensors"
    save_file(create_backbone("tiny").trunk.state_dict(), weights)
    kept = Warm()
    first, second = (kept.backbone("tiny", str(weights)) for _ in range(2))
    with torch.no_grad():
        next(first.parameters()).zero_()
    assert next(second.parameters()).abs().sum() > 0
    assert kept.backbone("tiny", None) == "tiny"


def test_the_least_used_go_first():
    kept = Warm()
    for number in range(KEPT["engines"] + 1):
        kept.keep("engines", number, object)
        first = kept.keep("engines", 0, lambda: "made again")
    assert first != "made again"
    assert kept.keep("engines", 1, lambda: "made again") == "made again"
