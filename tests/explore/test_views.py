"""What is shown: pictures, laws and links; nothing from outside unescaped."""

import base64
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.explore.conftest import png_bytes

from dismix.data.transforms import equalize
from dismix.errors import DisMixError
from dismix.explore import cards, views
from dismix.explore.codebook import map_codes
from dismix.explore.desk import TABS, TOWARDS, Desk
from dismix.explore.opening import open_session
from dismix.explore.opinion import Opinion
from dismix.explore.pictures import as_image, difference, film_strip, highlighted
from dismix.explore.recipe import Recipe
from dismix.explore.session import Session
from dismix.graders.base import Grader
from dismix.graders.registry import create_grader

#: What the toy run calls its ranks.
KL = ["none", "doubtful", "minimal", "moderate", "severe"]


def toy_grader(ranks: int = 5, *, grey: bool = True, equalized: bool = False) -> Grader:
    grader = create_grader("ce", backbone="tiny", num_ranks=ranks, seed=0)
    grader.about = {"ranks": KL[:ranks], "size": 24, "grey": grey,
                    "equalize": equalized}  # fmt: skip
    return grader.eval()


@pytest.fixture
def judged(session: Session) -> Session:
    """The same session with a grader."""
    return Session(
        session.model, session.library, session.run, nearest=session.nearest,
        opinion=Opinion(toy_grader(grey=False), session.ranks),
    )  # fmt: skip


def saved(page: str, suffix: str) -> list[bytes]:
    """Return what the page's links to files of a kind hold."""
    found = re.findall(rf'download="[\w.]+\.{suffix}" href="data:[\w/]+;base64,([^"]+)"', page)
    return [base64.b64decode(text) for text in found]


def test_mix_view_shows_and_saves_the_made_picture(judged: Session) -> None:
    page = views.mix_view(judged, "test/1", "train/5", None, 0.5, 0.25)
    expected = judged.make(Recipe("test/1", "train/5", severity=0.5, appearance=0.25))[0]
    (picture,), (origin,) = saved(page, "png"), saved(page, "json")
    with Image.open(io.BytesIO(picture)) as image:
        assert np.array_equal(np.asarray(image), expected.pixels[0].numpy())
        assert "not for diagnosis" in image.info["Comment"]
        inside = json.loads(image.info["dismix"])
    note = json.loads(origin)
    assert inside == note
    assert note["recipe"]["severity"] == 0.5
    assert len(note["nearest_training_images"]) == 4
    assert sum(note["grader"]["probabilities"].values()) == pytest.approx(1, abs=1e-3)
    assert page.count("Grader&#x27;s opinion") == 2
    assert page.count("<figure") == 8
    assert "Training label" in page


def test_views_without_choices_say_what_to_do(session: Session) -> None:
    assert views.NEED_START in views.mix_view(session, None, None, None, 0.5, 0.5)
    alone = views.mix_view(session, "test/1", None, None, 0.5, 0.5)
    assert views.NEED_PARTNER in alone
    assert "Made picture" in alone
    assert views.NEED_PARTNER not in views.mix_view(session, "test/1", None, 2, 0.5, 0.0)
    assert views.NEED_PARTNER in views.swap_view(session, "test/1", None)
    assert views.NEED_PARTNER in views.policies_view(session, "test/1", None, 0.5)
    assert views.NEED_START in views.strip_view(session, None, None)
    assert "x" in views.side_card(session, None, "x")


def test_strip_swap_and_policies(judged: Session) -> None:
    strip = views.strip_view(judged, "train/1", None)
    assert strip.count("<figure") == 9
    assert strip.count("your picture&#x27;s grade") == 1
    (sheet,), (frames,) = saved(strip, "png"), saved(strip, "json")
    assert Image.open(io.BytesIO(sheet)).width > 9 * 128
    assert len(json.loads(frames)["frames"]) == 9
    assert len(saved(views.swap_view(judged, "train/1", "test/2"), "json")) == 2
    policies = views.policies_view(judged, "train/1", "test/2", 0.5)
    made = [json.loads(text)["policy"] for text in saved(policies, "json")]
    assert made == ["ordinal_mix", "nonordinal_mix", "order_swap", "generate_and_mix"]


def test_training_labels_are_named_whole(session: Session) -> None:
    library = replace(session.library, ranks=tuple(f"grade {i}" for i in range(5)))
    named = Session(session.model, library, session.run)
    page = views.policies_view(named, "train/1", "test/2", 0.5)
    titles = re.findall(r"Training label: ([^<]*)", page)
    assert titles
    for title in titles:
        assert re.fullmatch(r"[\d.]+.*grade \d.*|[\d.]+", title), title


def test_uploads_are_read_by_the_generator_and_without_data_nothing_is_near(
    bare: Callable[..., Session],
) -> None:
    session = bare(12, 3)
    key = session.upload(png_bytes()).key
    card = views.side_card(session, key, "")
    assert "nobody graded it" in card
    assert "own reading" in card
    assert card.count("dx-bar") <= 5
    page = views.mix_view(session, key, None, 11, 1.0, 0.0)
    assert "read by the generator" in page
    assert "cannot be shown" in page


def test_names_from_outside_are_escaped(session: Session) -> None:
    evil = "<img src=x onerror=alert(1)>${1}{{2}}`"
    shelf = session.library.shelves["train"]
    library = replace(
        session.library, ranks=(evil, *session.ranks[1:]),
        shelves={"train": replace(shelf, names=[evil] * len(shelf.names))},
    )  # fmt: skip
    nasty = Session(session.model, library, Path(evil.replace("/", "")))
    pages = [
        views.side_card(nasty, "train/0", ""),
        views.mix_view(nasty, "train/0", "train/1", None, 0.5, 0.5),
        views.strip_view(nasty, "train/0", None),
        cards.notice(evil, "error"),
        views.codebook_view(nasty, map_codes(nasty)),
    ]
    for page in pages:
        shown = re.sub(r"base64,[^\"]*", "", page)
        assert "<img src=x" not in shown
        assert not set("{}$`") & set(shown)


def test_opinion_is_the_graders(session: Session) -> None:
    pictures = torch.stack([session.subject(f"train/{i}").pixels for i in range(3)])
    for grey, equalized in ((True, False), (True, True)):
        grader = toy_grader(grey=grey, equalized=equalized)
        grader.about["size"] = 32
        expected = grader.predict(equalize(pictures) if equalized else pictures)
        found = Opinion(grader, session.ranks)(pictures)
        assert torch.allclose(found.probabilities, expected.probabilities, atol=1e-6)
    colour = Opinion(toy_grader(grey=False), session.ranks)(pictures)
    assert colour.probabilities.shape == (3, 5)
    grey_of_colour = Opinion(toy_grader(), session.ranks)(pictures.expand(-1, 3, -1, -1))
    assert torch.allclose(
        grey_of_colour.probabilities,
        Opinion(toy_grader(), session.ranks)(pictures).probabilities,
        atol=1e-5,
    )
    with pytest.raises(DisMixError, match="knows 3 ranks, the generator 5"):
        Opinion(toy_grader(3), session.ranks)


def test_a_grader_of_other_ranks_is_refused_or_told(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grader = toy_grader()
    monkeypatch.setattr(Grader, "load", lambda run, device: grader)
    grader.about["ranks"] = KL[::-1]
    with pytest.raises(
        DisMixError, match=r"severe, the grader severe, .*, none; give --grader one"
    ):
        open_session(home / "run", grader=tmp_path, cache=home / "cache")
    grader.about["ranks"] = [*KL[:4], "worst"]
    with pytest.warns(UserWarning, match="moderate, worst; they are taken for the same ones"):
        open_session(home / "run", grader=tmp_path, cache=home / "cache")


def test_difference_is_red_where_brighter_and_blue_where_darker() -> None:
    before = torch.full((3, 1, 3), 100, dtype=torch.uint8)
    made = before.clone()
    made[:, 0, 0], made[:, 0, 2] = 200, 0
    picture, amount = difference(made, before)
    red, same, blue = picture[:, 0].T.tolist()
    assert red[0] > red[2]
    assert blue[2] > blue[0]
    assert same == [255, 255, 255]
    assert amount == pytest.approx(100 * 200 / 3 / 255, abs=1e-3)


def test_pictures_for_people() -> None:
    one = torch.zeros(1, 64, 64, dtype=torch.uint8)
    assert film_strip([one] * 3, ["a", "b", "c"], 1).mode == "RGB"
    assert as_image(one).mode == "L"
    assert as_image(one.expand(3, -1, -1)).mode == "RGB"
    marked = highlighted(one, np.array([[True, False], [False, False]]))
    assert marked[0, 0, 0] > 100
    assert int(marked[:, 40:, 40:].max()) == 0


def test_codebook_counts_what_the_generator_chooses(session: Session) -> None:
    maps = map_codes(session)
    assert len(maps.keys) == 45
    assert set(maps.books) == {"ordinal", "nonordinal"}
    use = maps.books["nonordinal"]
    assert use.counts.sum() == use.indices.size
    best = use.top(1)[0]
    assert use.counts[best] == use.counts.max()
    found = use.images_of(best, 3)
    shares = [(use.indices[i] == best).mean() for i in range(45)]
    assert found[0][1].mean() == max(shares)
    page = views.codebook_view(session, maps)
    assert page.count('class="dx-pt"') == 90
    assert "tinted" in views.code_view(session, maps, "nonordinal", best)
    elsewhere = replace(use, indices=np.zeros_like(use.indices))
    sparse = replace(maps, books={"nonordinal": elsewhere})
    assert "not used" in views.code_view(session, sparse, "nonordinal", 5)
    with pytest.raises(DisMixError, match="no code 99"):
        use.images_of(99, 1)


def test_single_codebook_has_one_map(with_model: Callable[..., Session]) -> None:
    assert list(map_codes(with_model(codebooks="single")).books) == ["nonordinal"]


def test_desk_renders_the_tab_in_sight(session: Session, tmp_path: Path) -> None:
    desk = Desk(session, tmp_path)
    for tab in TABS:
        made = desk.render(tab, "test/0", "train/3", TOWARDS[0], 4, 50, 20, 50)
        assert [view is not None for view in made] == [name == tab for name in TABS]
    towards = desk.render("mix", "test/0", None, TOWARDS[1], 4, 100, 0, 50)[0]
    assert towards is not None
    assert "taught as grade 4" in towards
    broken = desk.render("mix", "upload/gone", None, TOWARDS[0], 4, 50, 0, 50)[0]
    assert broken is not None
    assert 'role="alert"' in broken


def test_desk_takes_uploads_from_its_folder_only(session: Session, tmp_path: Path) -> None:
    folder = tmp_path / "uploads"
    folder.mkdir()
    desk = Desk(session, folder)
    good, outside = folder / "knee_of_mr_x.png", tmp_path / "private.png"
    good.write_bytes(png_bytes(3))
    outside.write_bytes(png_bytes(3))
    key, said = desk.take(str(good))
    assert key is not None
    assert "was read" in said
    assert not good.exists()
    assert desk.take(str(outside))[0] is None
    assert desk.take(str(folder / ".." / "private.png"))[0] is None
    assert outside.exists()
    assert "was lost" in desk.take(str(folder / "gone.png"))[1]


def test_gallery_pages(session: Session, tmp_path: Path) -> None:
    desk = Desk(session, tmp_path)
    pictures, keys, said = desk.shelf("all", None, 1)
    assert len(pictures) == len(keys) == 45
    assert said == "45 images, page 1 of 1"
    assert {k.split("/")[0] for k in desk.shelf("val", None, 9)[1]} == {"val"}
    assert {session.encoded(k).rank for k in desk.shelf("all", 3, 1)[1]} == {3}
    seeds = {desk.another(None, seed)[0] for seed in range(8)}
    assert len(seeds) > 3


def test_desk_turns_every_mistake_into_a_box(session: Session, tmp_path: Path) -> None:
    desk = Desk(session, tmp_path)
    assert desk.partner("upload/gone", 3) == (None, 4)
    assert desk.partner("train/3", 3)[0] is not None
    _, _, names = desk.codes("ordinal")
    assert "Used by" in desk.code("ordinal", names[0][1])
    assert "there is no code 99999; choose 0 to" in desk.code("ordinal", 99999)
