"""Simulated annotators against closed forms, and what they do to a manifest."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from dismix.data.annotators import (
    PRESETS,
    measure_variability,
    simulate_annotators,
    simulate_votes,
)
from dismix.data.manifest import ManifestMeta, make_manifest
from dismix.errors import DisMixError

IDRID = np.repeat(np.arange(5), [134, 20, 136, 74, 49])
KOA = np.repeat(np.arange(5), [2614, 1199, 1728, 863, 200])
META = ManifestMeta(ranks=("0", "1", "2", "3", "4"), notes="as published")


def votes_of(grades, preset, mode="per_vote", seed=0, **options):
    up, down = PRESETS[preset]
    return simulate_votes(grades, flip_up=up, flip_down=down, mode=mode, seed=seed, **options)


def manifest_of(grades, split="train"):
    table = pd.DataFrame({"image": [f"{i}.png" for i in range(len(grades))], "grade": grades})
    return make_manifest(table.assign(split=split), META, ".")


@pytest.mark.parametrize(("preset", "wrong"), [("30", 0.683), ("50", 0.837), ("70", 0.991)])
def test_five_independent_flips_give_the_binomial_share_of_wrong_majorities(preset, wrong):
    up, down = PRESETS[preset]
    assert binom.sf(2, 5, up) == pytest.approx(wrong, abs=5e-4)
    grades = np.repeat([1, 2], 20_000)
    report = measure_variability(votes_of(grades, preset), grades)
    assert report.grades[1].wrong_majority == pytest.approx(binom.sf(2, 5, up), abs=0.012)
    assert report.grades[2].wrong_majority == pytest.approx(binom.sf(2, 5, down), abs=0.012)
    assert report.grades[1].flipped_votes == pytest.approx(up, abs=0.006)
    assert report.grades[1].flipped_images == pytest.approx(1 - (1 - up) ** 5, abs=0.012)
    split = 1 - up**5 - (1 - up) ** 5
    assert report.grades[1].non_unanimous == pytest.approx(split, abs=0.012)


@pytest.mark.parametrize("preset", ["30", "50", "70"])
def test_toss_ups_on_ambiguous_images_only(preset):
    up, down = PRESETS[preset]
    grades = np.repeat([1, 2], 10_000)
    report = measure_variability(votes_of(grades, preset, "per_image"), grades)
    for grade, share in ((1, up), (2, down)):
        found = report.grades[grade]
        assert found.wrong_majority == pytest.approx(share / 2, abs=0.012)
        assert found.flipped_votes == pytest.approx(share / 2, abs=0.012)
        assert found.non_unanimous == pytest.approx(share * 30 / 32, abs=0.012)
        assert found.flipped_images == pytest.approx(share * 31 / 32, abs=0.012)


@pytest.mark.parametrize(
    ("grades", "shares"), [(IDRID, (25, 44, 64)), (KOA, (36, 52, 72))], ids=["idrid", "koa"]
)
def test_flip_share_among_grades_one_and_two_is_the_papers_variability(grades, shares):
    for preset, share in zip(("30", "50", "70"), shares, strict=True):
        found = [
            measure_variability(votes_of(grades, preset, seed=seed), grades).affected.flipped_votes
            for seed in range(4)
        ]
        assert 100 * np.mean(found) == pytest.approx(share, abs=1.5)


def test_ambiguous_images_are_an_exact_share():
    votes = votes_of(IDRID, "30", "per_image", p_split=1.0)
    report = measure_variability(votes, IDRID)
    # All annotators flip together: 12 of 20 and 27 of 136 images.
    assert report.grades[1].wrong_majority == 12 / 20
    assert report.grades[2].wrong_majority == 27 / 136
    assert report.overall.non_unanimous == 0


@pytest.mark.parametrize("mode", ["per_vote", "per_image"])
def test_only_the_two_grades_flip_and_only_into_each_other(mode):
    votes = votes_of(IDRID, "70", mode)
    rest = ~np.isin(IDRID, (1, 2))
    assert (votes[rest] == IDRID[rest, None]).all()
    assert set(np.unique(votes[IDRID == 1])) == {1, 2} == set(np.unique(votes[IDRID == 2]))
    other = votes_of(IDRID, "70", mode, lower=3, upper=4)
    assert (other[IDRID < 3] == IDRID[IDRID < 3, None]).all()
    assert set(np.unique(other[IDRID == 3])) == {3, 4}


def test_clean_votes_are_copies():
    assert (votes_of(IDRID, "clean") == IDRID[:, None]).all()


@pytest.mark.parametrize("mode", ["per_vote", "per_image"])
def test_votes_belong_to_images_not_to_places(mode):
    keys = [f"{i}.png" for i in range(len(IDRID))]
    votes = votes_of(IDRID, "50", mode, keys=keys)
    order = np.random.default_rng(0).permutation(len(IDRID))
    again = votes_of(IDRID[order], "50", mode, keys=[keys[i] for i in order])
    assert (again == votes[order]).all()
    assert (votes_of(IDRID, "50", mode, keys=keys, seed=1) != votes).any()


def test_per_vote_draws_ignore_other_rows():
    votes = votes_of(IDRID, "50")
    assert (votes_of(IDRID[:150], "50") == votes[:150]).all()
    # More annotators leave the first ones' votes as they were.
    assert (votes_of(IDRID, "50", annotators=9)[:, :5] == votes).all()


def test_manifest_gets_votes_for_training_and_validation_only():
    grades = np.tile(np.arange(5), 60)
    split = np.repeat(["train", "val", "test"], 100)
    manifest, report = simulate_annotators(manifest_of(grades, split), "70", seed=0)
    assert manifest.annotators == ["1", "2", "3", "4", "5"]
    assert np.isnan(manifest.votes[split == "test"]).all()
    assert not np.isnan(manifest.votes[split != "test"]).any()
    assert manifest.grades.tolist() == grades.tolist()
    assert report.overall.images == 200
    again = measure_variability(manifest.votes[split != "test"], grades[split != "test"])
    assert report.affected == again.affected
    # The flipped votes, not the true grades, are what training and validation aim at.
    target = manifest.target().hard.numpy()
    for name in ("train", "val"):
        assert (target != grades)[(split == name) & (grades == 1)].mean() > 0.8
    assert (target == grades)[split == "test"].all()
    assert manifest.meta.notes.startswith("as published; 5 simulated annotators, mode per_vote")


@pytest.mark.parametrize("mode", ["per_vote", "per_image"])
def test_manifest_votes_do_not_depend_on_the_order_of_rows(mode):
    manifest = manifest_of(IDRID)
    votes, _ = simulate_annotators(manifest, "50", seed=3, mode=mode)
    order = np.random.default_rng(0).permutation(len(IDRID))
    again, _ = simulate_annotators(manifest.rows(order), "50", seed=3, mode=mode)
    assert (again.votes == votes.votes[order]).all()


def test_flips_may_replace_the_preset():
    _, report = simulate_annotators(manifest_of(IDRID), seed=0, flip_up=1.0, flip_down=0.0)
    assert report.grades[1].flipped_votes == 1
    assert report.grades[2].flipped_votes == 0


def test_report_reads_as_a_paragraph_and_as_numbers():
    _, report = simulate_annotators(manifest_of(np.array([0, 1, 1, 3])), "70", seed=0)
    text = str(report)
    assert "\n" not in text
    for part in ("5 simulated annotators, mode per_vote, 1->2 90%, 2->1 60%", "wrong majority"):
        assert part in text
    plain = report.to_dict()
    assert plain["grade_2"] == {
        "images": 0,
        "flipped_votes": None,
        "flipped_images": None,
        "non_unanimous": None,
        "wrong_majority": None,
    }
    assert plain["overall"]["images"] == 4
    assert "grade 2: no images" in text


def test_grades_that_are_exchanged_are_refused():
    # As `--lower 3` alone asks for, since the upper one is the third by default.
    with pytest.raises(DisMixError, match="at position 3, is above the upper, at 2; exchange"):
        simulate_annotators(manifest_of(IDRID), seed=0, lower=3)
    with pytest.raises(DisMixError, match="is above the upper"):
        simulate_votes([0, 1], lower=1, upper=0, seed=0)


def test_mistakes_are_named():
    manifest = manifest_of(IDRID)
    voted, _ = simulate_annotators(manifest, seed=0)
    with pytest.raises(DisMixError, match="already has annotators"):
        simulate_annotators(voted, seed=0)
    laws = {f"prob_{rank}": 0.2 for rank in range(5)}
    with pytest.raises(DisMixError, match=r"soft labels \(prob_0 to prob_4\), which go before"):
        simulate_annotators(manifest.with_table(manifest.table.assign(**laws)), seed=0)
    with pytest.raises(DisMixError, match="unknown preset '40'"):
        simulate_annotators(manifest, "40", seed=0)
    with pytest.raises(DisMixError, match=r"'flip_up': 1\.2 is no probability"):
        simulate_annotators(manifest, seed=0, flip_up=1.2)
    with pytest.raises(DisMixError, match="did you mean 'per_image'"):
        simulate_votes([1], mode="perimage", seed=0)
    with pytest.raises(DisMixError, match="'lower': there is no grade -1; count from 0"):
        simulate_votes([0, 1, 2], lower=-1, upper=1, seed=0)
    with pytest.raises(DisMixError, match="0 annotators"):
        simulate_votes([1], annotators=0, seed=0)
    with pytest.raises(DisMixError, match="rank 7, counted from 0, is beyond the 5 ranks"):
        simulate_annotators(manifest, seed=0, upper=7)
