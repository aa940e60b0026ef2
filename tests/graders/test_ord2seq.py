"""Ord2Seq: the tree, its targets, teaching and decoding."""

import math

import pytest
import torch
import torch.nn.functional as F

from dismix.errors import DisMixError
from dismix.graders.ord2seq import DecisionDecoder, Ord2SeqConfig
from dismix.graders.ord2seq_tree import Ord2SeqLoss, Tree, dichotomic_tree
from dismix.graders.plan import begin_stage, set_learning_rate
from dismix.graders.registry import create_grader
from dismix.graders.settings import TrainSettings
from dismix.labels import OrdinalTarget


@pytest.mark.parametrize("num_ranks", range(2, 11))
def test_tree_halves_neighbours_down_to_the_ranks(num_ranks):
    levels = dichotomic_tree(num_ranks)
    assert len(levels) == math.ceil(math.log2(num_ranks))
    assert levels[-1] == [[rank] for rank in range(num_ranks)]
    parents = [list(range(num_ranks))]
    for groups in levels:
        assert [rank for group in groups for rank in group] == list(range(num_ranks))
        for parent in parents:
            children = [group for group in groups if set(group) <= set(parent)]
            assert sum(len(group) for group in children) == len(parent)
            sizes = [len(group) for group in children]
            assert len(sizes) == min(2, len(parent))
            assert max(sizes) - min(sizes) <= 1
        parents = groups


def test_known_trees():
    assert dichotomic_tree(4)[0] == [[0, 1], [2, 3]]
    assert dichotomic_tree(8)[1] == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 5, 8])
def test_single_grades_give_the_masks_and_their_loss(num_ranks):
    levels = dichotomic_tree(num_ranks)
    labels = torch.arange(num_ranks)
    logits = torch.randn(num_ranks, len(levels), num_ranks)
    total = 0.0
    for b in range(num_ranks):
        for level, groups in enumerate(levels):
            own = next(group for group in groups if b in group)
            mask = torch.tensor([float(c in own) for c in range(num_ranks)])
            total += float(F.binary_cross_entropy_with_logits(logits[b, level], mask))
    assert float(Ord2SeqLoss(num_ranks)(logits, labels)) == pytest.approx(
        total / num_ranks, rel=1e-5
    )


def test_votes_are_shared_by_groups():
    tree, probs = Tree(5), torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.0]])
    targets = tree.targets(probs)
    assert torch.allclose(targets[0, 0], torch.tensor([0.6, 0.6, 0.6, 0.4, 0.4]))
    assert torch.allclose(targets[0, 1], torch.tensor([0.3, 0.3, 0.3, 0.4, 0.0]))
    assert torch.allclose(targets[0, 2], probs[0])
    for level in range(3):
        assert float(tree.shares(probs, level).sum()) == pytest.approx(1.0)


class Oracle(DecisionDecoder):
    """Answers each level with the mask of the true rank, which is all its tokens hold."""

    def __init__(self, num_ranks: int) -> None:
        super().__init__(num_ranks, 8, Ord2SeqConfig(encoder_layers=1, decoder_layers=1))
        self.heads = torch.nn.ModuleList(torch.nn.Identity() for _ in range(self.tree.depth))

    def _decode(self, steps, tokens):
        level = steps.shape[1] - 1
        mask = self.tree.targets(tokens[:, 0])[:, level]
        return (10 * mask - 5).unsqueeze(1).expand(-1, level + 1, -1)


@pytest.mark.parametrize("num_ranks", range(2, 11))
def test_decoding_an_oracle_returns_its_rank(num_ranks):
    truth = torch.eye(num_ranks).unsqueeze(1)
    oracle = Oracle(num_ranks)
    assert oracle.decide(truth)[:, -1].argmax(-1).tolist() == list(range(num_ranks))
    law = oracle.laws(truth)
    assert torch.allclose(law.sum(-1), torch.ones(num_ranks), atol=1e-5)
    assert law.argmax(-1).tolist() == list(range(num_ranks))


@pytest.mark.parametrize("num_ranks", [2, 3, 5, 8])
def test_the_law_is_the_product_along_every_path(num_ranks):
    torch.manual_seed(0)
    decoder = DecisionDecoder(num_ranks, 8, Ord2SeqConfig(dim=16, heads=2)).eval()
    tokens = decoder.encode(torch.randn(3, 8, 2, 2))
    levels = dichotomic_tree(num_ranks)
    law = decoder.laws(tokens)
    for image in range(3):
        for rank in range(num_ranks):
            # Teaching a grade's own path shows what is decided at each of its turns.
            shown = F.one_hot(torch.tensor([rank]), num_ranks).float()
            answers = decoder.teach(tokens[image : image + 1], shown)[0].sigmoid()
            product, parent = 1.0, [*range(num_ranks)]
            for level, groups in enumerate(levels):
                inside = [group for group in groups if set(group) <= set(parent)]
                shares = [float(answers[level, group].mean()) for group in inside]
                own = next(i for i, group in enumerate(inside) if rank in group)
                product *= shares[own] / sum(shares)
                parent = inside[own]
            assert float(law[image, rank]) == pytest.approx(product, rel=1e-4)


def test_a_large_group_does_not_win_by_its_size():
    class Doubtful(Oracle):
        def _decode(self, steps, tokens):
            level = steps.shape[1] - 1
            # 45 per cent for {0, 1}, 55 for {2}; told by the first level to be among the three.
            shares = torch.tensor([[0.99, 0.99, 0.99, 0.01, 0.01], [0.45, 0.45, 0.55, 0.01, 0.01]])
            answer = shares[min(level, 1)].logit()
            return answer.expand(len(tokens), level + 1, -1)

    law = Doubtful(5).laws(torch.zeros(1, 1, 5))
    assert law.argmax().item() == 2
    assert float(law[0, :2].sum()) == pytest.approx(0.99 * 0.45, abs=0.01)


def test_ruled_out_groups_cannot_win():
    tree = Tree(5)
    alive = torch.tensor([[1.0, 1.0, 1.0, 0.0, 0.0]])
    logits = torch.tensor([[-3.0, -3.0, -4.0, 5.0, 0.0]])
    assert tree.next_group(logits, 1).item() == 2
    assert tree.next_group(logits, 1, alive).item() == 0


def test_later_decisions_are_hidden_from_earlier_ones():
    torch.manual_seed(0)
    decoder = DecisionDecoder(8, 8, Ord2SeqConfig(dim=16, heads=2)).eval()
    tokens = decoder.encode(torch.randn(1, 8, 2, 2))
    low, high = (decoder.teach(tokens, F.one_hot(torch.tensor([y]), 8).float()) for y in (0, 7))
    assert torch.allclose(low[:, 0], high[:, 0], atol=1e-6)
    assert not torch.allclose(low[:, 1], high[:, 1], atol=1e-3)


def test_teaching_the_decided_path_gives_the_decided_logits():
    torch.manual_seed(0)
    decoder = DecisionDecoder(8, 8, Ord2SeqConfig(dim=16, heads=2)).eval()
    tokens = decoder.encode(torch.randn(6, 8, 2, 2))
    decided = decoder.decide(tokens)
    alive, group = None, None
    for level in range(2):
        group = decoder.tree.next_group(decided[:, level], level, alive)
        alive = decoder.tree.members(level)[group]
    path = F.one_hot(alive.argmax(-1), 8).float()
    assert torch.allclose(decoder.teach(tokens, path), decided, atol=1e-5)


def test_mixed_votes_teach_the_mean_or_a_path():
    target = OrdinalTarget.from_rank([0.0, 1.5, 3.0], 4)
    images = torch.randn(3, 3, 32, 32)
    losses = {}
    for teacher in ("mean", "sample"):
        grader = create_grader("ord2seq", num_ranks=4, teacher=teacher, dropout=0.0)
        grader.start_epoch(0)
        losses[teacher] = grader.training_loss(images, target, grader.stages[0])["loss"].item()
    assert losses["mean"] != losses["sample"]


@pytest.mark.parametrize("kind", ["softmax", "tree"])
def test_both_kinds_of_probabilities_are_laws(kind):
    grader = create_grader("ord2seq", num_ranks=5, probabilities=kind)
    found = grader.predict(torch.randn(4, 3, 32, 32))
    assert torch.allclose(found.probabilities.sum(-1), torch.ones(4), atol=1e-5)
    assert torch.equal(found.label, found.probabilities.argmax(-1))


def test_width_that_heads_cannot_share_is_refused():
    with pytest.raises(DisMixError, match="multiple of heads"):
        create_grader("ord2seq", num_ranks=5, dim=50)


@pytest.mark.parametrize("bias", [0.0, -40.0, -120.0])
def test_answers_next_to_zero_still_are_a_law(bias: float) -> None:
    torch.manual_seed(0)
    decoder = DecisionDecoder(5, 16, Ord2SeqConfig(encoder_layers=1, decoder_layers=1)).eval()
    with torch.no_grad():
        for head in decoder.heads:
            last = [part for part in head.modules() if isinstance(part, torch.nn.Linear)][-1]
            last.weight.zero_()
            last.bias.copy_(bias + torch.tensor([0.0, 0.0, 0.0, 3.0, 3.0]))
        law = decoder.laws(torch.randn(3, 4, 16))
    torch.testing.assert_close(law.sum(1), torch.ones(3))
    assert (law[:, 3:].sum(1) > 0.5).all()


@pytest.mark.parametrize(
    ("dim", "optimizer", "lr", "rate"),
    [
        (512, "adam", 1e-4, 1e-4),
        (512, "adam", 1e-3, 3e-4),
        (512, "sgd", 1e-2, 1e-2),
        (256, "adamw", 1e-3, 6e-4),
        (64, "adam", 1e-3, 1e-3),
    ],
)
def test_the_learning_rate_of_wide_transformers_is_bounded(dim, optimizer, lr, rate):
    grader = create_grader("ord2seq", num_ranks=3, dim=dim, encoder_layers=1, decoder_layers=1)
    settings = TrainSettings("ord2seq", lr=lr, optimizer=optimizer)
    made = begin_stage(grader, grader.stages[0], settings)
    set_learning_rate(made, lr)
    rates = {id(p): group["lr"] for group in made.param_groups for p in group["params"]}
    for name, parameter in grader.named_parameters():
        expected = rate if name.startswith("decoder.") else lr
        assert rates[id(parameter)] == pytest.approx(expected), name
