"""What every mixer promises, whichever it is: one contract over the whole registry."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.base import Mixer
from dismix.mixing.editors import IdentityEditor
from dismix.mixing.info import MixInfo
from dismix.mixing.registry import MIXERS, create_mixer

RANKS = 5
# Most tests look at the mixer alone: what mixes inside a model never meets it.
pytestmark = pytest.mark.filterwarnings("ignore:.*no training pass went through layer")


# Mixers that need more than images and targets say here how a test gets them.
def make_diffusemix(channels: int, **options: Any) -> Mixer:
    return create_mixer("diffusemix", RANKS, editor=IdentityEditor(), fractals=4, **options)


MAKERS: dict[str, Callable[..., Mixer]] = {"diffusemix": make_diffusemix}


def tiny_model(channels: int = 3) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(64, RANKS),
    )


def make(name: str, channels: int = 3, **options: Any) -> Mixer:
    if name in MAKERS:
        return MAKERS[name](channels=channels, **options)
    torch.manual_seed(0)
    return create_mixer(name, RANKS, model=tiny_model(channels), **options)


def batch(size: int = 7, channels: int = 3, height: int = 32, width: int = 32):
    generator = torch.Generator().manual_seed(size)
    images = torch.rand(size, channels, height, width, generator=generator) * 2 - 1
    return images, torch.randint(RANKS, (size,), generator=generator)


@pytest.fixture(params=list(MIXERS))
def name(request) -> str:
    return request.param


@pytest.fixture(autouse=True)
def _trained_generator(request, name, monkeypatch) -> None:
    """Give DisMix, and only it, a toy run."""
    if name == "dismix":
        run = request.getfixturevalue("toy_run")
        monkeypatch.setitem(
            MAKERS, name, lambda channels, **options: create_mixer(name, RANKS, run=run, **options)
        )


def test_labels_come_out_soft_and_float32(name):
    images, labels = batch()
    soft = torch.nn.functional.one_hot(labels, RANKS).float()
    for given in (labels, soft, soft.double()):
        out, targets = make(name, p=1.0)(images, given)
        assert out.shape == images.shape
        assert out.dtype == images.dtype
        assert targets.shape == (7, RANKS)
        assert targets.dtype == torch.float32
        assert torch.allclose(targets.sum(1), torch.ones(7), atol=1e-5)
        assert bool((targets >= 0).all())
        assert bool(out.isfinite().all())


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_any_batch_and_any_channels(name, size, channels):
    images, labels = batch(size, channels)
    mix = make(name, channels, p=1.0)
    if mix.channels and channels not in mix.channels:
        with pytest.raises(DisMixError, match=f"have {channels} channels, not 1 or 3; give grey"):
            mix(images, labels)
        return
    out, targets = mix(images, labels)
    assert out.shape == images.shape
    assert targets.shape == (size, RANKS)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_channels_that_come_last_are_refused(name, channels):
    images, labels = batch(4, channels)
    with pytest.raises(DisMixError, match=r"look like \(B, H, W, channels\); give .*permute"):
        make(name, channels, p=1.0)(images.permute(0, 2, 3, 1), labels)


def test_narrow_feature_maps_are_no_channels(name):
    if name not in ("mixup", "cutmix", "resizemix"):
        pytest.skip("the others look at pictures")
    maps = torch.rand(4, 16, 4, 4)
    assert make(name, 16, p=1.0)(maps, torch.arange(4))[0].shape == maps.shape


@pytest.mark.parametrize("shape", [(32, 48), (35, 29)])
def test_any_size(name, shape):
    images, labels = batch(4, 3, *shape)
    out, _ = make(name, p=1.0)(images, labels)
    assert out.shape == images.shape


def test_any_memory_format(name):
    images, labels = batch(6)
    last = images.contiguous(memory_format=torch.channels_last)
    plain, _ = make(name, p=1.0)(images, labels)
    other, _ = make(name, p=1.0)(last, labels)
    strided, _ = make(name, p=1.0)(images.flip(3).flip(3).transpose(2, 3).transpose(2, 3), labels)
    assert torch.allclose(plain, other, atol=1e-4)
    assert torch.allclose(plain, strided, atol=1e-4)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_the_memory_format_is_kept(name, p):
    images, labels = batch(6)
    last = images.contiguous(memory_format=torch.channels_last)
    out, _ = make(name, p=p)(last, labels)
    assert out.stride() == last.stride()
    plain, _ = make(name, p=p)(images, labels)
    assert plain.is_contiguous()


def test_never_in_place(name):
    images, labels = batch()
    before = images.clone(), labels.clone()
    for p in (0.0, 0.5, 1.0):
        make(name, p=p)(images, labels)
    assert torch.equal(images, before[0])
    assert torch.equal(labels, before[1])
    assert not images.requires_grad


@pytest.mark.parametrize("how", ["eval", "disabled", "p=0"])
def test_identity(name, how):
    images, labels = batch()
    mix = make(name, p=0.0 if how == "p=0" else 1.0)
    if how == "eval":
        mix.eval()
    elif how == "disabled":
        mix.enabled = False
    out, targets, info = mix(images, labels, return_info=True)
    assert torch.equal(out, images)
    assert torch.equal(targets.argmax(1), labels)
    assert torch.equal(targets.amax(1), torch.ones(7))
    assert not info.mixed.any()
    assert torch.equal(info.index, torch.arange(7))


def test_target_in_target_out(name):
    images, labels = batch()
    target = OrdinalTarget.from_labels(labels, RANKS)
    mix = make(name, p=0.5)
    _, out = mix(images, target)
    assert isinstance(out, OrdinalTarget)
    mixed = mix.last.mixed
    assert 0 < mixed.sum() < 7
    assert torch.equal(out.clean, ~mixed)
    assert torch.equal(out.probs[~mixed], target.probs[~mixed])
    _, tensor = make(name, p=0.5)(images, labels)
    assert torch.equal(out.probs, tensor)


def test_rows_left_alone_are_untouched(name):
    images, labels = batch(8)
    mix = make(name, p=0.5)
    out, _, info = mix(images, labels, return_info=True)
    assert 0 < info.mixed.sum() < 8
    assert torch.equal(out[~info.mixed], images[~info.mixed])
    assert torch.equal(info.lam[~info.mixed], torch.ones(int((~info.mixed).sum())))


def test_info_agrees_with_targets(name):
    images, labels = batch(8)
    mix = make(name, p=1.0)
    _, targets, info = mix(images, labels, return_info=True)
    assert info is mix.last
    assert info.method == name
    assert info.lam.shape == (8,)
    assert bool(((info.lam >= 0) & (info.lam <= 1 + 1e-6)).all())
    if (info.index >= 0).all():
        ranks = info.source_weights() @ labels.float()
        assert torch.allclose(targets @ torch.arange(float(RANKS)), ranks, atol=1e-4)
    if info.mask is not None:
        assert info.mask.shape == (8, 1, 32, 32)
    for rule in ("dominant", "sample", "rounded"):
        hard = info.hard_labels(rule, torch.Generator().manual_seed(0))
        assert hard.shape == (8,)
        assert hard.dtype == torch.long


@pytest.mark.parametrize("form", ["cumulative", "rank", "unimodal"])
def test_forms_keep_the_expected_rank(name, form):
    images, labels = batch(8)
    _, soft = make(name, p=1.0)(images, labels)
    _, other = make(name, p=1.0, target=form)(images, labels)
    rank = soft @ torch.arange(float(RANKS))
    if form == "cumulative":
        assert other.shape == (8, RANKS - 1)
        other = other.sum(1)
    elif form == "unimodal":
        assert bool(((other > 1e-6).sum(1) <= 2).all())
        other = other @ torch.arange(float(RANKS))
    assert torch.allclose(other, rank, atol=1e-4)


def test_same_seed_same_mixes_and_state_dict_resumes(name):
    images, labels = batch()
    first, second = make(name, p=1.0, seed=3), make(name, p=1.0, seed=3)
    assert torch.equal(first(images, labels)[0], second(images, labels)[0])
    state = copy.deepcopy(first.state_dict())
    after, again = first(images, labels)[0], make(name, p=1.0, seed=9)
    again.load_state_dict(state)
    assert torch.equal(again(images, labels)[0], after)
    assert list(state) == ["_extra_state"]


def test_global_random_state_is_left_alone(name):
    images, labels = batch()
    mix = make(name, p=1.0)
    before = torch.get_rng_state()
    mix(images, labels)
    assert torch.equal(torch.get_rng_state(), before)


def test_draws_are_replayable(name):
    images, labels = batch()
    mix = make(name, p=1.0)
    target = OrdinalTarget.from_labels(labels, RANKS)
    draws = mix.draw(images, target)
    state = mix.get_extra_state()
    one, two = (mix.replay(images, target, draws, mix.access()) for _ in range(2))
    assert torch.equal(one.images, two.images)
    assert torch.equal(one.target.probs, two.target.probs)
    assert torch.equal(mix.get_extra_state(), state)


def test_rate_is_p_and_not_p_squared(name):
    images, labels = batch(50, 1, 16, 16)
    mix, target = make(name, 1, p=0.3), OrdinalTarget.from_labels(labels, RANKS)
    count = sum(len(mix.draw(images, target).rows) for _ in range(20))
    assert abs(count - 300) < 3 * (1000 * 0.3 * 0.7) ** 0.5
    _, _, info = mix(images, labels, return_info=True)
    assert 0 < info.mixed.sum() < 30


def test_batch_mode_is_all_or_nothing(name):
    images, labels = batch(6)
    mix = make(name, p=0.5, p_mode="batch")
    counts = {int(mix(images, labels, return_info=True)[2].mixed.sum()) for _ in range(12)}
    assert counts == {0, 6}


def test_works_under_autocast_and_in_bfloat16(name):
    images, labels = batch()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, targets = make(name, p=1.0)(images, labels)
        assert targets.dtype == torch.float32
        assert out.dtype == images.dtype
        half, targets = make(name, p=1.0)(images.bfloat16(), labels)
    assert half.dtype == torch.bfloat16
    assert targets.dtype == torch.float32


@pytest.fixture
def double_default():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_the_default_type_changes_nothing(name, kind, request):
    """Images and model are of one type, as in any training; the rest is the mixer's."""
    images, labels = batch()
    images, model = images.to(kind), tiny_model().to(kind)
    kinds: dict[str, Any] = {"model": model}
    if name == "diffusemix":
        kinds |= {"editor": IdentityEditor(), "fractals": 4}
    if name == "dismix":
        kinds = {"run": request.getfixturevalue("toy_run")}

    def mixed():
        mix = create_mixer(name, RANKS, p=0.75, **kinds)
        return mix(images, labels, return_info=True)

    wanted = mixed()
    request.getfixturevalue("double_default")
    found = mixed()
    for one, other in zip(wanted[:2], found[:2], strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    assert torch.equal(wanted[2].lam, found[2].lam)


def test_a_compiled_step_mixes_as_a_plain_one(name):
    images, labels = batch()
    mix, plain = make(name, p=1.0), make(name, p=1.0)
    step = torch.compile(lambda x, y: mix(x, y)[0] * 2, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(step(images, labels), plain(images, labels)[0] * 2)


def test_copies_and_pickles(name):
    images, labels = batch()
    mix = make(name, p=1.0)
    twin = copy.deepcopy(mix)
    assert torch.equal(mix(images, labels)[0], twin(images, labels)[0])
    reborn = pickle.loads(pickle.dumps(mix))
    assert torch.equal(mix(images, labels)[0], reborn(images, labels)[0])


def test_walks_like_a_module(name):
    seen: list[nn.Module] = []
    mix = make(name)
    mix.apply(seen.append)
    assert mix in seen
    assert not list(mix.parameters())
    assert repr(mix).startswith(f"{type(mix).__name__}(")
    assert f"p={mix.p:g}, " in repr(mix)


def test_wrong_input_is_one_line(name):
    images, labels = batch()
    mix = make(name)
    with pytest.raises(DisMixError, match="floating point"):
        mix((images * 255).to(torch.uint8), labels)
    with pytest.raises(DisMixError, match="scale whole-number pixels first"):
        mix((images * 255).to(torch.uint8), labels)
    with pytest.raises(DisMixError, match="images are no tensor but of type ndarray; give torch"):
        mix(images.numpy(), labels)
    with pytest.raises(DisMixError, match=r"\(3, 32, 32\); give a batch; images.unsqueeze"):
        mix(images[0], labels[:1])
    with pytest.raises(DisMixError, match="leave empty batches out"):
        mix(images[:0], labels[:0])
    with pytest.raises(DisMixError, match="7 images came with 6 targets"):
        mix(images, labels[:6])
    with pytest.raises(DisMixError, match=r"outside 0\.\.4"):
        mix(images, labels + 5)
    with pytest.raises(DisMixError, match="p must lie"):
        make(name, p=1.5)
    with pytest.raises(DisMixError, match="target form"):
        make(name, target="softt")
    with pytest.raises(DisMixError, match=f"'{name}' has no option 'p_mod'; did you mean 'p_mode'"):
        make(name, p_mod="batch")
    with pytest.raises(DisMixError, match="setting 'p': 'half' is no number"):
        make(name, p="half")
    with pytest.raises(DisMixError, match="of the CPU, got Generator; give torch"):
        make(name, generator=np.random.default_rng(0))


def test_gradients_reach_the_images_of_plain_mixers(name):
    if name not in ("mixup", "cutmix", "resizemix"):
        pytest.skip("only for mixers that are formulas of the pixels")
    images, labels = batch()
    leaf = images.clone().requires_grad_()
    out, _ = make(name, p=1.0)(leaf, labels)
    gradient: Tensor = torch.autograd.grad(out.sum(), leaf)[0]
    assert bool(gradient.isfinite().all())
    assert float(gradient.sum()) == pytest.approx(images.numel(), rel=0.6)


# Three pixels, and weighted sums of expected ranks and of ratios, of one batch: a mixer whose
# mixes or labels change must say so in the change log.
GOLDEN: dict[str, tuple[float, ...]] = {
    "alignmixup": (0.107, 0.474, -0.638, 0.147, 95.864, 18.464),
    "comixup": (0.107, -0.266, -0.789, -0.571, 98.688, 9.406),
    "cutmix": (0.107, 0.594, -0.148, 0.509, 93.324, 25.727),
    "diffusemix": (0.107, 0.276, -0.319, 0.213, 104.000, 36.000),
    "filtermix": (0.107, 0.621, -0.592, 0.204, 104.000, 36.000),
    "guidedmixup": (0.107, 0.367, 0.270, 0.234, 104.498, 19.500),
    "manifold_mixup": (0.107, 0.474, -0.638, 0.147, 95.864, 18.464),
    "mixup": (0.107, 0.632, -0.486, -0.247, 95.271, 16.106),
    "ordinal_manifold_mixup": (0.107, 0.538, -0.023, 0.427, 105.996, 21.886),
    "puzzlemix": (0.107, 0.447, -0.845, -0.038, 86.402, 16.775),
    "resizemix": (0.107, 0.594, -0.148, 0.204, 95.996, 25.288),
    "sumix": (0.107, 0.594, -0.148, 0.509, 93.331, 25.727),
}


def golden(name: str) -> tuple[float, ...]:
    images, labels = batch(8)
    out, targets, info = make(name, p=0.75, seed=11)(images, labels, return_info=True)
    return (
        *out[[0, 2, 4, 7], [0, 1, 2, 0], [5, 20, 30, 16], [7, 9, 30, 16]].tolist(),
        float(targets @ torch.arange(float(RANKS)) @ torch.arange(1.0, 9.0)),
        float(info.lam @ torch.arange(1.0, 9.0)),
    )


def test_golden_values(name):
    if name == "dismix":
        pytest.skip("its mixes depend on a generator; tests of its own hold it")
    assert golden(name) == pytest.approx(GOLDEN[name], abs=2e-3)


def test_half_ranks_go_up():
    halves = OrdinalTarget.from_rank([0.5, 1.5, 2.5, 3.0], num_ranks=4)
    assert MixInfo.unchanged("mixup", halves).hard_labels("rounded").tolist() == [1, 2, 3, 3]
