"""DiffuseMix: editors, cache, seam, fractal, labels; a stand-in for the diffusion pipeline."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from dismix.errors import DisMixError
from dismix.mixing import editors
from dismix.mixing.diffusemix import DiffuseMix, FilterMix, seam_masks, spoiled
from dismix.mixing.editors import (
    FILTERS,
    CachedEditor,
    DiffusersEditor,
    FilterEditor,
    IdentityEditor,
    content_key,
)
from dismix.mixing.fractals import fractal, fractal_like


class Inverting:
    """Turns black into white, and counts how many images it was asked for."""

    name = "inverting"

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, images, prompts):
        self.count += len(images)
        return 1 - images


def pictures(batch=4, channels=3, size=64):
    return torch.rand(batch, channels, size, size, generator=torch.Generator().manual_seed(0))


def test_blend_is_exact():
    images = pictures() * 2 - 1
    mix = DiffuseMix(3, editor=Inverting(), p=1.0, fractals=3)
    out, targets, info = mix(images, torch.tensor([0, 1, 2, 0]), return_info=True)
    draws = DiffuseMix(3, editor=Inverting(), p=1.0, fractals=3).draw(images, info.sources)
    pixels = images * 0.5 + 0.5
    own = seam_masks(draws.layout, 64, 64, 20)
    halves = own * pixels + (1 - own) * (1 - pixels)
    expected = 0.8 * halves + 0.2 * fractal_like(pixels, draws.fractal)
    assert torch.allclose(out, expected * 2 - 1, atol=1e-5)
    assert torch.equal(targets, F.one_hot(torch.tensor([0, 1, 2, 0]), 3).float())
    assert bool(info.mixed.all())
    assert torch.allclose(info.mask, own * 0.8)


def test_seam_is_a_ramp_of_20_pixels():
    masks = seam_masks(torch.arange(4), 64, 48, 20)
    right = masks[0, 0, 0]
    assert int(((right > 0) & (right < 1)).sum()) == 20
    assert float(right[0]) == 1.0
    assert float(right[-1]) == 0.0
    assert torch.allclose(right.diff()[15:33], torch.full((18,), -1 / 20), atol=1e-6)
    assert float(masks[1, 0, 0, 5]) == 1.0
    assert float(masks[1, 0, -1, 5]) == 0.0
    assert torch.allclose(masks[2], 1 - masks[0])
    assert torch.allclose(masks[3], 1 - masks[1])
    assert torch.allclose(masks.mean((1, 2, 3)), torch.full((4,), 0.5), atol=1e-5)


def test_all_layouts_and_prompts_are_drawn():
    seen = []

    class Listening(IdentityEditor):
        def __call__(self, images, prompts):
            seen.extend(prompts)
            return images

    mix = DiffuseMix(3, editor=Listening(), p=1.0, prompts=["a", "b", "c"], fractals=2)
    layouts = set()
    for _ in range(10):
        mix(pictures() * 2 - 1, torch.zeros(4, dtype=torch.long))
        layouts |= set(mix.draw(pictures(), mix.last.sources).layout.tolist())
    assert set(seen) == {"a", "b", "c"}
    assert layouts == {0, 1, 2, 3}


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_spoiled_edits_are_thrown_away(value):
    class Empty(IdentityEditor):
        def __call__(self, images, prompts):
            return torch.full_like(images, value)

    images = pictures() * 2 - 1
    mix = DiffuseMix(3, editor=Empty(), p=1.0, fractal_alpha=0.0)
    out, _ = mix(images, torch.zeros(4, dtype=torch.long))
    assert torch.allclose(out, images, atol=1e-6)
    assert not spoiled(pictures()).any()


def test_a_cache_hit_skips_the_editor(tmp_path):
    editor = Inverting()
    cached = CachedEditor(editor, tmp_path)
    images = pictures()
    first = cached(images, ["x"] * 4)
    assert editor.count == 4
    again = cached(images, ["x"] * 4)
    assert editor.count == 4
    assert torch.equal(first, again)
    assert torch.allclose(first, 1 - images, atol=1 / 255)
    cached(images, ["x", "x", "x", "y"])
    assert editor.count == 5
    cached(images + 0.1, ["x"] * 4)
    assert editor.count == 9
    only = CachedEditor(None, tmp_path, name="inverting")
    assert torch.equal(only(images, ["x"] * 4), first)
    with pytest.raises(DisMixError, match="4 of 4 edited images are not there"):
        only(images, ["z"] * 4)


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_the_cache_keeps_any_channels(tmp_path, channels):
    cached = CachedEditor(IdentityEditor(), tmp_path)
    images = pictures(2, channels, 16)
    assert torch.allclose(cached(images, ["x", "x"]), images, atol=1 / 255)


def test_a_broken_file_in_the_cache_is_named(tmp_path):
    cached = CachedEditor(IdentityEditor(), tmp_path)
    images = pictures(1)
    cached(images, ["x"])
    cached.path(images[0], "x").write_bytes(b"not a picture")
    assert cached(images, ["x"]).shape == images.shape
    with pytest.raises(DisMixError, match="cannot be read"):
        CachedEditor(IdentityEditor(), tmp_path)(images, ["x"])


def test_memory_of_the_cache_is_bounded(tmp_path):
    cached = CachedEditor(IdentityEditor(), tmp_path, keep=3)
    images = pictures(6, 1, 8)
    for _ in range(2):
        assert torch.allclose(cached(images, ["x"] * 6), images, atol=1 / 255)
    assert len(cached._kept) == 3


def test_the_mixer_uses_the_cache(tmp_path):
    editor = Inverting()
    mix = DiffuseMix(3, editor=editor, p=1.0, prompts=["one"], cache_dir=tmp_path, fractals=2)
    images = pictures() * 2 - 1
    for _ in range(3):
        mix(images, torch.zeros(4, dtype=torch.long))
    assert editor.count == 4


def test_keys_follow_the_pixels():
    image = (pictures(1)[0] * 255).round() / 255
    assert content_key(image) == content_key(image + 1e-4)
    assert content_key(image) != content_key(1 - image)


def test_fractals_fill_and_differ():
    made = [fractal(128, seed) for seed in range(12)]
    fill = torch.stack([(m.amax(0) > 0).float().mean() for m in made])
    assert float(fill.min()) > 0.05
    assert float(fill.mean()) > 0.1
    assert float((made[0] - made[1]).abs().mean()) > 0.01
    assert all(float(m.min()) >= 0 and float(m.max()) <= 1 for m in made)
    grey = fractal_like(torch.zeros(2, 1, 30, 40), torch.tensor([0, 1]))
    assert grey.shape == (2, 1, 30, 40)


class FakePipeline:
    """Has the call of StableDiffusionInstructPix2PixPipeline."""

    def __init__(self) -> None:
        self.calls = []

    def to(self, device):
        return self

    def __call__(self, prompt, image, generator, output_type, **options):
        assert output_type == "pt"
        assert len(prompt) == len(image) == len(generator)
        self.calls.append(options)
        noise = [torch.rand(3, 32, 32, generator=g) for g in generator]
        return SimpleNamespace(images=torch.stack(noise))


def test_diffusers_editor_calls_the_pipeline():
    pipeline = FakePipeline()
    editor = DiffusersEditor(pipeline, steps=3, device="cpu")
    images = pictures(2, 1)
    made = editor(images, ["darker", "darker"])
    assert made.shape == images.shape
    assert torch.equal(made, editor(images, ["darker", "darker"]))
    assert not torch.equal(made[0], made[1])
    assert pipeline.calls[0] == {
        "guidance_scale": 4.0, "image_guidance_scale": 1.5, "num_inference_steps": 3
    }  # fmt: skip
    with pytest.raises(DisMixError, match="1 or 3 channels"):
        editor(pictures(1, 4), ["x"])


def fake_pipeline(value, kind=FakePipeline):
    pipeline = kind()
    pipeline.unet = torch.nn.PReLU(init=value)
    pipeline.vae = torch.nn.Linear(1, 1).requires_grad_(False)
    pipeline.vae.weight.fill_(0.5)
    pipeline.vae.bias.fill_(0.25)
    return pipeline


def test_pipelines_of_other_weights_do_not_share_a_cache(tmp_path):
    images = pictures(1, 1)
    made = [DiffusersEditor(fake_pipeline(v), steps=3, device="cpu") for v in (0.1, 0.2, 0.1)]
    first, second, again = (CachedEditor(editor, tmp_path).path(images[0], "x") for editor in made)
    assert first != second
    assert first == again
    half = fake_pipeline(0.1)
    half.unet.half()
    assert DiffusersEditor(half, steps=3, device="cpu").name == made[0].name
    named = DiffusersEditor(fake_pipeline(0.1), steps=3, device="cpu", name="pix2pix")
    assert named.name == "pix2pix-g4-i1.5-s3-0"
    kept = {DiffusersEditor(FakePipeline(), device="cpu", name=n).name for n in ("one", "two")}
    assert len(kept) == 2


def test_pipelines_without_weights_are_told_apart_by_their_folders(tmp_path, monkeypatch):
    monkeypatch.setattr(editors, "load_pipeline", lambda folder, dtype: FakePipeline())
    names = [
        DiffusersEditor(tmp_path / part / "pix2pix", device="cpu").name for part in ("a", "b", "a")
    ]
    assert names[0] == names[2] != names[1]
    assert all(name.startswith("pix2pix-") for name in names)


def test_missing_editors_are_named(tmp_path):
    with pytest.raises(DisMixError, match="needs an editor"):
        DiffuseMix(3)
    with pytest.raises(DisMixError, match="no saved InstructPix2Pix pipeline"):
        DiffuseMix(3, editor=tmp_path / "nowhere")


def test_real_pipeline_end_to_end(tmp_path):
    """A random InstructPix2Pix of a few thousand weights, saved and read back."""
    pytest.importorskip("diffusers")
    pytest.importorskip("transformers")
    from tests.mixing.tiny_pipeline import save_tiny_pipeline

    save_tiny_pipeline(tmp_path / "pix2pix")
    editor = DiffusersEditor(tmp_path / "pix2pix", steps=2, device="cpu")
    images = pictures(2)
    assert torch.equal(editor(images, ["a", "b"]), editor(images, ["a", "b"]))


@pytest.mark.parametrize("name", list(FILTERS))
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_filters_stay_in_range(name, channels):
    images = pictures(2, channels, 16)
    made = FilterEditor()(images, [name, name])
    assert made.shape == images.shape
    assert float(made.min()) >= 0
    assert float(made.max()) <= 1
    if not (channels == 1 and name in ("warm", "cool")):
        assert float((made - images).abs().mean()) > 0.005


def test_one_prompt_as_text_is_one_prompt():
    from dismix.mixing.editors import FILTERS
    from dismix.mixing.registry import create_mixer

    name = next(iter(FILTERS))
    assert create_mixer("filtermix", 3, prompts=name).prompts == (name,)


def test_filtermix_does_not_call_itself_diffusemix():
    mix = FilterMix(3, p=1.0, fractals=2)
    mix(pictures() * 2 - 1, torch.zeros(4, dtype=torch.long))
    assert mix.last.method == "filtermix"
    with pytest.raises(DisMixError, match="unknown filter 'sunset'"):
        FilterMix(3, p=1.0, prompts=["sunset"])(
            pictures() * 2 - 1, torch.zeros(4, dtype=torch.long)
        )


@pytest.mark.parametrize("mean", [(0.485, 0.456, 0.406), [0.5], 0.4])
def test_a_normalisation_of_each_channel(mean):
    std = (0.229, 0.224, 0.225) if len(torch.tensor(mean).flatten()) == 3 else 0.25
    unit, labels = pictures(), torch.zeros(4, dtype=torch.long)
    shift, scale = (torch.tensor(v).view(-1, 1, 1) for v in (mean, std))
    mix = FilterMix(3, p=1.0, fractals=2, mean=mean, std=std)
    out, _ = mix((unit - shift) / scale, labels)
    plain, _ = FilterMix(3, p=1.0, fractals=2)(unit * 2 - 1, labels)
    assert torch.allclose(out * scale + shift, plain * 0.5 + 0.5, atol=1e-5)
    kept = DiffuseMix(3, p=1.0, editor=IdentityEditor(), fractal_alpha=0.0, mean=mean, std=std)
    assert torch.allclose(
        kept((unit - shift) / scale, labels)[0], (unit - shift) / scale, atol=1e-5
    )


def test_a_normalisation_that_cannot_be_is_told():
    labels = torch.zeros(4, dtype=torch.long)
    with pytest.raises(DisMixError, match="mean has 2 numbers for images of 3 channels"):
        FilterMix(3, p=1.0, mean=(0.5, 0.5))(pictures() * 2 - 1, labels)
    with pytest.raises(DisMixError, match="std is 0"):
        FilterMix(3, std=0)
    mix = FilterMix(3, p=1.0, fractals=2)
    with pytest.raises(DisMixError, match=r"to 25\d, far outside of \[-1, 1\]"):
        mix(pictures() * 255, labels)
    with pytest.warns(UserWarning, match="does not look like"):
        mix(pictures() * 4, labels)
