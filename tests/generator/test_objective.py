"""Each lever does what it says."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.generator.toy import toy_recipe, toy_split, toy_training
from torch import Tensor, nn

from dismix.errors import DisMixError
from dismix.generator.codes import Codes
from dismix.generator.guide import Guide, match_colour
from dismix.generator.step_draws import draw_step, with_gains
from dismix.generator.terms import TERMS
from dismix.generator.training import Training


def _step(training: Training, **changes: Any) -> tuple[dict[str, Tensor], Any]:
    split, rng = toy_split(), torch.Generator().manual_seed(0)
    rows = torch.arange(8)
    draws = draw_step(training.model, 8, rng)
    settings = {"reversal": 1.0, "realism": 1.0, **changes}
    return training.objective(
        split.images(rows, "cpu"), split.target[rows].levels, draws, **settings
    )


def _moved(training: Training, name: str) -> set[str]:
    """Return the parts of the generator that a term's gradient reaches."""
    split, rows = toy_split(), torch.arange(8)
    draws = draw_step(training.model, 8, torch.Generator().manual_seed(0))
    parts, _ = training.objective(
        split.images(rows, "cpu"), split.target[rows].levels, draws, 1.0, 1.0
    )
    training.model.zero_grad()
    parts["loss"].backward()
    return {
        key.split(".")[0]
        for key, p in training.model.named_parameters()
        if p.grad is not None and p.grad.abs().sum() > 0
    }


ALL = dict.fromkeys(TERMS, 0.0)


def _only(name: str, **settings: Any) -> Training:
    return toy_training(toy_recipe(**{**ALL, name: 1.0, **settings}))


@pytest.mark.parametrize(
    ("name", "reached", "spared"),
    [
        ("reconstruct", {"decoder", "encoder"}, {"ordinal_classifier"}),
        ("rank_ordinal", {"ordinal_classifier", "quantize_ordinal"}, {"decoder"}),
        ("rank_unlabelled", {"ordinal_classifier", "ordinal_trunk"}, {"decoder"}),
        ("rank_predicted", {"quantize_ordinal", "ordinal_trunk"}, {"decoder", "encoder"}),
        ("rank_nonordinal", {"encoder", "quant_conv"}, {"decoder", "ordinal_trunk"}),
        ("quantize_nonordinal", {"quantize", "encoder"}, {"decoder", "ordinal_trunk"}),
        ("quantize_ordinal", {"quantize_ordinal", "ordinal_trunk"}, {"decoder", "encoder"}),
        ("realism", {"decoder"}, {"ordinal_classifier"}),
        ("rank_fake", {"decoder"}, {"ordinal_classifier"}),
        ("control", {"decoder", "quantize_ordinal"}, {"ordinal_classifier"}),
        ("control_realism", {"decoder"}, {"ordinal_classifier"}),
        ("cycle_nonordinal", {"encoder", "quant_conv"}, {"decoder", "ordinal_classifier"}),
        ("cycle_ordinal", {"decoder", "ordinal_classifier"}, set()),
        ("keep", {"decoder"}, {"ordinal_classifier"}),
        ("stay", {"decoder", "encoder"}, {"ordinal_classifier"}),
        ("mix_realism", {"decoder", "encoder"}, {"ordinal_classifier"}),
        ("similarity", {"encoder", "ordinal_trunk"}, {"decoder"}),
    ],
)
def test_a_term_reaches_its_part(name: str, reached: set[str], spared: set[str]) -> None:
    training = _only(name)
    assert training.objective.names == [name]
    moved = _moved(training, name)
    assert reached <= moved
    assert not spared & moved


def test_one_codebook_drops_what_it_cannot_ask() -> None:
    training = toy_training(toy_recipe(codebooks="single", ordinal_grid=None, ordinal_trunk="none"))
    assert "quantize" in training.objective.names
    assert not {"similarity", "control_realism", "quantize_ordinal"} & set(training.objective.names)
    parts, _ = _step(training)
    assert torch.isfinite(parts["loss"])


def test_confusion_is_least_for_a_blind_adversary() -> None:
    training = _only("rank_nonordinal")
    prior = training.objective.prior
    linear: Any = training.critics.adversaries[0].layers[-1]
    with torch.no_grad():
        linear.weight.zero_()
        linear.bias.copy_(torch.logit(prior))
    least = _step(training)[0]["rank_nonordinal"]
    entropy = -(prior * prior.log() + (1 - prior) * (1 - prior).log()).mean()
    torch.testing.assert_close(least, entropy)
    with torch.no_grad():
        linear.weight.normal_()
    assert _step(training)[0]["rank_nonordinal"] > least
    assert _step(training, reversal=0.0)[0]["rank_nonordinal"] == 0


@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0])
def test_the_papers_adversary_turns_what_the_encoder_learns(strength: float) -> None:
    training = _only("rank_nonordinal", adversary="reversal")
    model, split, rows = training.model, toy_split(), torch.arange(8)
    reader, images = model.nonordinal_classifier, split.images(rows, "cpu")
    levels = split.target[rows].levels
    learned = [model.quant_conv.weight, next(reader.parameters())]
    plain = nn.functional.binary_cross_entropy_with_logits(
        reader(model.encode(images).nonordinal), levels
    )
    features, weights = torch.autograd.grad(plain, learned)
    assert features.abs().sum() > 0
    loss = _step(training, reversal=torch.tensor(strength))[0]["loss"]
    found = torch.autograd.grad(loss, learned)
    torch.testing.assert_close(found[0], -strength * features)
    torch.testing.assert_close(found[1], weights)


def test_no_adversary_without_reversal() -> None:
    assert len(toy_training(toy_recipe(reversal=0)).critics.adversaries) == 0
    assert len(toy_training(toy_recipe(adversary="reversal")).critics.adversaries) == 0


def test_realism_waits_for_the_discriminator() -> None:
    training = _only("realism")
    assert _step(training, realism=0.0)[0]["realism"] == 0
    assert _step(training)[0]["realism"] > 0


def test_control_share_decodes_a_part_again() -> None:
    for share, count in ((1.0, 16), (0.5, 12), (0.01, 9)):
        training = toy_training(toy_recipe(control_share=share))
        _, (fakes, shown, codes) = _step(training)
        assert (len(fakes), len(shown), len(codes)) == (count, count, 8)
        assert not fakes.requires_grad


def test_mixing_in_a_neighbour_keeps_the_rank_asked_for() -> None:
    training = toy_training(toy_recipe(mix=1.0, mix_realism=1.0))
    training.objective._guide[0] = Guide(3, "conv", channels=1).eval()
    training.objective.names += ["mix"]
    split, rows = toy_split(), torch.arange(8)
    draws = draw_step(training.model, 8, torch.Generator().manual_seed(0))
    levels = split.target[rows].levels
    parts, (fakes, shown, _) = training.objective(
        split.images(rows, "cpu"), levels, draws, 1.0, 1.0
    )
    assert torch.isfinite(parts["mix"])
    # Reconstructions, decodings at other ranks, mixes: the critics see all of them.
    assert len(fakes) == len(shown) == 24
    assert torch.equal(shown[16:], levels)


def test_mix_share_mixes_the_last_images() -> None:
    training = toy_training(toy_recipe(mix=1.0, mix_realism=1.0, mix_share=0.25, control=0))
    _, (fakes, shown, _) = _step(training)
    levels = toy_split().target[torch.arange(8)].levels
    assert torch.equal(shown[-2:], levels[-2:])
    assert len(fakes) == len(shown)


@torch.no_grad()
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_pictures_of_a_step_by_hand(share: float) -> None:
    training = toy_training(
        toy_recipe(mix=1.0, mix_realism=1.0, mix_share=share, control_share=share)
    )
    model, split, rows = training.model, toy_split(), torch.arange(8)
    draws = draw_step(model, 8, torch.Generator().manual_seed(3))
    images, levels = split.images(rows, "cpu"), split.target[rows].levels
    _, (fakes, shown, _) = training.objective(images, levels, draws, 1.0, 1.0)
    latents, count = model.latents(images), round(8 * share)
    ordinal, nonordinal = model.quantized(latents, levels, draws.uncond)
    assert len(fakes) == 8 + 2 * count
    wanted = [Codes(ordinal.codes, nonordinal.codes)]
    asked = [levels]
    for i in range(count):
        rank = float(draws.asked[i])
        asked.append(torch.tensor([[min(max(rank - k, 0.0), 1.0) for k in range(2)]]))
        z = model.quantized_ordinal(latents.ordinal[i : i + 1], asked[-1])
        wanted.append(Codes(z.codes, nonordinal.codes[i : i + 1]))
    assert 0 < (draws.lam == 0).sum() < 8, "swaps and others"
    for i in range(8 - count, 8):
        other, lam = (i - draws.shift) % 8, float(draws.lam[i])
        look = lam * nonordinal.codes[i] + (1 - lam) * nonordinal.codes[other]
        wanted.append(Codes(ordinal.codes[i : i + 1], look[None]))
        asked.append(levels[i : i + 1])
    torch.testing.assert_close(fakes, model.decode(Codes.cat(wanted)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(shown, torch.cat(asked))


@torch.no_grad()
@pytest.mark.parametrize("matched", [True, False])
def test_ranks_of_a_step_are_read_by_hand(matched: bool) -> None:
    training = toy_training(
        toy_recipe(rank_fake=1.0, match_colour=matched, control_share=0.5, rank_unlabelled=1.0)
    )
    model, split, rows = training.model, toy_split(), torch.arange(8)
    judge, draws = training.critics.discriminator, draw_step(model, 8, torch.Generator())
    # Untrained, it would hardly tell pictures apart.
    judge.rank_head.weight.mul_(100)
    images, levels = split.images(rows, "cpu"), split.target[rows].levels
    parts, (fakes, shown, _) = training.objective(images, levels, draws, 1.0, 1.0)
    z = model.latents(images).ordinal
    told, blind = model.quantized_ordinal(z, levels, draws.uncond), model.quantized_ordinal(z)
    again = match_colour(fakes[8:], images[:4]) if matched else fakes[8:]
    wanted = {
        "rank_ordinal": _entropy(model.ordinal_classifier(told.codes), levels),
        "rank_unlabelled": _entropy(model.ordinal_classifier(blind.codes), levels),
        "rank_predicted": _entropy(model.quantize_ordinal.condition.predicted_logits(z), levels),
        "quantize_ordinal": 0.5 * float(told.loss + blind.loss),
        "rank_fake": _entropy(judge(fakes[:8]).rank_logits, levels),
        "control": _entropy(judge(again).rank_logits, shown[8:]),
    }
    for name, value in wanted.items():
        assert float(parts[name]) == pytest.approx(value, rel=1e-3), name
    other = match_colour(fakes[8:], images[:4]) if not matched else fakes[8:]
    assert abs(_entropy(judge(other).rank_logits, shown[8:]) / wanted["control"] - 1) > 0.01
    assert len({round(value, 4) for value in wanted.values()}) == len(wanted)


def test_what_the_guide_sees_is_matched() -> None:
    guide = Guide(3, "conv", channels=1).eval().requires_grad_(False)
    training = _only("reconstruct")
    training.objective._guide[0] = guide
    training.objective.names = ["seen"]
    training.objective.recipe.weights["seen"] = 1.0  # type: ignore[index]
    split, rows = toy_split(), torch.arange(8)
    draws = draw_step(training.model, 8, torch.Generator().manual_seed(0))
    images, levels = split.images(rows, "cpu"), split.target[rows].levels
    parts, (fakes, *_) = training.objective(images, levels, draws, 1.0, 1.0)
    slow = [
        float(((a - b) ** 2).mean() / b.var())
        for a, b in zip(guide.maps(fakes[:8]), guide.maps(images), strict=True)
    ]
    assert float(parts["seen"]) == pytest.approx(sum(slow) / 2, rel=1e-4)


def test_mixes_keep_the_coarse_look_of_what_z_n_is_mixed_of() -> None:
    training = toy_training(toy_recipe(mix_keep=1.0, mix_share=0.5))
    split, rows = toy_split(), torch.arange(8)
    draws = draw_step(training.model, 8, torch.Generator().manual_seed(3))
    images, levels = split.images(rows, "cpu"), split.target[rows].levels
    parts, (made, shown, _) = training.objective(images, levels, draws, 1.0, 1.0)
    mixes, total = made[-4:], 0.0
    assert torch.equal(shown[-4:], levels[-4:])
    for place in range(4):
        row = 4 + place
        lam, other = float(draws.lam[row]), (row - draws.shift) % 8
        for y in range(16):
            for x in range(16):
                cell = (0, slice(2 * y, 2 * y + 2), slice(2 * x, 2 * x + 2))
                own, its = float(images[row][cell].mean()), float(images[other][cell].mean())
                gap = float(mixes[place][cell].mean()) - (lam * own + (1 - lam) * its)
                total += gap**2
    assert float(parts["mix_keep"]) == pytest.approx(total / (4 * 256), rel=1e-4)


def test_a_code_of_the_rank_alone_ignores_the_picture() -> None:
    training = toy_training(toy_recipe(rank_only=True))
    model, levels = training.model.eval(), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    pictures = torch.rand(2, 1, 32, 32) * 2 - 1
    codes = model.encode(pictures, levels)
    assert torch.equal(codes.ordinal[0], codes.ordinal[1])
    assert not torch.equal(codes.nonordinal[0], codes.nonordinal[1])
    with pytest.raises(DisMixError, match="rank_only"):
        toy_training(toy_recipe(rank_only=True, null_label="learned"))


def test_a_frozen_trunk_gets_no_gradient() -> None:
    training = _only("rank_predicted", freeze_trunk=True)
    assert "ordinal_trunk" not in _moved(training, "rank_predicted")
    free = training.model.ordinal_trunk
    assert free is not None
    assert not any(m.training for m in free.modules() if isinstance(m, nn.BatchNorm2d))


def test_a_conditional_discriminator_looks_at_levels() -> None:
    images, levels = torch.rand(2, 1, 32, 32), torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    for conditional in (True, False):
        judge = toy_training(toy_recipe(conditional=conditional)).critics.discriminator
        same = torch.equal(judge(images, levels).realism, judge(images, 1 - levels).realism)
        assert same is not conditional


def _entropy(logits: Tensor, levels: Tensor) -> float:
    """Binary cross-entropy, one number at a time."""
    chances = logits.sigmoid()
    each = [
        -s * math.log(p) - (1 - s) * math.log(1 - p)
        for p, s in zip(chances.flatten().tolist(), levels.flatten().tolist(), strict=True)
    ]
    return sum(each) / len(each)


@torch.no_grad()
def test_critics_read_real_ranks_and_judge_pictures_for_what_they_should_show() -> None:
    training = toy_training(toy_recipe(conditional=True))
    critics, size = training.critics.eval(), training.model.latent_size
    rng = torch.Generator().manual_seed(0)
    images, levels = torch.rand(4, 1, 32, 32, generator=rng), torch.rand(4, 2, generator=rng)
    fakes, asked = torch.rand(6, 1, 32, 32, generator=rng), torch.rand(6, 2, generator=rng)
    codes = torch.randn(4, training.model.config.code_dim, size, size, generator=rng)
    parts = critics(images, levels, fakes, asked, codes)
    real, made = critics.discriminator(images, levels), critics.discriminator(fakes, asked)
    wanted = {
        "critic_realism": ((real.realism - 1) ** 2).mean() + (made.realism**2).mean(),
        "critic_rank": _entropy(real.rank_logits, levels),
        "critic_adversary": sum(_entropy(read(codes), levels) for read in critics.adversaries)
        / len(critics.adversaries),
    }
    for name, value in wanted.items():
        assert float(parts[name]) == pytest.approx(float(value), rel=1e-4), name
    assert float(parts["loss"]) == pytest.approx(sum(map(float, wanted.values())), rel=1e-4)


def test_the_guide_is_not_trained(tmp_path: Path) -> None:
    recipe = toy_recipe(guide=1.0)
    training = toy_training(recipe)
    assert "guide" not in training.objective.names
    guide = Guide(3, "conv", channels=1).eval().requires_grad_(False)
    training.objective._guide[0] = guide
    training.objective.names.append("guide")
    parts, _ = _step(training)
    parts["loss"].backward()
    assert parts["guide"] > 0
    assert all(p.grad is None for p in guide.parameters())
    assert "guide" not in "".join(training.objective.state_dict())


def test_gains_keep_black_and_change_nothing_at_zero() -> None:
    images = torch.rand(4, 3, 8, 8) * 2 - 1
    images[:, :, 0] = -1
    gains = torch.randn(4, 3)
    assert with_gains(images, gains, 0.0) is images
    changed = with_gains(images, gains, 0.2)
    assert (changed[:, :, 0] == -1).all()
    assert changed.max() <= 1
    slow = torch.stack(
        [((images[i, c] + 1) * torch.exp(0.2 * gains[i, c]) - 1).clamp(max=1)
         for i in range(4) for c in range(3)]
    ).view_as(images)  # fmt: skip
    torch.testing.assert_close(changed, slow)


def test_shards_are_the_whole() -> None:
    training = toy_training(toy_recipe(nonordinal_noise=0.5, nonordinal_dropout=0.5))
    whole = draw_step(training.model, 8, torch.Generator().manual_seed(3))
    parts = [whole.shard(rank, 2) for rank in range(2)]
    for name in ("uncond", "asked", "gains"):
        joined = torch.stack([getattr(part, name) for part in parts], 1).flatten(0, 1)
        assert torch.equal(joined, getattr(whole, name))
    assert whole.perturbation is not None
    assert whole.perturbation.noise is not None
    for rank, part in enumerate(parts):
        assert part.perturbation is not None
        assert part.perturbation.noise is not None
        assert torch.equal(part.perturbation.noise, whole.perturbation.noise[rank::2])


def test_learned_weights_sum_to_one() -> None:
    training = toy_training(toy_recipe(learned_weights=True))
    parts, _ = _step(training)
    shares = [value for name, value in parts.items() if name.startswith("w_")]
    assert float(sum(shares)) == pytest.approx(1.0)
    assert len(shares) == len(training.objective.names)


@pytest.mark.parametrize("detach", [True, False])
def test_detached_control_spares_the_trunk(detach: bool) -> None:
    training = _only("control", detach_control=detach)
    assert ("ordinal_trunk" in _moved(training, "control")) is not detach


def test_neighbours_stay_the_same_when_processes_share_a_batch() -> None:
    model = toy_training(toy_recipe()).model
    draws = draw_step(model, 16, torch.Generator().manual_seed(0))
    whole = torch.arange(16).roll(draws.shift)
    for world in (1, 2, 4):
        parts = [torch.arange(16)[rank::world] for rank in range(world)]
        shifts = [draws.shard(rank, world).shift for rank in range(world)]
        for rank, (part, shift) in enumerate(zip(parts, shifts, strict=True)):
            assert torch.equal(part.roll(shift), whole[rank::world])


def test_nothing_is_asked_of_ranks_that_cannot_be_asked_for() -> None:
    asked = {"keep": 1.0, "stay": 1.0, "control_realism": 1.0, "reconstruct": 1.0}
    blind = {"conditioned": False, "rank_only": False}
    assert toy_training(toy_recipe(**{**ALL, **asked, **blind})).objective.names == ["reconstruct"]
