"""RankMixup's loss and SUMix's ratio against slow loops."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dismix.errors import DisMixError
from dismix.mixing.comixup import CoMixup
from dismix.mixing.manifold_mixup import ManifoldMixup
from dismix.mixing.mixup import Mixup
from dismix.mixing.puzzlemix import PuzzleMix
from dismix.mixing.rankmixup import RankMixupLoss, ndcg_loss, ranking_loss
from dismix.mixing.saliency import spectral_saliency
from dismix.mixing.sumix import SUMix, corrected_ratio


def scores(seed, batch=6, ranks=4):
    return torch.randn(batch, ranks, generator=torch.Generator().manual_seed(seed)) * 3


def soft(seed, batch=6, ranks=4):
    return F.softmax(scores(seed, batch, ranks), 1)


def test_ranking_loss_against_a_loop():
    clean, mixed, target = scores(0), scores(1), soft(2)
    target[2] = torch.tensor([0.0, 1.0, 0.0, 0.0])
    slow = 0.0
    for i in range(6):
        if float(target[i].max()) < 1:
            slow += max(0.0, float(mixed[i].max() - clean[i].max()) + 2.0) / 6
    assert float(ranking_loss(clean, mixed, target, 2.0)) == pytest.approx(slow, abs=1e-5)


def test_ndcg_loss_against_a_loop():
    clean, views, targets = scores(0), [scores(k) for k in (1, 2, 3)], [soft(k) for k in (4, 5, 6)]
    slow = 0.0
    for i in range(6):
        sure = [(float(t[i].max()), float(F.softmax(v[i], 0).max()))
                for v, t in zip(views, targets, strict=True)]  # fmt: skip
        sure.sort(key=lambda pair: -pair[0])
        gained, wanted = float(F.softmax(clean[i], 0).max()), 1.0
        for k, (ratio, confidence) in enumerate(sure, start=2):
            gained += confidence / math.log2(k + 1)
            wanted += ratio / math.log2(k + 1)
        slow += (1 - min(gained / wanted, wanted / gained)) / 6
    assert float(ndcg_loss(clean, views, targets)) == pytest.approx(slow, abs=1e-5)


@pytest.mark.parametrize("kind", ["mrl", "mndcg"])
def test_rankmixup_trains_a_model(kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 4))
    loss = RankMixupLoss(Mixup(4, p=1.0), kind=kind)
    images = torch.rand(5, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3, 0])
    parts = loss(model, images, labels)
    assert torch.allclose(parts.cross_entropy, F.cross_entropy(model(images), labels))
    assert torch.allclose(parts.loss, parts.cross_entropy + 0.1 * parts.ranking)
    parts.loss.backward()
    assert float(model[1].weight.grad.abs().sum()) > 0
    assert loss.views == (1 if kind == "mrl" else 3)


def test_rankmixup_counts_mixes_only_and_shows_them_the_model():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    images = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    votes = torch.tensor([0.5, 0.5, 0.0, 0.0]).expand(6, 4)
    # Nothing was mixed, so there is nothing to rank.
    assert RankMixupLoss(Mixup(4, p=0.0))(model, images, votes).ranking.item() == 0.0
    half = RankMixupLoss(Mixup(4, p=0.5, seed=1))
    parts = half(model, images, votes)
    info, scores = half.mix.last, model(images).amax(1)
    mixed = model(Mixup(4, p=0.5, seed=1)(images, votes)[0]).amax(1)
    slow = ((mixed - scores + 2.0).clamp_min(0) * info.mixed).sum() / 6
    assert torch.allclose(parts.ranking, slow, atol=1e-5)
    salient = RankMixupLoss(PuzzleMix(4, p=1.0, blocks=(2,)))
    assert bool(salient(model, images, torch.arange(6) % 4).loss.isfinite())
    with pytest.raises(DisMixError, match="mixes inside the model"):
        RankMixupLoss(ManifoldMixup(4))


def test_ratio_against_a_loop():
    mixed, own, other, lam = soft(0), soft(1), soft(2), torch.rand(6)
    hard = torch.tensor([0, 1, 2, 3, 1, 2]), torch.tensor([1, 1, 0, 2, 3, 0])
    found = corrected_ratio(mixed, own, other, hard, lam, 2.0)
    for i in range(6):
        y, z = int(hard[0][i]), int(hard[1][i])
        p, q = own[i].clone(), other[i].clone()
        if y != z:
            p[z], q[y] = 0.0, 0.0
        a, b = F.softmax(p - mixed[i], 0), F.softmax(q - mixed[i], 0)
        first = float(lam[i]) * math.exp(-2 * float(a[y] / a.norm()))
        second = (1 - float(lam[i])) * math.exp(-2 * float(b[z] / b.norm()))
        assert float(found[i]) == pytest.approx(first / (first + second), abs=1e-5)


def test_the_share_follows_what_the_model_sees():
    seen_first, own, other = torch.tensor([[0.8, 0.2]]), torch.eye(2)[:1], torch.eye(2)[1:]
    hard = torch.tensor([0]), torch.tensor([1])
    half = torch.tensor([0.5])
    more = corrected_ratio(seen_first, own, other, hard, half, 1.0)
    less = corrected_ratio(seen_first.flip(1), own, other, hard, half, 1.0)
    assert float(more) > 0.5 > float(less)
    assert float(corrected_ratio(seen_first, own, other, hard, half, 0.0)) == 0.5


def test_sumix_changes_labels_and_not_images():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 4))
    images = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    plain = Mixup(4, p=1.0, seed=5)(images, labels)
    wrapped = SUMix(4, base="mixup", p=1.0, seed=5, model=model)(images, labels)
    assert torch.equal(plain[0], wrapped[0])
    assert not torch.allclose(plain[1], wrapped[1], atol=1e-4)
    assert model.training
    unmoved = SUMix(4, base="mixup", p=1.0, seed=5, model=model, strength=0.0)(images, labels)
    assert torch.allclose(plain[1], unmoved[1], atol=1e-6)


def test_sumix_says_what_it_needs():
    images, labels = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 2, 3])
    with pytest.raises(DisMixError, match="sumix needs a model"):
        SUMix(4, p=1.0)(images, labels)
    with pytest.raises(DisMixError, match="mixers of two images"):
        SUMix(4, base=CoMixup(4, saliency_fn=spectral_saliency))


def grader():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4))


def test_the_clean_loss_of_its_base_is_asked_for():
    from dismix.graders.mixed import with_clean_loss

    images, labels = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 2, 3])
    mix = SUMix(4, base="puzzlemix", base_options={"clean_lam": 0.5}, p=1.0, model=grader())
    mix(images, labels)
    assert mix.clean_lam == 0.5
    parts = with_clean_loss({"loss": torch.tensor(1.0)}, mix)
    assert parts["loss"].item() == pytest.approx(1.0 + 0.5 * parts["clean"].item())
    assert SUMix(4, base="cutmix").clean_lam == 0


def test_sumix_does_as_its_base_does():
    images = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    options = {"p": 1.0, "p_mode": "batch", "target": "rank", "pairing": "adjacent", "seed": 5}
    alone, base = Mixup(4, **options), Mixup(4, **options)
    mix = SUMix(base=base, strength=0.0, model=grader())
    assert (mix.p, mix.p_mode, mix.target_form, mix.num_ranks) == (1.0, "batch", "rank", 4)
    assert "p=1, p_mode=batch, pairing=adjacent, target=rank" in repr(mix)
    for wanted, found in zip(alone(images, labels), mix(images, labels), strict=True):
        assert torch.allclose(wanted, found, atol=1e-6)
    assert torch.equal(SUMix(base=Mixup(4, p=0.0), model=grader())(images, labels)[0], images)
    named = SUMix(4, base="mixup", base_options={"p": 0.25, "target": "rank"})
    assert (named.p, named.target_form) == (0.25, "rank")
    seeded = [
        SUMix(base=Mixup(4, p=1.0), model=grader(), seed=s)(images, labels) for s in (1, 1, 2)
    ]
    assert torch.equal(seeded[0][0], seeded[1][0])
    assert not torch.equal(seeded[0][0], seeded[2][0])


@pytest.mark.parametrize("kind", ["object", "name"])
def test_the_base_of_sumix_looks_where_it_was_told(kind):
    images = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    asked = []

    def saliency(pictures, targets):
        asked.append(len(pictures))
        return pictures.mean(1)

    if kind == "object":
        base = PuzzleMix(4, p=1.0, blocks=(2,), saliency_fn=saliency, saliency_scale=0.5)
        mix = SUMix(base=base)
        assert mix.access().saliency_scale == 0.5
    else:
        mix = SUMix(4, base="puzzlemix", base_options={"blocks": (2,)}, p=1.0, saliency_fn=saliency)
    # The model is for the ratio; it does not take the saliency's place.
    mix(images, torch.arange(6) % 4, model=grader())
    assert asked == [6]
    # A base's own model serves both.
    both = SUMix(base=PuzzleMix(4, p=1.0, blocks=(2,), model=grader()))
    assert bool(both(images, torch.arange(6) % 4)[0].isfinite().all())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"base": Mixup(4), "p": 0.3}, "'p': sumix takes this from its base; give it to the base"),
        ({"base": Mixup(4), "p_mode": "batch"}, "'p_mode'"),
        ({"base": Mixup(4), "target": "rank"}, "'target'"),
        ({"base": Mixup(4), "base_options": {"alpha": 2.0}}, "'base_options'"),
        ({"base": "mixup", "p": 0.3, "base_options": {"p": 0.4}}, "'p': .* give it once"),
        ({"base": Mixup(5)}, "mixes 4 ranks and its base 5"),
    ],
)
def test_options_given_twice_are_refused(options, words):
    with pytest.raises(DisMixError, match=words):
        SUMix(4, **options)
