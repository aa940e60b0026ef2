"""DisMix as a mixer: the promises of all mixers, and what is its own."""

import copy
import pickle
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.mixing.toy_run import FORMS, make_run, toy_generator
from torch import Tensor

from dismix.data.manifest import read_manifest
from dismix.data.transforms import augment
from dismix.errors import DisMixError
from dismix.generator.codes import Codes
from dismix.generator.images import load_split
from dismix.labels import OrdinalTarget
from dismix.mixing.dismix import DisMix
from dismix.mixing.dismix_draws import DisMixDraws
from dismix.mixing.encoding import encode_split
from dismix.mixing.engine import MixEngine
from dismix.mixing.maker import StoredMixes
from dismix.mixing.policies import mix_targets
from dismix.mixing.policy_draws import POLICIES
from dismix.mixing.registry import create_mixer


def batch(run: Path, count: int = 8) -> tuple[Tensor, OrdinalTarget, Tensor]:
    data = read_manifest(run.parent / "data")
    split = load_split(data, "train", 32, device=torch.device("cpu"), cache=run.parent / "cache")
    rows = torch.arange(count)
    return split.images(rows, "cpu"), split.target[rows], rows


def test_two_lines_in_a_loop(toy_run):
    images, target, _rows = batch(toy_run)
    before = images.clone()
    mix = DisMix.load(toy_run, p=0.5, seed=1)
    mixed, soft = mix(images, target.hard)
    assert mixed.shape == images.shape
    assert mixed.dtype == torch.float32
    assert soft.shape == (8, 5)
    assert soft.dtype == torch.float32
    assert torch.allclose(soft.sum(1), torch.ones(8))
    changed = mix.last.mixed
    assert 0 < changed.sum() < 8
    assert torch.equal(mixed[~changed], images[~changed])
    assert not (mixed[changed] == images[changed]).flatten(1).all(1).any()
    assert torch.equal(images, before)
    assert torch.equal(mix.eval()(images, target.hard)[0], images)


@pytest.mark.parametrize("policy", POLICIES)
def test_lam_is_the_share_of_the_label(toy_run, policy):
    images, target, rows = batch(toy_run)
    mix = DisMix.load(toy_run, p=1.0, seed=2, policies=policy)
    mix(images, target.hard, rows=rows)
    info, own = mix.last, target.hard.float()
    ranks = mix.engine.store.target.hard
    assert ((info.lam == 0) | (info.lam == 1)).all() == (policy in ("nonordinal_mix", "order_swap"))
    # Whoever the partner is, the label lies at that share between the two ranks.
    away = info.target.rank - own
    assert (away[info.lam == 1].abs() < 1e-5).all()
    whole = info.lam < 1
    steps = (away[whole] / (1 - info.lam[whole])).abs()
    assert ((steps - steps.round()).abs() < 1e-3).all()
    assert int(ranks.max()) >= steps.max()


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("with_rows", [True, False])
def test_any_batch_with_and_without_rows(toy_run, count, with_rows):
    images, target, rows = batch(toy_run, count)
    mix = DisMix.load(toy_run, p=1.0)
    mixed, soft = mix(images, target.probs, rows=rows if with_rows else None)
    assert mixed.shape == images.shape
    assert mix.last.mixed.all()
    assert mix.made == count
    assert soft.isfinite().all()


def by_hand(mix: DisMix, images: Tensor, target: OrdinalTarget, draws: DisMixDraws) -> Tensor:
    """Every mix by the paper's words, one at a time, with nothing but the generator.

    Codes are conditioned on what the labels are made of: whole ranks, or the votes.
    """
    model, made = mix.engine.model, []
    choices = draws.choices
    whole = mix.maker.settings.labels == "majority"
    levels = (OrdinalTarget.from_labels(target.hard, 5) if whole else target).levels
    for m, row in enumerate(draws.rows.tolist()):
        other = int(choices.partner[m])
        partner = model.encode(images[other : other + 1], levels[other : other + 1])
        anchor = model.encode(images[row : row + 1], levels[row : row + 1])
        z = model.latents(images[row : row + 1]).ordinal
        lam, swapped = float(choices.lam[m]), bool(choices.from_partner[m])
        policy = POLICIES[int(choices.policy[m])]
        if policy == "generate_and_mix":
            asked = OrdinalTarget.from_labels(choices.asked[m : m + 1], 5).levels
            conditioned = model.quantized_ordinal(z, asked).codes
            picture = model.decode(Codes(conditioned, anchor.nonordinal)).clamp(-1, 1)
            partner = model.encode(picture, asked)
        ordinal, nonordinal = anchor.ordinal, anchor.nonordinal
        if policy in ("ordinal_mix", "generate_and_mix"):
            ordinal = lam * ordinal + (1 - lam) * partner.ordinal
            nonordinal = partner.nonordinal if swapped else nonordinal
        elif policy == "nonordinal_mix":
            nonordinal = lam * nonordinal + (1 - lam) * partner.nonordinal
            ordinal = partner.ordinal if swapped else ordinal
        elif swapped:
            ordinal = partner.ordinal
        else:
            nonordinal = partner.nonordinal
        made.append(model.decode(Codes(ordinal, nonordinal)).clamp(-1, 1))
    return torch.cat(made).detach()


@pytest.mark.parametrize("form", [form for form in FORMS if form != "many_codes"])
@pytest.mark.parametrize("labels", ["majority", "votes"])
@torch.no_grad()
def test_mixes_are_what_the_paper_says(form, labels, tmp_path):
    run = make_run(tmp_path, toy_generator(2, **FORMS[form]), train=20)
    encode_split(run, cache=tmp_path / "cache")
    images, target, rows = batch(run, 20)
    mix = DisMix.load(run, p=1.0, turn=False, seed=4, labels=labels)
    draws = mix.draw(images, target)
    wanted = by_hand(mix, images, target, draws)
    # Partners' codes come from the store; asked for whole ranks they are made of z in half
    # precision.
    close = {"rtol": 1e-4, "atol": 1e-4 if labels == "votes" else 5e-3}
    torch.testing.assert_close(
        mix.replay(images, target, draws, mix.access()).images, wanted, **close
    )
    if form not in ("single", "unconditioned"):
        assert set(draws.choices.policy.tolist()) == {0, 1, 2, 3}
    # With rows those of anchors do, too.
    again = mix.replay(images, target, _with_rows(draws, rows), mix.access()).images
    same = draws.choices.policy != 3
    torch.testing.assert_close(again[same], wanted[same], **close)


def _with_rows(draws: DisMixDraws, rows: Tensor) -> DisMixDraws:
    return DisMixDraws(
        draws.rows, draws.partner, draws.lam, draws.fell_back, rows[draws.rows], draws.choices,
        None, None,
    )  # fmt: skip


@pytest.mark.parametrize("form", [form for form in FORMS if form != "many_codes"])
def test_rows_known_and_unknown_in_one_batch(form, tmp_path):
    run = make_run(tmp_path, toy_generator(2, **FORMS[form]), train=20)
    encode_split(run, cache=tmp_path / "cache")
    images, target, _rows = batch(run, 6)
    mix = DisMix.load(run, p=1.0, turn=False)
    draws = mix.draw(images, target)
    whole = mix.replay(images, target, draws, mix.access()).images
    partly = torch.tensor([0, -1, 2, -1, -1, 5])
    mixed = mix.replay(images, target, _with_rows(draws, partly), mix.access()).images
    same = draws.choices.policy != 3
    torch.testing.assert_close(mixed[same], whole[same], rtol=1e-4, atol=5e-3)


@pytest.mark.parametrize("p", [0.3, 0.7])
def test_stored_anchors_are_the_images_that_are_replaced(toy_run, p):
    images, target, _rows = batch(toy_run, 12)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    made = []
    for rows in (None, order):
        # Asked-for ranks look at z, which is stored in half precision.
        mix = DisMix.load(toy_run, p=p, seed=3, turn=False, policies=["ordinal_mix", "preserving"])
        made.append(mix(images[order], target.hard[order], rows=rows))
        assert 0 < mix.last.mixed.sum() < 12
    torch.testing.assert_close(made[1][0], made[0][0], rtol=1e-4, atol=5e-3)
    assert torch.equal(made[1][1], made[0][1])


def test_labels_pair_neighbours_and_mix_majorities(toy_run):
    images, target, _rows = batch(toy_run, 30)
    mix = DisMix.load(toy_run, p=1.0)
    draws = mix.draw(images, target)
    partner = mix.engine.store.target[draws.choices.partner]
    own = OrdinalTarget.from_labels(target.hard, 5)
    assert ((partner.hard - target.hard).abs() == 1).all()
    wanted = mix_targets(draws.choices, own, OrdinalTarget.from_labels(partner.hard, 5))
    made = mix.replay(images, target, draws, mix.access())
    assert torch.equal(made.target.probs, wanted.probs)
    assert not made.target.clean.any()
    votes = DisMix.load(toy_run, p=1.0, labels="votes")
    soft = votes.replay(images, target, draws, votes.access()).target
    torch.testing.assert_close(soft.probs, mix_targets(draws.choices, target, partner).probs)
    assert mix.fallbacks == 0


def test_turning_happens_after_decoding_and_to_stored_anchors_only(toy_run):
    images, target, rows = batch(toy_run)
    mix = DisMix.load(toy_run, p=1.0, seed=2)
    mix._given_rows = rows
    draws = mix.draw(images, target)
    mix._given_rows = None
    turned = mix.replay(images, target, draws, mix.access()).images
    plain = mix.replay(images, target, _with_rows(draws, rows), mix.access()).images
    torch.testing.assert_close(turned, augment(plain, draws.turns), rtol=1e-5, atol=1e-5)
    unknown = _with_rows(draws, torch.full((8,), -1))
    fresh = DisMixDraws(**{**unknown.__dict__, "turns": draws.turns})
    assert torch.equal(
        mix.replay(images, target, fresh, mix.access()).images,
        mix.replay(images, target, unknown, mix.access()).images,
    )


def test_state_dict_resumes_and_holds_no_weights(toy_run):
    images, target, rows = batch(toy_run)
    for options in ({}, {"pool": 6, "reuse": 2}):
        first = DisMix.load(toy_run, p=0.7, seed=3, **options)
        for _ in range(3):
            first(images, target.hard, rows=rows)
        state = copy.deepcopy(first.state_dict())
        assert list(state) == ["_extra_state"]
        assert not list(first.parameters())
        after = first(images, target.hard, rows=rows)
        second = DisMix.load(toy_run, p=0.7, seed=99, **options)
        second.load_state_dict(state)
        again = second(images, target.hard, rows=rows)
        assert torch.equal(again[0], after[0])
        assert torch.equal(again[1], after[1])
        twin = pickle.loads(pickle.dumps(second))
        assert torch.equal(twin(images, target.hard)[0], second(images, target.hard)[0])
        for mixer in (first, second, twin):
            mixer.close()


def test_the_global_random_state_is_left_alone(toy_run):
    images, target, rows = batch(toy_run)
    before = torch.get_rng_state()
    with DisMix.load(toy_run, p=1.0, pool=4) as mix:
        mix(images, target.hard, rows=rows)
    assert torch.equal(torch.get_rng_state(), before)


def by_hand_stored(mix: DisMix, stored: StoredMixes) -> Tensor:
    """Mixes of stored images, their codes conditioned on whole ranks."""
    ranks, choices = mix.engine.store.target.hard, stored.choices
    shown = [OrdinalTarget.from_labels(ranks[r], 5) for r in (stored.anchor, choices.partner)]
    return mix.engine.mix(choices, mix.engine.stored(stored.anchor), (shown[0], shown[1]))


def test_pooled_mixes_are_right_and_used_four_times_at_most(toy_run):
    images, target, _rows = batch(toy_run)
    uses: dict[bytes, int] = {}
    with DisMix.load(toy_run, p=1.0, pool=10, turn=False) as mix:
        for _ in range(12):
            mixed, _soft = mix(images, target.hard)
            for picture in mixed:
                key = picture.numpy().tobytes()
                uses[key] = uses.get(key, 0) + 1
        seed = mix.pool_seed
        stored = mix.maker.draw(10, [seed, 0, 1])
        pictures = by_hand_stored(mix, stored)
        kept = mix.pool_block(seed, 0)
    assert max(uses.values()) <= 4
    assert len(uses) >= 20
    assert ((kept.images.float() / 127.5 - 1) - pictures).abs().max() <= 1 / 255 + 1e-6
    torch.testing.assert_close(kept.probs, mix.maker.targets(stored).probs)


def test_autocast_and_half_precision_do_not_change_the_mix(toy_run):
    images, target, rows = batch(toy_run)
    plain = DisMix.load(toy_run, p=1.0, seed=5)(images, target.hard, rows=rows)
    with torch.autocast("cpu", torch.bfloat16):
        under = DisMix.load(toy_run, p=1.0, seed=5)(images, target.hard, rows=rows)
    assert torch.equal(plain[0], under[0])
    assert torch.equal(plain[1], under[1])
    half = DisMix.load(toy_run, p=1.0, seed=5)(images.bfloat16(), target.hard, rows=rows)
    assert half[0].dtype == torch.bfloat16
    assert half[1].dtype == torch.float32


def test_other_normalisation_size_and_channels(toy_run):
    images, target, rows = batch(toy_run)
    mean, std = torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1), torch.tensor(0.2)
    large = F.interpolate(images, (48, 40), mode="bilinear").expand(-1, 3, -1, -1)
    normed = ((large + 1) / 2 - mean) / std
    mix = DisMix.load(toy_run, p=1.0, seed=6, turn=False, mean=[0.4, 0.5, 0.6], std=0.2)
    mixed, _ = mix(normed, target.hard, rows=rows)
    assert mixed.shape == normed.shape
    own = DisMix.load(toy_run, p=1.0, seed=6, turn=False)(images, target.hard, rows=rows)[0]
    wanted = F.interpolate(own, (48, 40), mode="bilinear", antialias=True)
    torch.testing.assert_close(
        (mixed * std + mean) * 2 - 1, wanted.expand(-1, 3, -1, -1), rtol=1e-4, atol=1e-4
    )
    assert mix(normed, target.hard)[0].isfinite().all()


@pytest.mark.parametrize("pool", [0, 8])
def test_a_rank_without_neighbours_is_counted(toy_run, tmp_path, pool):
    manifest = read_manifest(toy_run.parent / "data")
    table = manifest.table.copy()
    for column in [c for c in table if c == "grade" or c.startswith("annotator")]:
        table[column] = table[column].map({0: 0, 1: 0, 2: 2, 3: 4, 4: 4}, na_action="ignore")
    from dismix.data.manifest import write_manifest

    write_manifest(manifest.with_table(table), tmp_path / "gaps.csv")
    store = encode_split(toy_run, tmp_path / "gaps.csv", cache=toy_run.parent / "cache")
    images, _, rows = batch(toy_run)
    with DisMix.load(toy_run, store=store.folder, p=1.0, pool=pool) as mix:
        mix(images, store.target.hard[rows], rows=rows)
    assert mix.fallbacks == mix.made == 8
    assert mix.last.fell_back.all()
    import shutil

    shutil.rmtree(store.folder)


def test_consensus_pairs_by_the_stored_ranks(toy_run):
    images, target, rows = batch(toy_run, 30)
    mix = DisMix.load(toy_run, p=1.0, ranks="consensus")
    mix.engine.store.consensus.copy_((target.hard + 1) % 5)
    mix = DisMix(engine=mix.engine, p=1.0, ranks="consensus", policies="order_swap")
    _, soft = mix(images, target.hard, rows=rows)
    draws_rank = (target.hard + 1) % 5
    near = (soft.argmax(1) - draws_rank).abs()
    assert (near <= 1).all()


def test_rows_of_another_order_are_told_once(toy_run):
    images, target, rows = batch(toy_run)
    said = r"\d of the first 8 images have other labels .* the loader's order may differ"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mix = DisMix.load(toy_run, p=0.5)
        for given in (rows, torch.where(rows < 4, rows, -1)):
            mix(images, target.probs, rows=given)
        # Without rows there is nothing to compare, and the pool brings its own anchors.
        DisMix.load(toy_run, p=0.5)(images, (target.hard + 2) % 5)
        with DisMix.load(toy_run, p=0.5, pool=4) as pooled:
            pooled(images, (target.hard + 2) % 5, rows=rows)
    mix = DisMix.load(toy_run, p=0.5)
    with pytest.warns(UserWarning, match=said):
        mix(images, (target.hard + 2) % 5, rows=rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mix(images, (target.hard + 2) % 5, rows=rows)
        # A few corrected labels are no other order.
        few = torch.where(rows < 3, (target.hard + 2) % 5, target.hard)
        DisMix.load(toy_run, p=0.5)(images, few, rows=rows)


def test_mistakes_are_one_line(toy_run, tmp_path):
    images, target, rows = batch(toy_run)
    with pytest.raises(DisMixError, match="DisMix needs a trained generator"):
        DisMix(5)
    with pytest.raises(DisMixError, match="grades 5 ranks, not 4"):
        DisMix(4, run=toy_run)
    with pytest.raises(DisMixError, match="did you mean 'combined'"):
        DisMix.load(toy_run, policies="combine")
    with pytest.raises(DisMixError, match="'dismix' has no option 'polices'; did you mean 'poli"):
        DisMix.load(toy_run, polices="combined")
    with pytest.raises(DisMixError, match="unknown labels"):
        DisMix.load(toy_run, labels="soft")
    with pytest.raises(DisMixError, match="no such file"):
        DisMix.load(tmp_path / "absent")
    mix = DisMix.load(toy_run, p=1.0)
    with pytest.raises(DisMixError, match=r"outside 0\.\.4"):
        mix(images, target.hard + 5)
    with pytest.raises(DisMixError, match=r"rows must be whole numbers \(8,\)"):
        mix(images, target.hard, rows=rows[:3])
    # A mask would name rows 0 and 1, and fractions the rows below.
    for wrong in (rows.float(), rows >= 0, [None] * 8):
        with pytest.raises(DisMixError, match=r"rows must be whole numbers .* -1 where"):
            mix(images, target.hard, rows=wrong)
    with pytest.raises(DisMixError, match="row 30 is not in the latent store"):
        mix(images, target.hard, rows=rows + 23)
    with pytest.raises(DisMixError, match=r"std is 0\.0; give numbers above 0"):
        DisMix.load(toy_run, p=1.0, std=0.0)
    coloured = DisMix.load(toy_run, p=1.0, mean=[0.4, 0.5, 0.6])
    for given in (rows, None):
        with pytest.raises(DisMixError, match="mean has 3 numbers for images of 1 channels"):
            coloured(images, target.hard, rows=given)
    with pytest.raises(DisMixError, match=r"'flips': is \(0\.5,\); give two chances"):
        DisMix.load(toy_run, flips=0.5)
    for wrong, said in (
        ({"pool": 2.5}, "'pool': 2.5 is no whole number"),
        ({"alike": 2.5}, "'alike': 2.5 is no whole number; give one, such as 1"),
        ({"reach": "0.5"}, "'reach': '0.5' is no number; give one, such as 1.0"),
        ({"p": "x"}, "'p': 'x' is no number; give one, such as 0.5"),
    ):
        with pytest.raises(DisMixError, match=said):
            DisMix.load(toy_run, **wrong)
        with pytest.raises(DisMixError, match=said):
            create_mixer("dismix", 5, run=toy_run, **wrong)
    for wrong in ({"pool": -1}, {"pool": None}, {"pool": 4, "reuse": 0}):
        with pytest.raises(DisMixError, match=r"a pool of .* give whole numbers above 0"):
            DisMix.load(toy_run, **wrong)
    with pytest.raises(DisMixError, match="not the random state of a dismix mixer"):
        mix.load_state_dict(create_mixer("mixup", 5).state_dict())
    with pytest.raises(DisMixError, match="not the random state of a mixup mixer"):
        create_mixer("mixup", 5).load_state_dict(mix.state_dict())
    with pytest.raises(DisMixError, match="alpha is 0"):
        DisMix.load(toy_run, alpha=0.0)
    other = MixEngine.load(toy_run)
    with pytest.raises(DisMixError, match="codes of another generator"):
        MixEngine(toy_generator(9), other.store)


def test_the_engine_decodes_what_the_generator_decodes(toy_run):
    engine = MixEngine.load(toy_run)
    codes = engine.stored(torch.arange(6)).codes
    with torch.no_grad():
        slow = engine.model.decode(codes).clamp(-1, 1)
    assert torch.allclose(engine.decode(codes), slow, atol=1e-4)


@pytest.mark.parametrize("pool", [0, 4])
def test_works_inside_a_compiled_step(toy_run, pool):
    images, target, rows = batch(toy_run, 4)
    with DisMix.load(toy_run, p=1.0, pool=pool) as mix:
        step = torch.compile(lambda x, y: mix(x, y, rows=rows)[0].mean() * 2, backend="eager")
        found = {step(images, target.probs).item() for _ in range(3)}
    assert len(found) == 3


def test_compiled_decoders_see_few_sizes(toy_run, monkeypatch):
    sizes = set()

    def compiled(function, **_options):
        def run(joined):
            sizes.add(len(joined))
            return function(joined)

        return run

    monkeypatch.setattr(torch, "compile", compiled)
    plain, fast = MixEngine.load(toy_run), MixEngine.load(toy_run, compiled=True)
    for count in (1, 16, 17, 40, 63, 64, 65, 150):
        codes = plain.stored(torch.arange(count) % 30).codes
        torch.testing.assert_close(fast.decode(codes), plain.decode(codes), rtol=1e-4, atol=1e-5)
    assert sizes == {8, 16, 32, 64}


@pytest.mark.slow
def test_the_compiled_decoder_shows_the_same_picture(toy_run):
    images, target, rows = batch(toy_run, 5)
    plain = DisMix(engine=MixEngine.load(toy_run), p=1.0, seed=1)(images, target, rows=rows)[0]
    fast = MixEngine.load(toy_run, compiled=True)
    made = DisMix(engine=fast, p=1.0, seed=1)(images, target, rows=rows)[0]
    torch.testing.assert_close(made, plain, rtol=1e-4, atol=1e-4)


def test_near_partners_are_asked_for_by_name(toy_run: Path) -> None:
    with DisMix.load(toy_run, pairing="near", pool=64, p=1.0, seed=0) as mix:
        assert mix.maker.settings.pairing == "near"
        assert "pairing=near" in repr(mix)
        ranks = mix.maker.ranks
        draws = mix.maker.draw(400, [1])
        gaps = ranks[draws.anchor] - ranks[draws.choices.partner]
        assert set(gaps.abs().tolist()) == {0, 1}
        assert not (draws.anchor == draws.choices.partner).any()
    # The paper's pairs, unless something else is said.
    assert "pairing=adjacent" in repr(DisMix.load(toy_run))
    with pytest.raises(DisMixError, match="unknown pairing 'kernel'; choose adjacent or near"):
        DisMix.load(toy_run, pairing="kernel")
