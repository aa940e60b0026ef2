"""Cut points between grades: the best of all, resampled, and how training keeps them."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.graders.toy import SMALL, toy_settings, toy_split, train_toy

from dismix.data.transforms import to_unit
from dismix.errors import DisMixError
from dismix.graders import saving
from dismix.graders.cut_points import (
    COST_OF_A_RANK,
    LEAST,
    PARTS,
    SURELY,
    best_cuts,
    choose_cuts,
    decide,
    fit_cuts,
)
from dismix.graders.evaluation import evaluate, grade_split
from dismix.graders.registry import GRADERS, create_grader
from dismix.graders.saving import load_grader, plain_state, save_grader
from dismix.graders.settings import TrainSettings, choose_settings
from dismix.labels import OrdinalTarget
from dismix.laws import majority_rank

#: What makes methods decide by the expected rank that have another rule by default.
BY_RANK = {"poe": {"decide": "rank"}, "gol": {"decide": "rank"}}
MODE = {"poe": {"decide": "mode"}, "gol": {"decide": "mode"}}


def _cost(places, grades, cuts):
    label = (places[:, None] >= np.asarray(cuts)).sum(1)
    return ((label != grades) + COST_OF_A_RANK * np.abs(label - grades)).sum()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_no_cut_points_cost_less(seed, ranks):
    rng = np.random.default_rng([seed, ranks])
    grades = rng.integers(ranks, size=9)
    # Of few decimals, so that some places are equal.
    places = (0.6 * grades + rng.normal(0, 0.7, 9)).clip(0, ranks - 1).round(1)
    cuts = best_cuts(places, grades, ranks)
    assert (np.diff(cuts) >= 0).all()
    candidates = np.unique(np.concatenate([[-1.0], places, [ranks + 1.0]]))
    least = min(
        _cost(places, grades, chosen)
        for chosen in itertools.combinations_with_replacement(candidates, ranks - 1)
    )
    assert _cost(places, grades, cuts) == pytest.approx(least)


def test_shrunken_places_are_cut_where_the_grades_part():
    rng = torch.Generator().manual_seed(0)
    grade = torch.randint(5, (300,), generator=rng)
    place = 1.6 + 0.2 * grade + 0.05 * torch.randn(300, generator=rng)
    cuts = fit_cuts(place, grade, 5)
    torch.testing.assert_close(cuts, torch.tensor([1.7, 1.9, 2.1, 2.3]), atol=0.03, rtol=0)
    assert (decide(place, cuts) == grade).float().mean() > 0.9
    torch.testing.assert_close(cuts, fit_cuts(place, grade, 5))


def test_few_images_change_nothing():
    grade = torch.zeros(LEAST - 1, dtype=torch.long)
    assert fit_cuts(torch.full((LEAST - 1,), 2.0), grade, 4).tolist() == [0.5, 1.5, 2.5]


@pytest.mark.parametrize("method", ["poe", "gol", "mwr", "rnc"])
def test_training_fits_them_on_validation_and_keeps_them(tmp_path: Path, method):
    small = SMALL.get(method, {}) | BY_RANK.get(method, {})
    images = toy_split()
    # Nobody teaches the outer ranks, so places lie between 1 and 2. MWR compares with images two
    # ranks apart, so it is taught one of them.
    hard = images.target.hard
    taught = hard.clamp(max=2) if method == "mwr" else hard // 2 + 1
    middle = OrdinalTarget.from_labels(taught.tolist(), 4)
    train = replace(images, target=middle)
    for run, cuts in (("a", "fitted"), ("b", "nearest")):
        train_toy(
            tmp_path / run, toy_settings(method, select="last", cuts=cuts, **small), train=train
        )
    one, other = (load_grader(tmp_path / run / "model.safetensors") for run in "ab")
    assert other.cuts.tolist() == [0.5, 1.5, 2.5]
    assert one.cuts.tolist() != [0.5, 1.5, 2.5]
    val = toy_split(20, seed=1)
    torch.testing.assert_close(
        one.cuts, fit_cuts(grade_split(one, val).rank, val.target.hard, 4), msg="not of validation"
    )
    # They decide; they do not teach.
    states = [plain_state(grader) for grader in (one, other)]
    assert all(torch.equal(x, states[1][name]) for name, x in states[0].items() if name != "cuts")
    scores = [evaluate(grader, toy_split(20, seed=1)) for grader in (one, other)]
    assert scores[0]["rps"] == scores[1]["rps"]
    # Where neighbours agree, places are whole ranks, and no cut tells more apart.
    assert scores[0]["accuracy"] >= scores[1]["accuracy"]


def test_models_of_before_take_the_nearest_rank(tmp_path: Path):
    grader = create_grader("mwr", num_ranks=3, **SMALL["mwr"])
    old = plain_state(grader)
    del old["cuts"]
    save_grader(grader, tmp_path / "model.safetensors", old)
    assert load_grader(tmp_path / "model.safetensors").cuts.tolist() == [0.5, 1.5]


@pytest.mark.parametrize("method", ["poe", "gol"])
def test_models_of_before_the_choice_decide_as_they_did(tmp_path: Path, method, monkeypatch):
    grader = create_grader(method, num_ranks=3, **SMALL[method], decide="rank")
    grader.cuts.copy_(torch.tensor([0.2, 1.1]))
    told = saving.describe(grader)
    del told["hparams"]["decide"]
    monkeypatch.setattr(saving, "describe", lambda _: told)
    save_grader(grader, tmp_path / "model.safetensors")
    loaded = load_grader(tmp_path / "model.safetensors")
    torch.testing.assert_close(loaded.deciding_cuts, torch.tensor([0.2, 1.1]))


@pytest.mark.parametrize("method", ["poe", "gol"])
def test_a_law_decides_for_its_most_probable_rank(tmp_path: Path, method):
    settings = toy_settings(method, select="last", **SMALL[method], decide="mode")
    assert settings.cuts is None
    train_toy(tmp_path, settings)
    grader, val = load_grader(tmp_path / "model.safetensors"), toy_split(20, seed=1)
    assert grader.deciding_cuts is None
    grades = grade_split(grader, val)
    assert torch.equal(grades.label, majority_rank(grades.probabilities))
    # Not what places between the ranks would say: bounds of the line move no grade.
    grader.cuts.fill_(-1.0)
    assert torch.equal(grade_split(grader, val).label, grades.label)


@pytest.mark.parametrize("seed", range(4))
def test_cut_points_are_chosen_where_they_are_surely_better(seed):
    rng = np.random.default_rng(seed)
    grade, places = rng.integers(4, size=90), rng.normal(size=90)
    # The mode knows a part of the grades, the place more, less or about as much.
    for spread in (0.1, 0.6, 1.0, 3.0):
        mode = np.where(rng.random(90) < 0.6, grade, rng.integers(4, size=90))
        place = torch.from_numpy(grade + spread * places)
        part = np.random.default_rng(0).permutation(90) % PARTS
        gains = np.zeros(90)
        for k in range(PARTS):
            held = part == k
            cuts = fit_cuts(place[~held], torch.from_numpy(grade[~held]), 4).numpy()
            label = (place.numpy()[held, None].astype(np.float32) >= cuts).sum(1)
            off, away = abs(mode - grade)[held], abs(label - grade[held])
            gains[held] = (off > 0) + 0.5 * off - (away > 0) - 0.5 * away
        surely = gains.mean() > SURELY * gains.std(ddof=1) / 90**0.5
        known = torch.from_numpy(grade)
        chosen = choose_cuts(place, torch.from_numpy(mode), known, 4)
        wanted = fit_cuts(place, known, 4) if surely else torch.full((3,), torch.nan)
        torch.testing.assert_close(chosen, wanted, equal_nan=True)
        assert surely == {0.1: True, 3.0: False}.get(spread, surely)


def test_few_images_leave_the_decision_to_the_law():
    """Of fewer than that, the parts to fit on would be too small to be fitted on."""
    enough = LEAST * PARTS // (PARTS - 1)
    grade = torch.arange(enough) % 3
    # Places that half-way cut points would all call 1.
    place, mode = 0.9 + 0.1 * grade, torch.ones_like(grade)
    for n, chosen in ((0, False), (LEAST, False), (enough - 1, False), (enough, True)):
        cuts = choose_cuts(place[:n], mode[:n], grade[:n], 3)
        assert bool(cuts.isnan().all()) != chosen


@pytest.mark.parametrize("method", ["poe", "gol"])
def test_validation_chooses_between_cut_points_and_the_mode(tmp_path: Path, method, monkeypatch):
    settings = toy_settings(method, select="last", **SMALL[method])
    assert (settings.hparams["decide"], settings.cuts) == ("auto", "fitted")
    val = toy_split(20, seed=1)
    for name, cuts in (("mode", [torch.nan] * 3), ("place", [0.4, 1.7, 2.5])):
        asked = []

        def choose(*given, cuts=cuts, asked=asked):
            asked.append(given)
            return torch.tensor(cuts)

        monkeypatch.setattr("dismix.graders.validation.choose_cuts", choose)
        train_toy(tmp_path / name, settings)
        grader = load_grader(tmp_path / name / "model.safetensors")
        torch.testing.assert_close(grader.cuts, torch.tensor(cuts), equal_nan=True)
        grades = grade_split(grader, val)
        mode, place = majority_rank(grades.probabilities), decide(grades.rank, grader.cuts)
        assert torch.equal(grades.label, mode if name == "mode" else place)
        rank, modes, known, ranks = asked[-1]
        assert (len(rank), len(modes), ranks) == (len(known), len(known), 4)


@pytest.mark.parametrize("method", ["poe", "gol"])
def test_the_authors_decide_by_rank(method):
    chosen = choose_settings(method, "reference")
    assert (chosen.hparams["decide"], chosen.cuts) == ("rank", "nearest")
    fitted = choose_settings(method, changes={"decide": "rank"})
    assert fitted.cuts == "fitted"
    assert choose_settings(method, "reference", {"decide": "auto"}).cuts == "fitted"


def test_only_those_that_need_them_have_the_setting():
    assert choose_settings("mwr").to_dict()["cuts"] == "fitted"
    assert choose_settings("mwr", "reference").cuts == "nearest"
    assert choose_settings("mwr", changes={"cuts": "none"}).cuts == "nearest"
    assert "cuts" not in choose_settings("cloc").to_dict()
    with pytest.raises(DisMixError, match="'ce' decides for the most probable rank; leave it out"):
        choose_settings("ce", changes={"cuts": "fitted"})
    with pytest.raises(DisMixError, match="'cuts': 'best' does not fit; give fitted or nearest"):
        choose_settings("poe", changes={"cuts": "best"})
    json.dumps(choose_settings("poe").to_dict())
    with pytest.raises(DisMixError, match=r"decide=mode decides for .*, or set decide=rank"):
        choose_settings("poe", changes={"cuts": "nearest", "decide": "mode"})
    with pytest.raises(DisMixError, match=r"'poe' with decide=auto fits its cut points; leave it"):
        choose_settings("poe", changes={"cuts": "nearest"})
    # Nor from a file: settings that would change nothing are no settings.
    with pytest.raises(DisMixError, match="'gol' with decide=mode decides for the most probable"):
        TrainSettings("gol", cuts="fitted", hparams={"decide": "mode"})


def test_a_head_that_decides_otherwise_refuses_them():
    classifies = {"head": "classification"}
    assert not create_grader("rnc", num_ranks=3, **classifies).by_rank
    assert create_grader("rnc", num_ranks=3).by_rank
    for cuts in ("fitted", "nearest", "none"):
        with pytest.raises(DisMixError) as caught:
            choose_settings("rnc", changes={**classifies, "cuts": cuts})
        assert str(caught.value) == (
            "setting 'cuts': 'rnc' with head=classification decides for the most probable rank; "
            "leave it out, or set head=regression"
        )
    # Nothing is said of what nobody asked for, nor recorded as if it had been done.
    for preset in ("dismix", "reference"):
        assert choose_settings("rnc", preset, classifies).cuts is None
    assert (
        choose_settings("rnc", changes={"head": "regression", "cuts": "nearest"}).cuts == "nearest"
    )


@pytest.mark.parametrize(
    ("method", "options"), [*((name, MODE.get(name, {})) for name in GRADERS), *BY_RANK.items()]
)
def test_whoever_takes_them_decides_by_them(method, options):
    """A setting that is accepted changes grades; one that would not is refused."""
    try:
        takes = choose_settings(method, changes={"cuts": "nearest", **options}).cuts == "nearest"
    except DisMixError:
        takes = False
    assert takes == (options.get("decide") == "rank" or method in ("mwr", "rnc"))
    grader = create_grader(method, num_ranks=4, **SMALL.get(method, {}), **options).eval()
    split = toy_split(8)
    with torch.no_grad():
        grader.fit_reference([(to_unit(split.source), split.target)])
    # The law stays as it is: only where it is cut changes.
    grader.cuts.fill_(-1.0)
    highest = grader.predict(split.source).label
    grader.cuts.fill_(9.0)
    lowest = grader.predict(split.source).label
    assert (highest.tolist() == [3] * 8 and lowest.tolist() == [0] * 8) == takes
    assert takes or torch.equal(highest, lowest)
