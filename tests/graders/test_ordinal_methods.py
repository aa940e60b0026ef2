"""What holds for all six ordinal methods, beyond the contract of every grader."""

import pytest
import torch

from dismix.errors import DisMixError
from dismix.graders.neighbours import nearest_neighbours
from dismix.graders.ord2seq_tree import Tree
from dismix.graders.registry import GRADERS, create_grader
from dismix.labels import OrdinalTarget

SIX = ("poe", "gol", "mwr", "rnc", "ord2seq", "cloc")
SMALL = {
    "poe": {"dim": 16, "samples": 4}, "gol": {"dim": 16}, "mwr": {"hidden": 16},
    "ord2seq": {"encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0},
}  # fmt: skip


def make(name: str, num_ranks: int = 5):
    grader = create_grader(name, num_ranks=num_ranks, **SMALL.get(name, {}))
    for module in grader.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return grader


def losses(grader, images, target, weights=None):
    """One loss a stage, from the same draws."""
    found = []
    for stage in grader.stages:
        grader.on_stage_start(stage)
        grader.start_epoch(0)
        shown = images if stage.views == 1 else torch.stack([images] * stage.views, 1)
        found.append(grader.training_loss(shown, target, stage, weights))
    return found


@pytest.mark.parametrize("name", SIX)
def test_identical_images_give_finite_losses_and_gradients(name):
    """Distances of zero, whose square roots have no slope, between equal and other grades."""
    grader, target = make(name), OrdinalTarget.from_labels([0, 2, 2, 4], 5)
    images = torch.randn(1, 3, 32, 32).expand(4, -1, -1, -1)
    for parts in losses(grader, images, target):
        grader.zero_grad()
        parts["loss"].backward()
        assert all(torch.isfinite(value).all() for value in parts.values())
        gradients = [p.grad for p in grader.parameters() if p.grad is not None]
        assert gradients
        assert all(torch.isfinite(g).all() for g in gradients)


@pytest.mark.parametrize("num_ranks", [2, 3, 8])
@pytest.mark.parametrize("name", SIX)
def test_other_numbers_of_ranks(name, num_ranks):
    grader = make(name, num_ranks)
    target = OrdinalTarget.from_labels(torch.arange(2 * num_ranks) % num_ranks, num_ranks)
    images = torch.randn(len(target), 3, 32, 32)
    assert all(torch.isfinite(parts["loss"]) for parts in losses(grader, images, target))
    grader.eval()
    with torch.no_grad():
        grader.fit_reference([(images, target)])
    grades = grader.predict(images)
    assert torch.allclose(grades.probabilities.sum(1), torch.ones(len(target)), atol=1e-5)
    assert grades.label.min() >= 0
    assert grades.label.max() < num_ranks


@pytest.mark.parametrize("name", SIX)
def test_equal_weights_change_nothing_and_others_do(name):
    torch.manual_seed(0)
    grader = make(name)
    target = OrdinalTarget.from_labels([0, 1, 2, 3, 4, 0, 1, 2, 3, 4], 5)
    images = torch.randn(10, 3, 32, 32)
    plain = losses(grader, images, target)
    equal = losses(grader, images, target, torch.full((10,), 3.0))
    other = losses(grader, images, target, torch.linspace(0.1, 2.0, 10))
    nothing = losses(grader, images, target, torch.zeros(10))
    for a, b, c, d in zip(plain, equal, other, nothing, strict=True):
        assert b["loss"].item() == pytest.approx(a["loss"].item(), rel=1e-4)
        assert c["loss"].item() != pytest.approx(a["loss"].item(), rel=1e-5)
        assert d["loss"].item() == 0.0


@pytest.mark.parametrize("name", SIX)
def test_losses_stay_float32_under_autocast(name):
    torch.manual_seed(0)
    grader = make(name)
    target = OrdinalTarget.from_rank([0.0, 1.0, 2.5, 3.0, 4.0, 0.0], 5)
    images = torch.randn(6, 3, 32, 32)
    full = losses(grader, images, target)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = losses(grader, images, target)
    for a, b in zip(full, half, strict=True):
        assert all(value.dtype == torch.float32 for value in b.values())
        assert b["loss"].item() == pytest.approx(a["loss"].item(), rel=0.1)
    grader.eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        grader.fit_reference([(images, target)])
        grades = grader.predict(images)
    assert grades.probabilities.dtype == torch.float32


def test_autocast_names_the_same_neighbours():
    torch.manual_seed(0)
    # Points of a narrow cone, as trained embeddings are: bfloat16 cannot tell them apart.
    cone = torch.nn.functional.normalize(torch.randn(300, 64) + 3, dim=-1)
    expected = nearest_neighbours(cone[:40], cone, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(nearest_neighbours(cone[:40], cone, 5), expected)


def test_autocast_leaves_laws_and_reference_places_exact():
    torch.manual_seed(0)
    logits, tree = torch.randn(6, 3, 5), Tree(5)
    grader, images = make("mwr"), torch.randn(12, 3, 32, 32)
    votes = OrdinalTarget.from_rank((4 * torch.rand(12)).tolist(), 5)
    grader.eval()
    expected = tree.read_shares(logits[:, 1], 1)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(tree.read_shares(logits[:, 1], 1), expected)
        grader.fit_reference([(images, votes)])
    assert {t.dtype for t in grader.reference.values()} == {torch.float32}
    places = votes.rank
    for place in grader.reference["low_place"].flatten():
        assert (places - place).abs().min() < 1e-5


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("mwr", {"scheme": "arithmetical"}),
        ("rnc", {"head": "classify"}),
        ("ord2seq", {"teacher": "means"}),
        ("cloc", {"reduction": "sum"}),
    ],
)
def test_unknown_choice_is_named_with_what_there_is(name, wrong):
    with pytest.raises(DisMixError, match=rf"setting '{next(iter(wrong))}'.*(did you mean|choose)"):
        create_grader(name, num_ranks=5, **wrong)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("poe", {"samples": 0}),
        ("gol", {"points": 1}),
        ("gol", {"neighbours": (0, 3)}),
        ("gol", {"neighbours": ()}),
        ("gol", {"dim": 1}),
        ("mwr", {"pairs": 0}),
        ("rnc", {"temperature": 0.0}),
        ("rnc", {"encode_share": 1.0}),
        ("ord2seq", {"heads": 0}),
        ("cloc", {"joint_share": 0.0}),
        ("sord", {"metric": "cubed"}),
    ],
)
def test_numbers_that_make_no_grader_are_named(name, wrong):
    with pytest.raises(DisMixError, match=rf"setting '{next(iter(wrong))}'"):
        create_grader(name, num_ranks=5, **wrong)


@pytest.mark.parametrize("name", SIX)
def test_presets_make_the_method(name):
    presets = GRADERS[name].presets
    assert set(presets) == {"reference", "dismix"}
    assert (presets["dismix"].epochs, presets["dismix"].batch_size) == (200, 64)
    for preset in presets.values():
        grader = create_grader(name, num_ranks=5, **{**preset.hparams, **SMALL.get(name, {})})
        assert sum(stage.share for stage in grader.stages) == pytest.approx(1.0)
