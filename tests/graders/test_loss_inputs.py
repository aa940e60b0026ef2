"""What every loss refuses: shapes that broadcasting would take, and weights that are none."""

import pytest
import torch

from dismix.errors import DisMixError
from dismix.graders import losses
from dismix.graders.losses import (
    CLOCLoss,
    CornLoss,
    Gaussians,
    GOLLoss,
    LevelsLoss,
    LogitsLoss,
    MWRLoss,
    Ord2SeqLoss,
    POELoss,
    RhoRegressor,
    RnCLoss,
    SoftCrossEntropyLoss,
    SordLoss,
)
from dismix.graders.registry import create_grader
from dismix.labels import OrdinalTarget

C, B, D = 5, 8, 6
LABELS = torch.arange(B) % C


class POEOnLogits(POELoss):
    """Takes logits alone, so that it can be called as the others are."""

    def forward(self, logits, target, weights=None):
        same = torch.zeros(B, D)
        return super().forward(logits, Gaussians(same, same), target, weights)


#: The loss, and the shape that it wants, in numbers and in letters.
LOSSES = {
    "ce": (SoftCrossEntropyLoss(C), (B, C), "(B, C)"),
    "sord": (SordLoss(C), (B, C), "(B, C)"),
    "levels": (LevelsLoss(C), (B, C - 1), "(B, C-1)"),
    "corn": (CornLoss(C), (B, C - 1), "(B, C-1)"),
    "ord2seq": (Ord2SeqLoss(C), (B, 3, C), "(B, L, C)"),
    "poe": (POEOnLogits(C), (B, C), "(B, C)"),
    "poe draws": (POEOnLogits(C), (2, B, C), "(T, B, C)"),
    "gol": (GOLLoss(C, D), (B, D), "(B, D)"),
    "mwr": (MWRLoss(C, RhoRegressor(D, 16, 0.0), memory=0), (B, D), "(B, D)"),
    "rnc": (RnCLoss(C), (B, D), "(n, D)"),
    "cloc": (CLOCLoss(C), (B, D), "(B, D)"),
}
every_loss = pytest.mark.parametrize("name", list(LOSSES))


def given(shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def test_every_public_loss_is_here():
    public = {getattr(losses, name) for name in losses.__all__ if name.endswith("Loss")}
    assert public == {next(k for k in type(loss).__mro__ if k in public - {LogitsLoss})
                      for loss, _, _ in LOSSES.values()} | {LogitsLoss}  # fmt: skip


@every_loss
def test_outputs_of_another_shape_are_refused_by_name(name):
    loss, shape, letters = LOSSES[name]
    assert torch.isfinite(loss(given(shape), LABELS))
    batch = shape.index(B)
    wrong = [(*shape[:batch], count, *shape[batch + 1 :]) for count in (1, B - 1)]
    wrong += [shape[batch + 1 :], (2, 2, *shape)]
    if name not in ("mwr", "rnc", "cloc"):  # They take features of any width.
        wrong += [(*shape[:-1], 1), (*shape[:-1], shape[-1] + 1)]
    for other in wrong:
        with pytest.raises(DisMixError, match=r"(logits|features|embeddings) must be \(") as told:
            loss(given(other), LABELS)
        assert f"got {other}; here that is (" in str(told.value)
        if len(other) == len(shape):
            assert f"must be {letters}, got" in str(told.value)


@every_loss
def test_weights_are_one_number_an_image_and_not_negative(name):
    loss, shape, _ = LOSSES[name]
    output = given(shape)
    assert torch.isfinite(loss(output, LABELS, torch.ones(B)))
    for wrong in (torch.ones(B, 1), torch.ones(1), torch.ones(B - 1), torch.tensor(1.0)):
        with pytest.raises(DisMixError, match=r"weights must be \(B,\), .* here that is \(8,\)"):
            loss(output, LABELS, wrong)
    for value in (-1.0, float("nan"), float("inf")):
        weights = torch.ones(B)
        weights[3] = value
        with pytest.raises(DisMixError, match=rf"not negative, got {value:g} for image 3"):
            loss(output, LABELS, weights)
    with pytest.raises(DisMixError, match=r"got a list; give torch.as_tensor\(weights\)"):
        loss(output, LABELS, [1.0] * B)


def test_gaussians_are_one_an_image():
    same = torch.zeros(B, D)
    with pytest.raises(DisMixError, match=r"gaussians.log_variance must be \(B, D\), got \(1, 6"):
        POELoss(C)(given((B, C)), Gaussians(same, same[:1]), LABELS)


@pytest.mark.parametrize("name", ["ce", "sord", "levels", "corn", "ord2seq", "cloc"])
def test_compiled_losses_stay_whole(name):
    loss, shape, _ = LOSSES[name]
    # CLOC leaves out images of weight 0, at which a compiled step breaks anyway.
    weights = None if name == "cloc" else torch.linspace(0.0, 2.0, B)
    target = OrdinalTarget.from_labels(LABELS, C)
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    assert torch.equal(compiled(given(shape), target, weights), loss(given(shape), target, weights))


@pytest.mark.parametrize("method", ["ce", "sord", "or-cnn", "coral", "corn"])
def test_losses_read_logits_as_their_graders_do(method):
    grader = create_grader(method, num_ranks=C).eval()
    images = torch.rand(B, 3, 32, 32) * 2 - 1
    with torch.no_grad():
        logits, wanted = grader.logits(images), grader.grade(images)
    found = grader.loss.grades(logits)
    assert torch.equal(found.probabilities, wanted.probabilities)
    assert torch.equal(found.label, wanted.label)
    assert logits.shape[1] == grader.loss.width
    with pytest.raises(DisMixError, match=r"logits must be \(B, C"):
        grader.loss.grades(logits[:, 1:])


def test_law_of_levels_and_corn_by_hand():
    half = [[0.0, 0.0]]
    assert LevelsLoss(3).grades(torch.tensor(half)).probabilities.tolist() == [[0.5, 0.0, 0.5]]
    assert CornLoss(3).grades(torch.tensor(half)).probabilities[0].tolist() == pytest.approx(
        [0.5, 0.25, 0.25]
    )
