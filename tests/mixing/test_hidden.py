"""Mixers inside a network: one pass, the right rows, the right features."""

import copy
import warnings

import pytest
import torch
from torch import nn

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.alignmixup import AlignDraws, AlignMixup, align_features, transport_plan
from dismix.mixing.hooks import hidden_layers, spread_layers
from dismix.mixing.manifold_mixup import ManifoldMixup, OrdinalManifoldMixup
from dismix.mixing.targets import smoothed, unimodal


def net() -> nn.Sequential:
    torch.manual_seed(0)
    stage = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU())
    return nn.Sequential(stage, nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def pictures(batch=6):
    return torch.rand(batch, 1, 12, 12, generator=torch.Generator().manual_seed(batch))


def test_the_hidden_layer_is_mixed_once():
    model, images = net(), pictures()
    mix = ManifoldMixup(4, layers=["0"], include_input=False, p=0.5, model=model)
    out, targets, info = mix(images, torch.tensor([0, 1, 2, 3, 0, 1]), return_info=True)
    assert torch.equal(out, images)
    assert 0 < info.mixed.sum() < 6
    first = model(images)
    with torch.no_grad():
        model.eval()
        h = model[0](images)
        lam = info.lam.view(-1, 1, 1, 1)
        expected = model[1:](lam * h + (1 - lam) * h[info.index])
        plain = model(images)
        model.train()
    assert torch.allclose(first, expected, atol=1e-6)
    assert not torch.allclose(first, plain, atol=1e-4)
    assert torch.allclose(model(images), plain, atol=1e-6)
    rank = torch.tensor([0.0, 1, 2, 3, 0, 1])
    mean = info.lam * rank + (1 - info.lam) * rank[info.index]
    assert torch.allclose(targets @ torch.arange(4.0), mean, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (ManifoldMixup, {"layers": ["0"], "include_input": False}),
        (AlignMixup, {"layer": "0", "p_input": 0.0}),
    ],
)
def test_the_memory_format_is_kept_inside(kind, options):
    model = net().to(memory_format=torch.channels_last)
    seen = []
    model[1].register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    mix = kind(4, p=1.0, model=model, **options)
    images = pictures().contiguous(memory_format=torch.channels_last)
    plain = model.eval()(images)
    mixed, _ = mix(images, torch.arange(6) % 4)
    assert not torch.allclose(model.train()(mixed), plain)
    assert seen[1].stride() == seen[0].stride()
    assert not seen[1].is_contiguous()


def test_a_hook_never_met_is_taken_back():
    model, images = net(), pictures()
    mix = ManifoldMixup(4, layers=["0"], include_input=False, p=1.0)
    mix(images, torch.arange(6) % 4, model=model)
    with pytest.warns(UserWarning, match="no training pass went through layer '0'"):
        mix(images, torch.arange(6) % 4, model=model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mix(images, torch.arange(6) % 4, model=model)
        assert len(model[0]._forward_hooks) == 1
        mix.eval()
        mix(images, torch.arange(6) % 4, model=model)
    assert len(model[0]._forward_hooks) == 0


@pytest.mark.parametrize("kind", [ManifoldMixup, AlignMixup])
def test_gradient_checkpointing_that_goes_past_a_layer_is_told(kind):
    from dismix._compat import import_torchvision

    import_torchvision()
    import timm

    torch.manual_seed(0)
    model, images = timm.create_model("resnet18", num_classes=4), torch.rand(2, 3, 32, 32)
    options = {"include_input": False} if kind is ManifoldMixup else {"p_input": 0.0}
    mix = kind(4, p=1.0, model=model, **options)

    def step():
        model(mix(images, torch.tensor([0, 1]))[0])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            step()
        copy.deepcopy(mix)
    model.set_grad_checkpointing(True)
    step()
    with pytest.warns(UserWarning, match=r"layer 'layer\d' .* checkpointing switched off"):
        step()


@pytest.mark.parametrize("kind", [ManifoldMixup, AlignMixup])
def test_a_copy_leaves_the_hook_of_the_original(kind):
    model, images = net().train(), pictures()
    options = {"include_input": False} if kind is ManifoldMixup else {"p_input": 0.0}
    outputs = []
    for copied in (False, True):
        mix = kind(4, p=1.0, model=model, seed=3, **options)
        made, _ = mix(images, torch.arange(len(images)) % 4)
        if copied:
            copy.deepcopy(mix)
        outputs.append(model(made).detach())
    assert torch.equal(*outputs)


def test_evaluation_is_never_mixed():
    model, images = net(), pictures()
    plain = model.eval()(images)
    mix = ManifoldMixup(4, layers=["0"], include_input=False, p=1.0)
    mix(images, torch.arange(6) % 4, model=model)
    assert torch.equal(model(images), plain)
    model.train()
    assert not torch.allclose(model(images), plain)


@pytest.mark.parametrize("kind", [ManifoldMixup, AlignMixup])
def test_views_of_an_image_show_the_same_mix(kind):
    model, images = net(), pictures()
    options = {"layers": ["1"], "include_input": False} if kind is ManifoldMixup else {"p_input": 0}
    mix = kind(4, p=1.0, **options)
    mix(images, torch.arange(6) % 4, model=model)
    twice = model(images.repeat_interleave(2, 0))
    assert torch.allclose(twice[0::2], twice[1::2], atol=1e-6)
    mix = kind(4, p=1.0, **options)
    mix(images, torch.arange(6) % 4, model=model)
    assert torch.allclose(model(images), twice[0::2], atol=1e-5)


@pytest.mark.parametrize("kind", [ManifoldMixup, AlignMixup])
def test_a_frozen_layer_of_a_model_in_training_is_mixed(kind):
    """Otherwise labels would be mixed and features not."""
    model, images = net(), pictures()
    model[0].eval()
    model[1].eval()
    plain = model(images)
    options = {"include_input": False} if kind is ManifoldMixup else {"p_input": 0.0}
    kind(4, p=1.0, **options)(images, torch.arange(6) % 4, model=model)
    assert not torch.allclose(model(images), plain, atol=1e-5)
    assert torch.equal(model(images), plain)


def test_wrapped_models(monkeypatch):
    model, images = net(), pictures()
    mix = ManifoldMixup(4, p=1.0, include_input=False)
    with pytest.raises(DisMixError, match=r"use model.compile\(\) instead"):
        mix(images, torch.arange(6) % 4, model=torch.compile(model, backend="eager"))
    model.compile(backend="eager")
    plain = model(images)
    for _ in range(2):
        mix(images, torch.arange(6) % 4, model=model)
        assert not torch.allclose(model(images), plain, atol=1e-5)

    class Wrapper(nn.Module):
        """As far as names go, what distributed training wraps round a model."""

        def __init__(self, module):
            super().__init__()
            self.module = module

    monkeypatch.setattr(nn.parallel, "DistributedDataParallel", Wrapper)
    inner = net()
    plain = inner(images)
    for mixer in (mix, AlignMixup(4, p=1.0, p_input=0.0)):
        mixer(images, torch.arange(6) % 4, model=Wrapper(inner))
        assert not torch.allclose(inner(images), plain, atol=1e-5)


def test_all_places_are_drawn():
    model, images = net(), pictures()
    mix = ManifoldMixup(4, layers=["0", "1"], p=1.0)
    # Nothing passes through the model here.
    mix._warned = True
    met = set()
    for _ in range(40):
        out, _ = mix(images, torch.arange(6) % 4, model=model)
        armed = [n for n in ("0", "1") if model[int(n)]._forward_hooks]
        assert torch.equal(out, images) == bool(armed)
        met.add(armed[0] if armed else "input")
    assert met == {"0", "1", "input"}


def test_wrong_layers_are_named():
    model, images = net(), pictures()
    with pytest.raises(DisMixError, match="no layer 'stage9'"):
        ManifoldMixup(4, layers=["stage9"], include_input=False, p=1.0)(
            images, torch.arange(6) % 4, model=model
        )
    with pytest.raises(DisMixError, match="needs a model whose features it mixes, and got none"):
        ManifoldMixup(4, p=1.0)(images, torch.arange(6) % 4)
    mix = ManifoldMixup(4, layers=["0"], include_input=False, p=1.0)
    mix(images, torch.arange(6) % 4, model=model)
    with pytest.raises(DisMixError, match="expected a tensor of 6 images"):
        model(images[:3])


def test_layers_are_found():
    assert hidden_layers(net()) == ["0", "1"]
    from dismix._compat import import_torchvision

    import_torchvision()
    import timm

    with torch.device("meta"):
        resnet = timm.create_model("resnet18", num_classes=5)
        vgg = timm.create_model("vgg11", num_classes=5)
    assert hidden_layers(resnet)[-1] == "layer4"
    assert spread_layers(hidden_layers(resnet), 2) == ["layer1", "layer3"]
    assert all(name.startswith("features.") for name in hidden_layers(vgg))


def test_ordinal_manifold_pairs_near_ranks_with_one_peak():
    labels = torch.tensor([0, 4, 1, 3, 0, 4, 2, 2])
    mix = OrdinalManifoldMixup(5, p=1.0, model=net())
    mix._warned = True
    images = pictures(8)
    for _ in range(10):
        _, targets, info = mix(images, labels, return_info=True)
        assert int((labels[info.index] - labels).abs().max()) <= 1
        assert bool(((targets > 1e-6).sum(1) <= 2).all())
    spread = OrdinalManifoldMixup(5, p=1.0, model=net(), smoothing=0.5)(images, labels)[1]
    assert bool(((spread > 1e-4).sum(1) >= 3).any())
    assert torch.allclose(spread.sum(1), torch.ones(8), atol=1e-5)


def test_target_helpers_leave_clean_rows():
    target = OrdinalTarget.from_probs(torch.tensor([[0.5, 0.0, 0.5], [0.5, 0.0, 0.5]]))
    rows = torch.tensor([True, False])
    assert unimodal(target, rows).probs.tolist() == [[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]]
    assert torch.equal(smoothed(target, rows, 1.0).probs[1], target.probs[1])
    assert smoothed(target, rows, 0.0) is target


def test_transport_plan_has_uniform_marginals():
    g = torch.Generator().manual_seed(0)
    a, b = torch.rand(3, 5, 9, generator=g), torch.rand(3, 5, 9, generator=g)
    plan = transport_plan(a, b, eps=0.1, max_iter=500, stop=1e-4)
    assert torch.allclose(plan.sum(1), torch.full((3, 9), 1 / 9), atol=1e-3)
    assert torch.allclose(plan.sum(2), torch.full((3, 9), 1 / 9), atol=1e-3)


def test_transport_plan_against_plain_sinkhorn():
    g = torch.Generator().manual_seed(1)
    a, b = torch.rand(1, 4, 6, generator=g), torch.rand(1, 4, 6, generator=g)
    cost = ((a[0].T[:, None] - b[0].T[None]) ** 2).sum(2)
    kernel = torch.exp(-cost.double() / 0.5)
    v = torch.ones(6, dtype=torch.float64)
    for _ in range(500):
        u = (1 / 6) / (kernel @ v)
        v = (1 / 6) / (kernel.T @ u)
    plain = (u[:, None] * kernel * v).float()
    found = transport_plan(a, b, eps=0.5, max_iter=500, stop=0.0)[0]
    assert torch.allclose(found, plain, atol=1e-5)


def test_alignment_undoes_a_shift():
    """A partner that is the same picture turned round lies exactly over the image again."""
    g = torch.Generator().manual_seed(0)
    one = torch.rand(1, 8, 3, 3, generator=g) * 20
    features = torch.cat([one, one.flip(2, 3)])
    for toss, expected in ((True, one), (False, one.flip(2, 3))):
        draws = AlignDraws(torch.tensor([0]), torch.tensor([1]), torch.tensor([0.3]),
                           torch.tensor([False]), False, torch.tensor([toss]))  # fmt: skip
        out = align_features(features, draws, 0.1, 100)
        assert torch.allclose(out[:1], expected, atol=1e-3)
        assert torch.equal(out[1], features[1])


@pytest.mark.parametrize("toss", [True, False])
@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0])
def test_moved_features_are_means_before_sinkhorn_has_converged(toss, scale):
    """A channel that is one everywhere stays so: no position gets stronger or weaker."""
    features = torch.rand(6, 16, 4, 4, generator=torch.Generator().manual_seed(0)) * scale
    features[:, 0] = 1.0
    rows, partner = torch.arange(3), torch.arange(3, 6)
    draws = AlignDraws(rows, partner, torch.full((3,), 0.3), torch.zeros(3, dtype=torch.bool),
                       False, torch.full((3,), toss))  # fmt: skip
    out = align_features(features, draws, 0.1, 100)[:3].flatten(2)
    assert torch.allclose(out[:, 0], torch.ones(3, 16), atol=1e-5)
    own, other = features[rows].flatten(2), features[partner].flatten(2)
    plan = transport_plan(own, other)
    if scale == 10.0:
        assert float((plan.sum(2) * 16 - 1).abs().max()) > 0.1
    plan = plan / plan.sum(2 if toss else 1, keepdim=True)
    stays, comes = (own, other @ plan.mT) if toss else (own @ plan, other)
    assert torch.allclose(out, 0.3 * stays + 0.7 * comes, rtol=1e-3, atol=1e-4)


def test_alignmixup_mixes_input_or_last_layer():
    model, images = net(), pictures()
    mix = AlignMixup(4, p=1.0, model=model, seed=3)
    kinds = set()
    for _ in range(20):
        out, _ = mix(images, torch.arange(6) % 4)
        kinds.add(torch.equal(out, images))
        loss = model(out).sum()
        loss.backward()
    assert kinds == {True, False}
    assert bool(model[0][0].weight.grad.isfinite().all())
