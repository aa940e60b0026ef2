"""Everything made is what mixing itself makes, and can be made again."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.explore.conftest import png_bytes, same
from tests.mixing.toy_run import FORMS

from dismix.data.transforms import from_unit, to_unit
from dismix.errors import DisMixError
from dismix.explore.recipe import Recipe
from dismix.explore.session import UPLOADS_KEPT, Session
from dismix.explore.takeaway import describe_made, read_recipe
from dismix.generator.traverse import ordinal_traverse
from dismix.mixing.encoding import encode_split
from dismix.mixing.engine import MixEngine
from dismix.mixing.policies import majority_target, mix_targets
from dismix.mixing.policy_draws import POLICIES, PolicyDraws


@pytest.fixture(scope="module")
def engine(home: Path) -> MixEngine:
    store = encode_split(home / "run", cache=home / "cache")
    return MixEngine.load(home / "run", store.folder)


@pytest.mark.parametrize("policy", POLICIES)
def test_policies_are_those_of_mixing(session: Session, engine: MixEngine, policy: str) -> None:
    start, partner, share = 3, 17, 0.3
    made = session.policies(f"train/{start}", f"train/{partner}", share)[policy]
    asked = session.neighbour(f"train/{start}", session.encoded(f"train/{partner}").rank)
    draws = PolicyDraws(
        policy=torch.tensor([POLICIES.index(policy)]),
        lam=torch.tensor([1 - share]),
        from_partner=torch.tensor([policy == "order_swap"]),
        partner=torch.tensor([partner]),
        asked=torch.tensor([asked]),
        adjacent=torch.tensor([True]),
    )
    expected = engine.mix(draws, engine.stored(torch.tensor([start])))
    assert same(made.pixels, from_unit(expected)[0])
    own, other = (majority_target(engine.store.target[torch.tensor([i])]) for i in (start, partner))
    label = mix_targets(draws, own, other)
    assert made.rank == pytest.approx(float(label.rank[0]), abs=1e-5)
    assert made.law == pytest.approx(label.probs[0].tolist(), abs=1e-5)


def test_training_images_are_encoded_with_their_label_and_others_without(session: Session) -> None:
    model = session.model
    for key in ("train/2", "test/1"):
        subject = session.subject(key)
        image = to_unit(subject.pixels[None])
        with torch.no_grad():
            told = None if subject.levels is None else subject.levels
            expected = model.encode(image, told)
        assert (subject.levels is None) == key.startswith("test")
        assert torch.equal(session.encoded(key).codes.ordinal, expected.ordinal)
        assert torch.equal(session.encoded(key).codes.nonordinal, expected.nonordinal)


def test_nothing_mixed_is_the_reconstruction(session: Session) -> None:
    image = to_unit(session.subject("test/0").pixels[None])
    with torch.no_grad():
        expected = session.model.decode(session.model.encode(image))
    assert same(session.make(Recipe("test/0"))[0].pixels, from_unit(expected)[0])


def test_strip_is_the_traverse_of_the_generator(session: Session) -> None:
    image = to_unit(session.subject("test/2").pixels[None])
    ranks = torch.tensor(session.strip_ranks())
    expected = from_unit(ordinal_traverse(session.model, image, ranks))[:, 0]
    frames = session.strip(key="test/2")
    assert [frame.rank for frame in frames] == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4]
    assert all(same(f.pixels, e) for f, e in zip(frames, expected, strict=True))


def test_swap_keeps_appearance_and_exchanges_severity(session: Session) -> None:
    first, second = session.swap("train/0", "train/9")
    one, two = session.encoded("train/0"), session.encoded("train/9")
    expected = session.model.decode(type(one.codes)(two.codes.ordinal, one.codes.nonordinal))
    assert same(first.pixels, from_unit(expected.detach())[0])
    assert (first.rank, second.rank) == (two.rank, one.rank)
    again = session.swap("train/0", "train/0")[0]
    assert same(again.pixels, session.make(Recipe("train/0"))[0].pixels)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_generator(with_model: Callable[..., Session], form: str) -> None:
    session = with_model(**FORMS[form])
    asks = form not in ("single", "unconditioned")
    assert session.can_ask == asks
    recipes = [Recipe("train/1", "test/0", severity=0.4, appearance=0.6)]
    recipes += [Recipe("test/1", rank=3.0, severity=0.5)] if asks else []
    assert all(made.pixels.shape == (1, 32, 32) for made in session.make(*recipes))
    assert list(session.policies("train/1", "test/0", 0.5)) == list(POLICIES[: 3 + asks])
    assert len(session.strip("test/1", "train/0")) == (9 if asks else 7)
    if not asks:
        with pytest.raises(DisMixError, match="cannot be asked"):
            session.make(Recipe("train/1", rank=2.0, severity=1.0))
        with pytest.raises(DisMixError, match="use a partner"):
            session.strip("train/1")


@pytest.mark.parametrize(("ranks", "channels"), [(2, 1), (2, 3), (12, 3)])
def test_uploads_alone_suffice(bare: Callable[..., Session], ranks: int, channels: int) -> None:
    session = bare(ranks, channels)
    one = session.upload(png_bytes(1, (50, 40, 3))).key
    two = session.upload(png_bytes(2, (30, 70))).key
    assert session.subject(one).pixels.shape == (channels, 32, 32)
    assert sum(session.encoded(one).reading) == pytest.approx(1)
    made = session.make(Recipe(one, two, severity=0.5, appearance=0.5))[0]
    assert made.pixels.shape == (channels, 32, 32)
    assert len(made.law) == ranks
    assert len(session.strip(one)) == {2: 3, 12: 12}[ranks]
    assert 0 <= session.neighbour(one, session.encoded(two).rank) < ranks
    assert session.partner_for(one) is None


def test_an_uploaded_training_file_is_read_as_the_run_read_it(session: Session, home: Path) -> None:
    name = session.subject("train/4").name
    upload = session.upload((home / "data" / "images" / name).read_bytes())
    assert torch.equal(upload.pixels, session.subject("train/4").pixels)
    assert upload.law is None
    assert upload.levels is None


def test_old_uploads_are_forgotten(bare: Callable[..., Session]) -> None:
    session = bare(3, 1)
    first = session.upload(png_bytes(0)).key
    session.make(Recipe(first))
    keys = [session.upload(png_bytes(seed)).key for seed in range(UPLOADS_KEPT + 1)]
    assert not session._made
    assert session.subject(keys[-1]).pixels.shape == (1, 32, 32)
    with pytest.raises(DisMixError, match="no longer kept; upload it again"):
        session.subject(keys[0])
    # One that is sent again is kept as long as any other.
    again = session.upload(png_bytes(1)).key
    assert again == keys[1]
    session.upload(png_bytes(999))
    assert session.subject(again).key == again
    with pytest.raises(DisMixError, match="no longer kept"):
        session.subject(keys[2])


def test_provenance_makes_the_picture_again(session: Session) -> None:
    upload = session.upload(png_bytes(5)).key
    for recipe in (
        Recipe("train/3", "test/1", severity=0.25, appearance=0.75),
        Recipe(upload, "train/1", severity=1.0),
        Recipe("train/2", rank=4.0, severity=0.5, regenerated=True),
    ):
        made = session.make(recipe)[0]
        text = json.dumps(describe_made(session, made))
        note = json.loads(text)
        session._made.clear()
        again = session.make(read_recipe(note))[0]
        assert torch.equal(again.pixels, made.pixels)
        assert note["notice"].endswith("not for diagnosis.")
        assert note["policy"] == recipe.policy
    with pytest.raises(DisMixError, match="not the provenance"):
        read_recipe({"recipe": {"start": 1, "what": 2}})


def test_provenance_of_an_upload_has_no_name(session: Session) -> None:
    key = session.upload(png_bytes(6)).key
    source = describe_made(session, session.make(Recipe(key))[0])["sources"][0]
    assert source["image"] is None
    assert source["graded_by"] == "the generator's own reading"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"severity": 0.5}, "nothing to move towards; choose a partner"),
        ({"appearance": 0.5, "rank": 1.0}, "appearance has nothing"),
        ({"partner": "train/1", "severity": 1.2}, "severity is 1.2; give a share"),
        ({"rank": 1.5, "severity": 0.5, "regenerated": True}, "no whole rank"),
    ],
)
def test_impossible_recipes(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(DisMixError, match=message):
        Recipe("train/0", **arguments)  # type: ignore[arg-type]


def test_unknown_pictures_and_grades(session: Session) -> None:
    for key in ("train/999", "train/-1", "../x", "val/one", "upload/abc"):
        with pytest.raises(DisMixError):
            session.subject(key)
    with pytest.raises(DisMixError, match="no grade 9"):
        session.make(Recipe("train/0", rank=9.0, severity=1.0))
    with pytest.raises(DisMixError, match="no grade nan"):
        session.make(Recipe("train/0", rank=float("nan"), severity=1.0))


def test_made_pictures_are_remembered(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    recipes = [Recipe("train/0", "train/1", severity=k / 100) for k in range(3)]
    first = session.make(*recipes, recipes[0])
    assert first[0] is first[3]
    monkeypatch.setattr(session, "decode", None)
    assert session.make(recipes[2], recipes[0]) == [first[2], first[0]]


def test_partner_has_a_neighbouring_rank(session: Session) -> None:
    for key in session.library.browse("test"):
        partner = session.partner_for(key, seed=3)
        assert partner is not None
        assert abs(session.encoded(partner).rank - session.encoded(key).rank) == 1
