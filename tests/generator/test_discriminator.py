import pytest
import torch

from dismix.generator.discriminator import Discriminator

NORMS = ["batch", "group", "instance", "spectral", "none"]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("channels", "layers", "side"), [(1, 3, 6), (3, 2, 14)])
def test_shapes_and_gradients_of_both_heads(
    norm: str, channels: int, layers: int, side: int
) -> None:
    judge = Discriminator(5, channels, width=8, num_layers=layers, norm=norm)
    images = torch.randn(2, channels, 64, 64, requires_grad=True)
    output = judge(images)
    assert output.realism.shape == (2, 1, side, side)
    assert output.rank_logits.shape == (2, 4)
    (output.realism.square().sum() + output.rank_logits.square().sum()).backward()
    assert images.grad.abs().sum() > 0
    assert all(p.grad is not None for p in judge.parameters())


def test_full_size_on_the_meta_device() -> None:
    with torch.device("meta"):
        output = Discriminator(5)(torch.zeros(2, 3, 256, 256))
    assert output.realism.shape == (2, 1, 30, 30)


def test_parameter_names_and_count_of_the_published_discriminator() -> None:
    # Written out from latent-diffusion: three 4x4 convolutions and a last one to a single channel.
    judge = Discriminator(5, 3, num_layers=2)
    trunk = {k: tuple(v.shape) for k, v in judge.state_dict().items() if k.endswith("weight")}
    assert trunk == {
        "main.0.weight": (64, 3, 4, 4),
        "main.2.weight": (128, 64, 4, 4),
        "main.3.weight": (128,),
        "main.5.weight": (256, 128, 4, 4),
        "main.6.weight": (256,),
        "main.8.weight": (1, 256, 4, 4),
        "rank_head.weight": (4, 256),
    }
    assert "main.2.bias" not in judge.state_dict()
    assert 0.018 < judge.main[5].weight.std() < 0.022


def test_rank_head_reads_the_mean_of_the_shared_features() -> None:
    judge = Discriminator(5, 1, width=8, norm="group").eval()
    images = torch.randn(2, 1, 64, 64)
    features = judge.features(images)
    expected = features.mean(dim=(2, 3)) @ judge.rank_head.weight.T + judge.rank_head.bias
    output = judge(images)
    torch.testing.assert_close(output.rank_logits, expected)
    torch.testing.assert_close(output.realism, judge.main[-1](features))


@pytest.mark.parametrize("norm", NORMS)
def test_only_batch_norm_mixes_the_samples_of_a_batch(norm: str) -> None:
    torch.manual_seed(0)
    judge = Discriminator(5, 1, width=8, norm=norm)
    images = torch.randn(4, 1, 64, 64)
    if norm == "spectral":
        judge.eval()  # Training refines the norm's estimate between the two calls.
    together, alone = judge(images).realism[:1], judge(images[:1]).realism
    assert torch.allclose(together, alone, atol=1e-5) == (norm != "batch")


def test_autocast() -> None:
    judge = Discriminator(5, 1, width=8, norm="group")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = judge(torch.randn(2, 1, 64, 64))
    assert torch.isfinite(output.rank_logits).all()
