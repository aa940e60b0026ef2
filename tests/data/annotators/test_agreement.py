"""Agreement statistics against statsmodels, krippendorff and loops."""

import json
import warnings
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dismix.data.annotators import fleiss_kappa, krippendorff_alpha, measure_agreement
from dismix.errors import DisMixError

NAN = float("nan")


def random_votes(seed, images=60, annotators=4, ranks=5, gaps=0.25):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, ranks, (images, 1))
    votes = np.clip(truth + rng.integers(-1, 2, (images, annotators)), 0, ranks - 1).astype(float)
    votes[rng.random(votes.shape) < gaps] = NAN
    return votes


def counts_of(votes, ranks=5):
    return (votes[:, :, None] == np.arange(ranks)).sum(axis=1)


def slow_kappa(x, y, ranks, power):
    """Cohen's kappa from disagreement weights |i - j|^power (0: any disagreement is 1)."""

    def weight(i, j):
        return abs(i - j) ** power if power else float(i != j)

    n = len(x)
    observed = sum(weight(i, j) for i, j in zip(x, y, strict=True)) / n
    expected = sum(
        weight(i, j) * np.mean(x == i) * np.mean(y == j) for i in range(ranks) for j in range(ranks)
    )
    return 1 - observed / expected


def slow_fleiss(votes, ranks):
    """Pairs of votes that agree, image by image."""
    agree, shares = [], []
    for row in votes:
        given = [int(v) for v in row if not np.isnan(v)]
        if len(given) < 2:
            continue
        agree.append(np.mean([a == b for a, b in combinations(given, 2)]))
        shares.append([given.count(c) / len(given) for c in range(ranks)])
    chance = sum(p**2 for p in np.mean(shares, axis=0))
    return (np.mean(agree) - chance) / (1 - chance)


@pytest.mark.parametrize("seed", range(4))
def test_cohens_kappas_agree_with_a_loop(seed):
    votes = random_votes(seed)
    result = measure_agreement(votes, 5)
    for a, b in combinations(range(4), 2):
        both = ~np.isnan(votes[:, a]) & ~np.isnan(votes[:, b])
        x, y = votes[both, a].astype(int), votes[both, b].astype(int)
        assert result.shared[a, b] == both.sum()
        assert result.percent[a, b] == pytest.approx(np.mean(x == y))
        for name, power in (("unweighted", 0), ("linear", 1), ("quadratic", 2)):
            expected = slow_kappa(x, y, 5, power)
            assert result.kappa[name][a, b] == pytest.approx(expected)
            assert result.kappa[name][b, a] == pytest.approx(expected)
    assert result.notes == ()


def test_fleiss_agrees_with_statsmodels_without_gaps():
    inter_rater = pytest.importorskip("statsmodels.stats.inter_rater")
    for seed in range(5):
        counts = counts_of(random_votes(seed, gaps=0))
        expected = inter_rater.fleiss_kappa(counts, method="fleiss")
        assert fleiss_kappa(counts) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(5))
def test_fleiss_with_gaps_agrees_with_pairs_of_votes(seed):
    votes = random_votes(seed)
    assert fleiss_kappa(counts_of(votes)) == pytest.approx(slow_fleiss(votes, 5))


@pytest.mark.parametrize("level", ["nominal", "ordinal", "interval"])
@settings(max_examples=60, deadline=None)
@given(votes=arrays(np.int64, (12, 4), elements=st.integers(-1, 4)))
def test_alpha_agrees_with_the_krippendorff_package(level, votes):
    krippendorff = pytest.importorskip("krippendorff")
    votes = np.where(votes < 0, NAN, votes.astype(float))
    counts = counts_of(votes)
    usable = counts[counts.sum(1) >= 2]
    ours = krippendorff_alpha(counts, level=level)
    if not len(usable) or (usable.sum(0) > 0).sum() < 2:
        assert np.isnan(ours)
        return
    theirs = krippendorff.alpha(votes.T, level_of_measurement=level, value_domain=range(5))
    assert ours == pytest.approx(theirs, abs=1e-9)


def test_alpha_of_krippendorffs_own_example():
    # Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", example C.
    grid = np.array(
        [
            [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
            [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
            [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
            [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
        ]
    )
    counts = counts_of(grid.T - 1)
    for level, alpha in (("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)):
        assert krippendorff_alpha(counts, level=level) == pytest.approx(alpha, abs=5e-4)


def slow_reference(votes, a):
    """Majority and mean of the others' votes, and annotator a's votes, image by image."""
    for row in votes:
        others = [v for i, v in enumerate(row) if i != a and not np.isnan(v)]
        if np.isnan(row[a]) or not others:
            continue
        counted = Counter(others)
        tied = [r for r, n in counted.items() if n == max(counted.values())]
        mean = np.mean(others)
        yield int(min(tied, key=lambda r: (round(abs(r - mean), 9), r))), mean, int(row[a])


def test_confusion_and_bias_leave_the_annotator_out():
    votes = random_votes(0, gaps=0.5)
    result = measure_agreement(votes, 5)
    for a in range(4):
        confusion, deviations = np.zeros((5, 5)), []
        for majority, mean, vote in slow_reference(votes, a):
            confusion[majority, vote] += 1
            deviations.append(vote - mean)
        assert (result.confusion[a] == confusion).all()
        assert result.bias[a] == pytest.approx(np.mean(deviations))
        assert result.votes[a] == (~np.isnan(votes[:, a])).sum()


def test_a_severe_annotator_has_positive_bias_and_a_lenient_one_negative():
    truth = np.random.default_rng(0).integers(1, 4, 200).astype(float)
    result = measure_agreement(np.stack([truth, truth, truth + 1, truth - 1], 1), 5)
    assert result.bias.round(2).tolist() == [0, 0, 1.33, -1.33]


def test_a_given_reference_replaces_the_others():
    votes = np.array([[0, 1], [1, NAN], [2, 2]])
    result = measure_agreement(votes, 3, reference=[0, 2, NAN])
    assert result.confusion.sum(axis=(1, 2)).tolist() == [2, 1]
    assert result.confusion[0, 0, 0] == result.confusion[0, 2, 1] == result.confusion[1, 0, 1] == 1
    assert result.bias.tolist() == [-0.5, 1.0]


def test_unanimous_share_counts_images_with_two_votes():
    result = measure_agreement([[0, 0, NAN], [1, 2, 1], [2, NAN, NAN], [NAN] * 3], 3)
    assert result.unanimous == 0.5
    assert (result.images, result.several) == (3, 2)
    first = str(result).partition("\n")[0]
    assert first == ("3 annotators, 3 images, 2 with two or more votes: 50.0 % of these unanimous")
    assert result.to_dict()["several"] == 2


def test_no_share_of_no_images_is_printed():
    first = str(measure_agreement([[0, NAN], [NAN, 1]], 2)).partition("\n")[0]
    assert first == "2 annotators, 2 images, 0 with two or more votes"


@pytest.mark.parametrize(
    ("votes", "note"),
    [
        ([[0], [1], [2]], "a single annotator"),
        ([[0, NAN], [1, NAN], [NAN, 2]], "no image in common, nothing to compare: 1-2"),
        ([[1, 1, 1]] * 4, "kappa undefined: 1-2, 1-3, 2-3"),
        ([[1, 1, 1]] * 4, "all votes are equal"),
        ([[NAN, NAN]], "no image has two votes"),
    ],
)
def test_undefined_numbers_are_nan_with_a_reason_and_no_warning(votes, note):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = measure_agreement(votes, 3)
        text = str(result)
    assert any(note in line for line in result.notes)
    assert note in text
    assert np.isnan(result.fleiss)
    assert all(np.isnan(v) for v in result.alpha.values())
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["fleiss"] is None


def test_constant_but_different_annotators_have_kappa_zero():
    result = measure_agreement([[0, 1]] * 5, 2)
    assert result.kappa["unweighted"][0, 1] == 0
    assert result.percent[0, 1] == 0
    assert result.notes == ()


def test_perfect_agreement_is_one():
    result = measure_agreement(np.repeat([[0.0], [1], [2]], 3, axis=1), 3)
    assert result.fleiss == pytest.approx(1)
    assert all(value == pytest.approx(1) for value in result.alpha.values())
    assert result.unanimous == 1


def test_table_names_annotators_and_numbers():
    result = measure_agreement(random_votes(0), 5, annotators=["ann", "bob", "cy", "dee"])
    text = str(result)
    assert all(name in text for name in ("ann", "dee", "Krippendorff", "quadratic"))
    plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert plain["annotators"][3] == "dee"
    assert plain["kappa"]["linear"][0][0] is None
    assert plain["mean_kappa"]["linear"] == pytest.approx(
        np.mean([result.kappa["linear"][a, b] for a, b in combinations(range(4), 2)])
    )
    with pytest.raises(DisMixError, match="1 names for 4 annotators"):
        measure_agreement(random_votes(0), 5, annotators=["ann"])


def test_the_table_says_what_annotators_are_compared_with():
    votes = [[0, 0, 1], [1, 1, 1], [2, 1, 2]]
    assert "agrees with others" in str(measure_agreement(votes, 3))
    assert "agrees with reference" in str(measure_agreement(votes, 3, reference=[0, 1, 2]))
