"""What the codes leave out: stored, read back, and given to the mixes whose look it is."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.mixing.test_dismix import batch
from tests.mixing.toy_run import FORMS, make_run, toy_generator
from torch import Tensor

from dismix.errors import DisMixError
from dismix.mixing.details import DETAILS, counted, look_shares, rank_shares
from dismix.mixing.dismix import DisMix
from dismix.mixing.encoding import encode_split
from dismix.mixing.engine import MixEngine
from dismix.mixing.maker import MixMaker, MixSettings
from dismix.mixing.policy_draws import (
    GENERATE_AND_MIX,
    NONORDINAL_MIX,
    ORDER_SWAP,
    ORDINAL_MIX,
    PolicyDraws,
)

GREY_LEVEL = 2 / 255
KILLED = (
    "import os, signal, sys, pathlib; from dismix.mixing import encoding, filling; "
    "filling._COMMIT_SECONDS = 0.0; "
    "die = lambda text, done, total: "
    "text == 'details' and done >= 12 and os.kill(os.getpid(), signal.SIGKILL); "
    "encoding.encode_split(sys.argv[1], details=True, batch_size=4, "
    "cache=pathlib.Path(sys.argv[2]), progress=die)"
)
MOST = 126 * GREY_LEVEL


@pytest.fixture(scope="module")
def detailed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("detailed")
    run = make_run(folder)
    encode_split(run, details=True, cache=folder / "cache")
    return run


def one_by_one(policy: int, lam: float, from_partner: bool) -> float:
    """Return the anchor's share of the look, read off the table of policies."""
    if policy == NONORDINAL_MIX:
        return lam
    if policy == ORDER_SWAP:
        return 1.0 if from_partner else 0.0
    if policy == ORDINAL_MIX:
        return 0.0 if from_partner else 1.0
    return 1.0


def test_shares_follow_the_table() -> None:
    rows = [(p, lam, f) for p in range(4) for lam in (0.2, 0.7) for f in (False, True)]
    policy, lam, swapped = (torch.tensor(column) for column in zip(*rows, strict=True))
    zeros = torch.zeros_like(policy)
    draws = PolicyDraws(policy, lam, swapped, zeros, zeros, swapped)
    anchor, partner = look_shares(draws)
    assert anchor.tolist() == pytest.approx([one_by_one(*row) for row in rows])
    assert torch.allclose(anchor + partner, torch.ones(len(rows)))


def part_in_label(policy: int, lam: float, from_partner: bool) -> tuple[float, float]:
    """Return the parts of anchor and partner in the label, read off the table of policies."""
    if policy in (NONORDINAL_MIX, ORDER_SWAP):
        return (0.0, 1.0) if from_partner else (1.0, 0.0)
    return (lam, 1 - lam) if policy == ORDINAL_MIX else (lam, 0.0)


def test_shares_of_the_label_follow_the_table() -> None:
    rows = [(p, lam, f) for p in range(4) for lam in (0.2, 0.7) for f in (False, True)]
    policy, lam, swapped = (torch.tensor(column) for column in zip(*rows, strict=True))
    zeros = torch.zeros_like(policy)
    found = rank_shares(PolicyDraws(policy, lam, swapped, zeros, zeros, swapped))
    wanted = [part_in_label(*row) for row in rows]
    for shares, column in zip(found, zip(*wanted, strict=True), strict=True):
        assert shares.tolist() == pytest.approx(column)


def drawn(maker: MixMaker, policy: int, lam: float, *, from_partner: bool) -> Tensor:
    """Return mixes of stored images by one policy, with one lam."""
    mixes = maker.draw(6, [3])
    choices = replace(
        mixes.choices, policy=torch.full((6,), policy), lam=torch.full((6,), lam),
        from_partner=torch.full((6,), from_partner),
    )  # fmt: skip
    return maker.pictures(replace(mixes, choices=choices)).float() / 127.5 - 1


@pytest.mark.parametrize("policy", [ORDINAL_MIX, NONORDINAL_MIX, GENERATE_AND_MIX])
def test_with_all_of_the_anchor_the_mix_is_the_anchor(detailed: Path, policy: int) -> None:
    settings = MixSettings(labels="votes", detail=1.0)
    maker = MixMaker(MixEngine.load(detailed), settings)
    mixed = drawn(maker, policy, 1.0, from_partner=False)
    images, _target, _rows = batch(detailed, 30)
    own = images[maker.draw(6, [3]).anchor]
    plain = drawn(MixMaker(maker.engine, replace(settings, detail=0.0)), policy, 1.0,
                  from_partner=False)  # fmt: skip
    assert (plain - own).abs().mean() > 5 * GREY_LEVEL
    # A decoder that has learned nothing is further off than a byte can tell.
    told = (plain - own).abs() < MOST
    assert told.float().mean() > 0.5
    assert (mixed - own)[told].abs().max() <= 1.5 * GREY_LEVEL


@pytest.mark.parametrize("policy", [ORDINAL_MIX, NONORDINAL_MIX, ORDER_SWAP, GENERATE_AND_MIX])
@pytest.mark.parametrize("from_partner", [True, False])
def test_detail_that_goes_with_the_label(detailed: Path, policy: int, from_partner: bool) -> None:
    engine, lam = MixEngine.load(detailed), 0.25
    settings = MixSettings(labels="votes", detail=0.5, detail_with="rank")
    maker = MixMaker(engine, settings)
    mixes = maker.draw(6, [3])
    own, theirs = (
        engine.details().read(rows, engine.device) for rows in (mixes.anchor, mixes.choices.partner)
    )
    share, other = part_in_label(policy, lam, from_partner)
    plain = drawn(MixMaker(engine, MixSettings(labels="votes")), policy, lam,
                  from_partner=from_partner)  # fmt: skip
    wanted = plain + 0.5 * (share * own + other * theirs)
    inside = wanted.abs() < 0.98
    assert inside.float().mean() > 0.5
    found = drawn(maker, policy, lam, from_partner=from_partner)
    assert (found - wanted)[inside].abs().max() <= 1.5 * GREY_LEVEL
    assert not torch.equal(found, plain)


def test_the_mixer_knows_what_detail_goes_with(detailed: Path) -> None:
    images, target, rows = batch(detailed)
    made = [
        DisMix.load(detailed, p=1.0, seed=5, turn=False, detail=1.0, detail_with=with_)(
            images, target, rows=rows
        )
        for with_ in ("look", "rank")
    ]
    assert torch.equal(made[0][1].probs, made[1][1].probs)
    assert not torch.equal(made[0][0], made[1][0])
    with pytest.raises(DisMixError, match="unknown detail_with 'ranks'; choose look or rank"):
        DisMix.load(detailed, detail_with="ranks")


def test_half_of_it_is_half_way(detailed: Path) -> None:
    engine = MixEngine.load(detailed)
    made = [
        drawn(MixMaker(engine, MixSettings(detail=share)), ORDER_SWAP, 0.5, from_partner=True)
        for share in (0.0, 0.5, 1.0)
    ]
    inside = (made[0].abs() < 0.9) & (made[2].abs() < 0.9)
    assert inside.float().mean() > 0.3
    middle = (made[0] + made[2]) / 2
    assert (made[1] - middle)[inside].abs().max() <= 1.5 * GREY_LEVEL


@pytest.mark.parametrize("form", ["rank_only", "soft", "single"])
def test_every_form_of_codes(tmp_path: Path, form: str) -> None:
    run = make_run(tmp_path, toy_generator(**FORMS[form]))
    encode_split(run, details=True, cache=tmp_path / "cache")
    engine = MixEngine.load(run)
    images, _target, rows = batch(run, 4)
    sources = engine.stored(rows, detail=True)
    assert sources.detail is not None
    rebuilt = engine.decode(sources.codes)
    told = (rebuilt - images).abs() < MOST
    assert told.float().mean() > 0.5
    assert (rebuilt + sources.detail - images)[told].abs().max() <= 1.5 * GREY_LEVEL


@pytest.mark.parametrize("with_rows", [True, False])
def test_the_mixer_gives_it_to_anchors_known_and_unknown(detailed: Path, with_rows: bool) -> None:
    images, target, rows = batch(detailed)
    found = []
    for detail in (0.0, 1.0):
        mix = DisMix.load(detailed, p=1.0, seed=5, turn=False, detail=detail, labels="votes")
        found.append(mix(images, target, rows=rows if with_rows else None))
    assert torch.equal(found[0][1].probs, found[1][1].probs)
    assert not torch.equal(found[0][0], found[1][0])
    # Images as they are here, so that anchors encoded now are the stored ones.
    other = DisMix.load(detailed, p=1.0, seed=5, turn=False, detail=1.0, labels="votes")
    twin = other(images, target, rows=None if with_rows else rows)
    assert (twin[0] - found[1][0]).abs().max() <= 1.5 * GREY_LEVEL


def test_the_pool_has_it_too(detailed: Path) -> None:
    images, target, _rows = batch(detailed)
    made = []
    for detail in (0.0, 1.0):
        with DisMix.load(detailed, p=1.0, seed=5, turn=False, pool=16, detail=detail) as mix:
            made.append(mix(images, target)[0])
    assert not torch.equal(made[0], made[1])


def test_a_store_without_it_says_what_to_do(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    store = encode_split(run, cache=tmp_path / "cache")
    with pytest.raises(DisMixError, match="--details"):
        DisMix.load(run, detail=0.5)
    (store.folder / DETAILS["label"]).write_bytes(b"short")
    with pytest.raises(DisMixError, match="has 5 bytes of details"):
        DisMix.load(run, detail=0.5)
    # Encoding again cures it.
    encode_split(run, details=True, cache=tmp_path / "cache")
    DisMix.load(run, detail=0.5)
    with pytest.raises(DisMixError, match="0 to 1"):
        DisMix.load(run, detail=1.5)


def test_a_killed_writing_goes_on(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    store = encode_split(run, details=True, cache=tmp_path / "cache")
    whole = (store.folder / DETAILS["label"]).read_bytes()
    (store.folder / DETAILS["label"]).unlink()
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, run, tmp_path / "cache"], env=env, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert counted(store, "label").is_file()
    assert not (store.folder / DETAILS["label"]).exists()
    seen: list[int] = []

    def note(text: str, count: int, total: int) -> None:
        seen.extend([count] if text == "details" else [])

    encode_split(run, details=True, batch_size=4, cache=tmp_path / "cache", progress=note)
    assert seen[0] == 16
    assert (store.folder / DETAILS["label"]).read_bytes() == whole
    assert not counted(store, "label").exists()
