"""Consensus: a slow EM as oracle, and the properties that make it trustworthy."""

import numpy as np
import pytest

from dismix.data.annotators import CONSENSUS, dawid_skene, majority, majority_vote
from dismix.errors import DisMixError

NAN = float("nan")


def panel(seed, *, images=400, ranks=4, accuracies=(0.85, 0.85, 0.8, 0.3, 0.3), gaps=0.1):
    """True ranks and votes; errors go to a neighbouring rank."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, ranks, images)
    votes = np.empty((images, len(accuracies)))
    for a, accuracy in enumerate(accuracies):
        step = np.where(
            truth == 0, 1, np.where(truth == ranks - 1, -1, rng.choice([-1, 1], images))
        )
        votes[:, a] = truth + step * (rng.random(images) > accuracy)
    votes[rng.random(votes.shape) < gaps] = NAN
    kept = ~np.isnan(votes).all(axis=1)
    return truth[kept], votes[kept]


def slow_dawid_skene(votes, ranks, steps, pseudo, start):
    """EM as in the paper of 1979, with prior votes, in loops and without logarithms."""
    images, annotators = votes.shape
    q = np.array(start, dtype=float)
    for _ in range(steps):
        shares = [q[:, c].sum() + pseudo.sum() / ranks**2 for c in range(ranks)]
        shares = [s / sum(shares) for s in shares]
        theta = np.zeros((annotators, ranks, ranks))
        for a in range(annotators):
            for c in range(ranks):
                for k in range(ranks):
                    seen = [q[i, c] for i in range(images) if votes[i, a] == k]
                    theta[a, c, k] = sum(seen) + pseudo[c, k]
                theta[a, c] /= theta[a, c].sum()
        for i in range(images):
            for c in range(ranks):
                q[i, c] = shares[c]
                for a in range(annotators):
                    if not np.isnan(votes[i, a]):
                        q[i, c] *= theta[a, c, int(votes[i, a])]
            q[i] /= q[i].sum()
    return q, theta, np.array(shares)


def shares_of(votes, ranks):
    counts = (votes[:, :, None] == np.arange(ranks)).sum(axis=1)
    return counts / counts.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("ordinal", [False, True])
def test_em_agrees_with_loops(ordinal):
    _, votes = panel(0, images=40, gaps=0.3)
    kernel = np.array([[0.3 ** abs(c - k) for k in range(4)] for c in range(4)])
    kernel /= kernel.sum(axis=1, keepdims=True)
    pseudo = 2.0 * kernel if ordinal else np.eye(4) + 0.25
    start = shares_of(votes, 4) @ kernel if ordinal else shares_of(votes, 4)
    q, theta, prior = slow_dawid_skene(votes, 4, 12, pseudo, start)
    found = dawid_skene(
        votes, 4, ordinal=ordinal, strength=2.0, decay=0.3, max_iterations=12, tolerance=0
    )
    assert found.iterations == 12
    assert not found.converged
    np.testing.assert_allclose(found.probs, q, atol=1e-10)
    np.testing.assert_allclose(found.annotator_confusion, theta, atol=1e-10)
    np.testing.assert_allclose(found.prior, prior, atol=1e-10)


def log_posterior(votes, found, pseudo):
    """The objective, image by image."""
    value = 0.0
    for row in votes:
        joint = found.prior.copy()
        for a, vote in enumerate(row):
            if not np.isnan(vote):
                joint = joint * found.annotator_confusion[a][:, int(vote)]
        value += np.log(joint.sum())
    value += (pseudo * np.log(found.annotator_confusion)).sum()
    return value + pseudo.sum() / len(found.prior) ** 2 * np.log(found.prior).sum()


def test_traced_objective_is_the_log_posterior():
    _, votes = panel(1, images=60, gaps=0.3)
    found = dawid_skene(votes, 4, strength=1.0, max_iterations=7, tolerance=0)
    expected = log_posterior(votes, found, np.eye(4) / 2 + 1 / 8)
    assert found.log_posterior[-1] == pytest.approx(expected)


@pytest.mark.parametrize("ordinal", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_log_posterior_never_falls(seed, ordinal):
    rng = np.random.default_rng(seed)
    _, votes = panel(seed, images=int(rng.integers(5, 200)), gaps=0.4)
    found = dawid_skene(votes, 4, ordinal=ordinal)
    assert found.converged
    assert (np.diff(found.log_posterior) > -1e-8).all()


@pytest.mark.parametrize("ordinal", [False, True])
def test_bad_annotators_lose_their_weight(ordinal):
    gains = []
    for seed in range(5):
        truth, votes = panel(seed)
        found = dawid_skene(votes, 4, ordinal=ordinal)
        gains.append((found.rank == truth).mean() - (majority_vote(votes, 4) == truth).mean())
        skill = found.annotator_confusion.diagonal(axis1=1, axis2=2).mean(axis=1)
        assert skill[:3].min() > 0.7
        assert skill[3:].max() < 0.5
    assert min(gains) > 0.03
    assert np.mean(gains) > 0.06


def test_ordinal_prior_helps_on_few_images():
    plain, ordinal, votes_only = [], [], []
    for seed in range(30):
        truth, votes = panel(seed, images=40, accuracies=(0.75,) * 5, gaps=0.2)
        plain.append((dawid_skene(votes, 4).rank == truth).mean())
        ordinal.append((dawid_skene(votes, 4, ordinal=True).rank == truth).mean())
        votes_only.append((majority_vote(votes, 4) == truth).mean())
    assert np.mean(ordinal) > np.mean(plain) + 0.01
    assert np.mean(ordinal) > np.mean(votes_only) - 0.01


@pytest.mark.parametrize("ordinal", [False, True])
def test_few_images_with_two_votes_do_not_lead_astray(ordinal):
    found, votes_only = [], []
    for seed in range(10):
        truth, votes = panel(seed, images=150, accuracies=(0.85, 0.8, 0.75), gaps=0)
        rng = np.random.default_rng(seed)
        alone = rng.random(len(votes)) < 0.9
        keep = np.eye(3, dtype=bool)[rng.integers(0, 3, len(votes))]
        votes[alone[:, None] & ~keep] = NAN
        found.append((dawid_skene(votes, 4, ordinal=ordinal).rank == truth).mean())
        votes_only.append((majority_vote(votes, 4) == truth).mean())
    assert np.mean(found) > np.mean(votes_only) - 0.01


def test_laws_and_matrices_are_normalised():
    _, votes = panel(0, gaps=0.5)
    found = dawid_skene(votes, 4, ordinal=True)
    np.testing.assert_allclose(found.probs.sum(axis=1), 1)
    np.testing.assert_allclose(found.annotator_confusion.sum(axis=2), 1)
    assert found.prior.sum() == pytest.approx(1)
    assert found.annotator_confusion.shape == (5, 4, 4)


def test_names_of_ranks_do_not_matter_without_order():
    _, votes = panel(2)
    names = np.array([2, 0, 3, 1])
    renamed = np.where(np.isnan(votes), NAN, names[np.nan_to_num(votes).astype(int)])
    found, other = dawid_skene(votes, 4), dawid_skene(renamed, 4)
    np.testing.assert_allclose(other.probs[:, names], found.probs, atol=1e-9)
    np.testing.assert_allclose(other.prior[names], found.prior, atol=1e-9)
    ordered = dawid_skene(votes, 4, ordinal=True)
    shuffled = dawid_skene(renamed, 4, ordinal=True)
    assert np.abs(shuffled.probs[:, names] - ordered.probs).max() > 1e-4


def test_reading_the_scale_backwards_does_not_matter_with_order():
    _, votes = panel(2)
    found, other = (dawid_skene(v, 4, ordinal=True) for v in (votes, 3 - votes))
    np.testing.assert_allclose(other.probs[:, ::-1], found.probs, atol=1e-9)


def test_annotators_and_images_may_come_in_any_order():
    _, votes = panel(3)
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(len(votes)), rng.permutation(5)
    found, other = dawid_skene(votes, 4), dawid_skene(votes[rows][:, columns], 4)
    np.testing.assert_allclose(other.probs, found.probs[rows], atol=1e-7)
    np.testing.assert_allclose(
        other.annotator_confusion, found.annotator_confusion[columns], atol=1e-7
    )


@pytest.mark.parametrize("name", ["majority", "dawid_skene"])
@pytest.mark.parametrize("images", [7, 400])
def test_a_single_annotator_is_believed(name, images):
    votes = np.random.default_rng(0).choice(4, (images, 1), p=[0.6, 0.05, 0.25, 0.1]).astype(float)
    found = CONSENSUS[name](votes, 5)
    assert found.rank.tolist() == votes[:, 0].tolist()
    assert found.converged


def test_majority_reports_what_annotators_did_against_it():
    votes = np.array([[0, 0, 1], [1, 1, 1], [1, 1, NAN], [2, 2, 2]])
    found = majority(votes, 4)
    assert found.rank.tolist() == [0, 1, 1, 2]
    assert found.annotator_confusion[2, 0].tolist() == [0, 1, 0, 0]
    assert np.isnan(found.annotator_confusion[:, 3]).all()
    assert found.prior.tolist() == [0.25, 0.5, 0.25, 0]
    np.testing.assert_allclose(found.probs[0], [2 / 3, 1 / 3, 0, 0])


def test_registry_and_mistakes():
    assert list(CONSENSUS) == ["dawid_skene", "majority"]
    with pytest.raises(DisMixError, match="unknown consensus 'majorty'; did you mean 'majority'"):
        CONSENSUS["majorty"]
    with pytest.raises(DisMixError, match="image 1 has no vote"):
        dawid_skene([[0, 1], [NAN, NAN]], 2)
    with pytest.raises(DisMixError, match="strength 0 must be positive"):
        dawid_skene([[0, 1]], 2, strength=0)
    with pytest.raises(DisMixError, match="'max_iterations': 0 EM steps estimate nothing"):
        dawid_skene([[0, 1]], 2, max_iterations=0)
