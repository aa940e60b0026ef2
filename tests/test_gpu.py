"""What only a GPU can show; skipped where there is none."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dismix.accelerators import make_accelerator
from dismix.background import background
from dismix.data.batches import Batches
from dismix.data.phantom import PhantomSpec
from dismix.data.phantom.build import build_phantom
from dismix.generator.checkpoint import load_training, save_training
from dismix.generator.config import GeneratorConfig
from dismix.generator.conv_relu import conv_relu, cudnn_fuses
from dismix.generator.fast_decode import FastDecoder
from dismix.generator.model import Generator
from dismix.generator.recipe_choice import choose_recipe
from dismix.generator.steps import Steps
from dismix.graders.base import Grader
from dismix.graders.settings import choose_settings
from dismix.graders.start_run import train_grader
from dismix.labels import OrdinalTarget
from dismix.mixing.dismix import DisMix
from dismix.mixing.encoding import encode_split
from tests.generator.toy import toy_recipe, toy_training
from tests.mixing.toy_run import make_run

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture
def no_waiting() -> Iterator[None]:
    """Turn every wait for the GPU into an error."""
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def _batches(count: int = 16) -> Batches:
    rng = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 1, 32, 32), dtype=torch.uint8, generator=rng)
    target = OrdinalTarget.from_labels(torch.arange(count) % 3, 3)
    return Batches(images.cuda(), target.to("cuda"), 8)


def test_a_step_of_the_generator_never_waits(no_waiting: None) -> None:
    torch.cuda.set_sync_debug_mode("default")
    training = toy_training(toy_recipe(mix=0.3, mix_realism=0.1, plain=0, epochs=9), device="cuda")
    steps, batches = Steps(training, make_accelerator()), _batches()

    def epoch(number: int) -> None:
        for step, batch in enumerate(batches):
            assert batch.target is not None
            steps(batch.images, batch.target.levels, number, step, 0.5)

    # The first steps warm up, then one is recorded.
    for number in range(3):
        epoch(number)
    torch.cuda.set_sync_debug_mode("error")
    epoch(3)


@pytest.mark.parametrize("graphs", [False, True])
def test_a_resumed_training_takes_its_next_step(tmp_path: Path, graphs: bool) -> None:
    recipe = toy_recipe(graphs=graphs)
    first, again = (toy_training(recipe, device="cuda") for _ in range(2))
    batch = next(iter(_batches()))
    assert batch.target is not None
    Steps(first, make_accelerator())(batch.images, batch.target.levels, 0, 0, 0.5)
    save_training(tmp_path, first.modules, first.optimizers, first.average, {"epoch": 1})
    load_training(tmp_path, again.modules, again.optimizers, again.average)
    for training in (first, again):
        Steps(training, make_accelerator())(batch.images, batch.target.levels, 0, 1, 0.5)
    for one, other in zip(first.model.parameters(), again.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_a_replayed_step_is_the_step(tmp_path: Path) -> None:
    plain, replayed = (
        toy_training(
            toy_recipe(adversary_steps=2, graphs=graphs, ema=0.9, plain=0.5, epochs=4),
            device="cuda",
        )
        for graphs in (False, True)
    )
    batches = _batches(32)
    for training in (plain, replayed):
        steps = Steps(training, make_accelerator())
        for epoch in range(4):
            batches.set_epoch(epoch)
            for step, batch in enumerate(batches):
                assert batch.target is not None
                steps(batch.images, batch.target.levels, epoch, step, 0.1 * epoch)
        recorded = [graph for graph in steps.graphs.values() if graph.graph is not None]
        assert len(recorded) == (2 if training.recipe.graphs else 0)
    for one, other in zip(plain.model.parameters(), replayed.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)


def test_the_papers_recipe_is_replayed_too() -> None:
    small = {"batch_size": 8, "epochs": 2, "nonordinal_codes": 64, "perceptual": 0}
    recipe = choose_recipe("paper", "tiny", small)
    assert recipe.graphs
    assert recipe.learned_weights
    training = toy_training(recipe, device="cuda")
    steps = Steps(training, make_accelerator())
    for epoch in range(4):
        for step, batch in enumerate(_batches(32)):
            assert batch.target is not None
            parts = steps(batch.images, batch.target.levels, epoch, step, 0.1)
    assert any(graph.graph is not None for graph in steps.graphs.values())
    assert parts["loss"].isfinite()


@pytest.mark.parametrize("arch", ["tiny", "light", "light-f16"])
def test_fused_convolutions_decode_the_same(arch: str) -> None:
    config = GeneratorConfig(num_ranks=5, arch=arch, image_size=64, nonordinal_codes=64)
    model = Generator.seeded(config, 0).eval().cuda()
    with torch.no_grad():
        codes = model.encode(torch.rand(4, model.in_channels, 64, 64, device="cuda") * 2 - 1)
        wanted = model.decode(codes)
    fast = FastDecoder(model, compiled=False)
    torch.testing.assert_close(fast(codes), wanted, rtol=0.05, atol=0.05)


def test_cudnn_fuses_here() -> None:
    assert cudnn_fuses(torch.device("cuda", 0), torch.bfloat16)
    assert not cudnn_fuses(torch.device("cuda", 0), torch.float32)


@pytest.mark.parametrize("added", [True, False])
@pytest.mark.parametrize("channels", [16, 3])
def test_a_fused_convolution_is_the_plain_one(added: bool, channels: int) -> None:
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(channels, channels, 3, padding=1).cuda()
    x, plus = (torch.randn(4, channels, 24, 24, device="cuda") for _ in range(2))
    wanted = torch.relu(conv(x) + plus if added else conv(x))
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        made = conv_relu(x, conv, plus if added else None)
    torch.testing.assert_close(made.float(), wanted, rtol=0.02, atol=0.05)


def test_the_pool_serves_without_waiting(tmp_path: Path, no_waiting: None) -> None:
    torch.cuda.set_sync_debug_mode("default")
    run = make_run(tmp_path)
    encode_split(run, cache=tmp_path / "cache")
    mixer = DisMix.load(run, pool=16, reuse=4, p=1.0, seed=0)
    images = torch.rand(4, 1, 32, 32, device="cuda") * 2 - 1
    target = OrdinalTarget.from_labels([0, 1, 2, 1], 5).to("cuda")
    with mixer:
        # The first call looks at the images and waits for its block; the next block is made.
        mixer(images, target)
        background().submit(lambda: None).result()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        made, probs = mixer(images, target)
        torch.cuda.set_sync_debug_mode("default")
    assert made.shape == images.shape
    assert probs.probs.shape == (4, 5)


def test_one_share_for_the_whole_batch() -> None:
    from dismix.mixing.mixup import Mixup

    torch.cuda.set_sync_debug_mode("default")
    images, labels = torch.rand(4, 3, 8, 8, device="cuda"), torch.tensor([0, 1, 2, 0])
    made, _ = Mixup(3, p=1.0, lam_mode="batch")(images, labels.cuda())
    wanted, _ = Mixup(3, p=1.0, lam_mode="batch")(images.cpu(), labels)
    torch.testing.assert_close(made.cpu(), wanted)


@pytest.mark.parametrize("method", ["poe", "gol", "mwr", "rnc", "ord2seq", "cloc"])
def test_graders_are_trained_and_judged_here(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What validation fits, cut points among it, meets tensors of the GPU and of the CPU."""
    monkeypatch.setenv("DISMIX_CACHE", str(tmp_path / "cache"))
    knees = PhantomSpec(size=32, train=48, val=30, test=12)
    build_phantom(knees, tmp_path / "knees")
    changes = {"backbone": "tiny", "epochs": 2, "batch_size": 16, "size": 32}
    settings = choose_settings(method, changes=changes)
    run = tmp_path / "run"
    train_grader(tmp_path / "knees" / "manifest.csv", run, settings)
    grader = Grader.load(run, "cuda")
    images = torch.zeros(3, 1, 32, 32, dtype=torch.uint8, device="cuda")
    assert grader.predict(images).label.shape == (3,)
