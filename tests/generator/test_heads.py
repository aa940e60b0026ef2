import pytest
import torch

from dismix.generator.heads import Perturbation, RankClassifier, draw_perturbation


@pytest.mark.parametrize("kind", ["flatten", "pool", "conv"])
def test_logits_have_a_gradient_into_the_codes(kind: str) -> None:
    codes = torch.randn(2, 4, 8, 8, requires_grad=True)
    logits = RankClassifier(5, 4, 8, kind)(codes)
    assert logits.shape == (2, 4)
    logits.square().sum().backward()
    assert codes.grad.abs().sum() > 0


def test_linear_kinds_are_linear_and_only_flatten_sees_places() -> None:
    a, b = torch.randn(2, 1, 4, 8, 8).unbind()
    for kind, sees_places in (("flatten", True), ("pool", False)):
        classify = RankClassifier(5, 4, 8, kind)
        torch.testing.assert_close(
            classify(0.3 * a + 0.7 * b), 0.3 * classify(a) + 0.7 * classify(b)
        )
        moved = torch.allclose(classify(a), classify(a.flip(2)), atol=1e-5)
        assert moved != sees_places


def test_perturbation_hides_the_drawn_share_and_scales_noise() -> None:
    rng = torch.Generator().manual_seed(0)
    codes = 5 * torch.randn(8, 4, 32, 32, generator=rng)
    hidden = draw_perturbation((8, 4, 32, 32), rng, dropout=0.25)
    out = hidden(codes)
    gone = (out == 0).all(dim=1)
    assert 0.23 < gone.float().mean() < 0.27
    assert torch.equal(out.movedim(1, -1)[~gone], codes.movedim(1, -1)[~gone])
    noisy = draw_perturbation((8, 4, 32, 32), rng, noise=0.1)
    assert ((noisy(codes) - codes).std() / codes.std()).item() == pytest.approx(0.1, rel=0.05)
    assert Perturbation()(codes) is codes


def test_perturbation_is_drawn_from_its_generator_and_lets_gradients_through() -> None:
    draws = [
        draw_perturbation((2, 4, 8, 8), torch.Generator().manual_seed(s), dropout=0.5, noise=1.0)
        for s in (1, 1, 2)
    ]
    codes = torch.randn(2, 4, 8, 8, requires_grad=True)
    assert torch.equal(draws[0](codes), draws[1](codes))
    assert not torch.equal(draws[0](codes), draws[2](codes))
    draws[0](codes).sum().backward()
    assert torch.equal(codes.grad, (~draws[0].hidden).float().expand(2, 4, 8, 8))
