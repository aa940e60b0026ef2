"""The four policies against the paper's table, written out row by row; draws that replay."""

import itertools

import pytest
import torch

from dismix.errors import DisMixError
from dismix.generator.codes import Codes
from dismix.labels import OrdinalTarget
from dismix.mixing.partner_index import PartnerIndex, asked_rank
from dismix.mixing.policies import mix_codes, mix_targets
from dismix.mixing.policy_draws import (
    GROUPS,
    NUMBERS,
    POLICIES,
    PolicyDraws,
    draw_numbers,
    named_policies,
    policy_draws,
)


def random_codes(count: int, seed: int) -> Codes:
    rng = torch.Generator().manual_seed(seed)
    return Codes(
        torch.randn(count, 3, 2, 2, generator=rng), torch.randn(count, 4, 5, 5, generator=rng)
    )


def every_case() -> PolicyDraws:
    """All policies, both givers, several lam, in one batch."""
    cases = list(itertools.product(range(4), (0.0001, 0.3, 0.9), (False, True)))
    count = len(cases)
    return PolicyDraws(
        policy=torch.tensor([case[0] for case in cases]),
        lam=torch.tensor([case[1] for case in cases]),
        from_partner=torch.tensor([case[2] for case in cases]),
        partner=torch.arange(count),
        asked=torch.arange(count) % 5,
        adjacent=torch.ones(count, dtype=torch.bool),
    )


def table_one(policy, lam, swapped, i, j, x, r_i, r_j, r_x):
    """One row of the paper's Table 1: ordinal code, non-ordinal code, rank."""
    (o_i, n_i), (o_j, n_j), (o_x, n_x) = i, j, x
    if policy == "ordinal_mix":
        return lam * o_i + (1 - lam) * o_j, n_j if swapped else n_i, lam * r_i + (1 - lam) * r_j
    if policy == "nonordinal_mix":
        o, r = (o_j, r_j) if swapped else (o_i, r_i)
        return o, lam * n_i + (1 - lam) * n_j, r
    if policy == "order_swap":
        return (o_j, n_i, r_j) if swapped else (o_i, n_j, r_i)
    return lam * o_i + (1 - lam) * o_x, n_x if swapped else n_i, lam * r_i + (1 - lam) * r_x


def test_policies_are_the_papers_table():
    draws = every_case()
    count = len(draws)
    i, j, x = (random_codes(count, seed) for seed in range(3))
    r_i, r_j = torch.arange(count) % 5, (3 * torch.arange(count) + 1) % 5
    targets = [OrdinalTarget.from_labels(r, 5) for r in (r_i, r_j)]
    mixed, labels = mix_codes(draws, i, j, x), mix_targets(draws, *targets)
    for row in range(count):
        lam = draws.lam[row].item()
        ordinal, nonordinal, rank = table_one(
            POLICIES[int(draws.policy[row])], lam, bool(draws.from_partner[row]),
            *((c.ordinal[row], c.nonordinal[row]) for c in (i, j, x)),
            int(r_i[row]), int(r_j[row]), int(draws.asked[row]),
        )  # fmt: skip
        torch.testing.assert_close(mixed.ordinal[row], ordinal)
        torch.testing.assert_close(mixed.nonordinal[row], nonordinal)
        low = int(rank)
        law = torch.zeros(6)
        law[low], law[low + 1] = low + 1 - rank, rank - low
        torch.testing.assert_close(labels.probs[row], law[:5], atol=1e-5, rtol=0)
    assert not labels.clean.any()


def test_vote_shares_are_mixed_as_laws():
    draws = every_case()
    rng = torch.Generator().manual_seed(3)
    a, b = (
        OrdinalTarget.from_votes(torch.randint(5, (len(draws), 5), generator=rng), 5)
        for _ in range(2)
    )
    made = mix_targets(draws, a, b)
    for row in range(len(draws)):
        lam, policy = draws.lam[row], POLICIES[int(draws.policy[row])]
        second = b.probs[row]
        if policy == "generate_and_mix":
            second = torch.eye(5)[int(draws.asked[row])]
        if policy in GROUPS["preserving"]:
            lam = 0.0 if draws.from_partner[row] else 1.0
        whole = float(a.probs[row].max()) == 1 and float(second.max()) == 1
        if not whole:
            torch.testing.assert_close(made.probs[row], lam * a.probs[row] + (1 - lam) * second)


def test_rows_without_generated_pictures_need_none():
    draws = every_case()[:18]
    i, j = random_codes(18, 0), random_codes(18, 1)
    with_any, without = mix_codes(draws, i, j, random_codes(18, 2)), mix_codes(draws, i, j, None)
    assert torch.equal(with_any.ordinal, without.ordinal)
    assert torch.equal(with_any.nonordinal, without.nonordinal)


def test_partners_are_neighbours_drawn_uniformly():
    ranks = torch.tensor([0] * 3 + [1] * 20 + [2] * 5 + [4] * 4)
    index = PartnerIndex(ranks, 5)
    rng = torch.Generator().manual_seed(0)
    anchors = torch.full((20000,), 1)
    partner, adjacent = index.choose(anchors, torch.rand(20000, generator=rng).double())
    counts = torch.bincount(partner, minlength=len(ranks))
    assert adjacent.all()
    assert counts[3:23].sum() == 0
    assert counts[28:].sum() == 0
    wanted = torch.full((8,), 20000 / 8)
    got = torch.cat([counts[:3], counts[23:28]]).float()
    assert ((got - wanted).abs() < 5 * wanted.sqrt()).all()
    balanced, _ = index.choose(anchors, torch.rand(20000, generator=rng).double(), balanced=True)
    assert abs((ranks[balanced] == 0).float().mean() - 0.5) < 0.02


def test_a_rank_without_neighbours_gets_another_image_of_its_own():
    index = PartnerIndex(torch.tensor([0, 0, 2, 2, 2, 4]), 5)
    uniform = torch.linspace(0, 0.999, 50).double()
    for row, rank, others in ((3, 2, {2, 4}), (0, 0, {1}), (5, 4, {5})):
        anchors, rows = torch.full((50,), rank), torch.full((50,), row)
        partner, adjacent = index.choose(anchors, uniform, rows)
        assert set(partner.tolist()) == others
        assert not adjacent.any()
    # A rank that no stored image has still gets an answer.
    partner, adjacent = index.choose(torch.tensor([3]), torch.tensor([0.5]))
    assert adjacent.all()
    assert partner.item() in range(6)


def test_near_partners_are_all_within_a_rank_but_the_anchor_itself():
    ranks = torch.tensor([0] * 3 + [1] * 2 + [2] * 5 + [4])
    index = PartnerIndex(ranks, 5)
    uniform = (torch.arange(2000).double() + 0.5) / 2000
    for row in range(len(ranks)):
        rank = int(ranks[row])
        for known in (row, -1):
            partner, adjacent = index.choose(
                torch.full((2000,), rank), uniform, torch.full((2000,), known), near=True
            )
            wanted = [
                other
                for other in range(len(ranks))
                if abs(int(ranks[other]) - rank) <= 1 and other != known
            ]
            # The only image of rank 4 has nobody but itself.
            wanted = wanted or [row]
            counts = torch.bincount(partner, minlength=len(ranks))
            for other in range(len(ranks)):
                share = 2000 / len(wanted) if other in wanted else 0
                assert abs(int(counts[other]) - share) <= 2, (row, known, other)
            assert bool(adjacent.all()) == (rank != 4)
    balanced, _ = index.choose(torch.full((2000,), 1), uniform, balanced=True, near=True)
    assert torch.bincount(ranks[balanced], minlength=5).tolist() == [667, 666, 667, 0, 0]


def test_mixes_with_near_partners_have_nearly_the_ranks_of_the_images():
    # IDRiD's training part by majority: grade 1 is the only neighbour of grade 0.
    ranks = torch.arange(5).repeat_interleave(torch.tensor([114, 9, 123, 63, 42]))
    index, target = PartnerIndex(ranks, 5), OrdinalTarget.from_labels(ranks, 5)
    numbers = draw_numbers(20000, torch.Generator().manual_seed(0), NUMBERS + 1)
    anchor = index.anchors(numbers[:, -1])
    have = target.probs.mean(0)
    for policies in (POLICIES, GROUPS["interpolating"], GROUPS["preserving"]):
        made, most = {}, {}
        for pairing in ("adjacent", "near"):
            draws = policy_draws(
                numbers, ranks[anchor], index, policies, rows=anchor, pairing=pairing
            )
            made[pairing] = mix_targets(draws, target[anchor], target[draws.partner]).probs.mean(0)
            most[pairing] = int(torch.bincount(draws.partner).max()) * len(ranks) / 20000
            assert ((ranks[draws.partner] - ranks[anchor]).abs() <= 1).all()
            assert ((draws.asked - ranks[anchor]).abs() <= 1).all()
        # Not to the bit: images with more others within a rank are partners a little more often.
        assert (made["near"] - have).abs().max() < 0.03
        assert made["adjacent"][0] < 0.6 * have[0]
        assert made["adjacent"][1] > 5 * have[1]
        # Ten times a fair share, and not even twice.
        assert most["adjacent"] > 10
        assert most["near"] < 2


def test_draws_are_the_same_for_a_longer_row():
    short = draw_numbers(7, torch.Generator().manual_seed(5))
    long = draw_numbers(5000, torch.Generator().manual_seed(5))
    assert torch.equal(short, long[:7])


def test_policies_and_ratios_follow_their_laws():
    index = PartnerIndex(torch.arange(40) % 5, 5)
    numbers = draw_numbers(20000, torch.Generator().manual_seed(1))
    ranks = torch.arange(20000) % 5
    draws = policy_draws(numbers, ranks, index)
    shares = torch.bincount(draws.policy, minlength=4) / len(draws)
    assert ((shares - 0.25).abs() < 0.015).all()
    assert ((draws.lam > 0) & (draws.lam < 1)).all()
    assert abs(draws.lam.mean() - 0.5) < 0.01
    assert abs(draws.lam.var() - 1 / 12) < 0.003
    assert ((draws.asked - ranks).abs() == 1).all()
    assert draws.asked.min() == 0
    assert draws.asked.max() == 4
    peaked = policy_draws(numbers, ranks, index, ["order_swap"], alpha=8.0)
    assert set(peaked.policy.tolist()) == {2}
    assert abs(peaked.lam.var() - 1 / (4 * 17)) < 0.002


def test_anchors_can_be_balanced_over_ranks():
    ranks = torch.tensor([0] * 90 + [3] * 10)
    index = PartnerIndex(ranks, 4)
    uniform = torch.rand(5000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert abs((ranks[index.anchors(uniform)] == 3).float().mean() - 0.1) < 0.02
    balanced = index.anchors(uniform, balanced=True)
    assert abs((ranks[balanced] == 3).float().mean() - 0.5) < 0.03
    assert set(balanced.tolist()) == set(range(100))


def test_neighbours_stay_on_the_scale():
    ranks, low = torch.tensor([0, 1, 1, 2]), torch.tensor([0.1, 0.1, 0.9, 0.9])
    assert asked_rank(ranks, low, torch.tensor([5, 1, 2])).tolist() == [1, 0, 2, 1]


def test_a_rank_that_no_image_has_is_not_asked_for():
    ranks, half = torch.tensor([0, 1, 1, 3, 3, 4]), torch.tensor([0.9, 0.1, 0.9, 0.1, 0.9, 0.1])
    counts = torch.tensor([2, 2, 0, 2, 2])
    assert asked_rank(ranks, half, counts).tolist() == [1, 0, 0, 4, 4, 3]
    # With images of all ranks both neighbours are equally likely, as they were.
    assert asked_rank(ranks, half, counts + 1).tolist() == [1, 0, 2, 2, 4, 3]


def test_near_ranks_are_asked_for_as_often_as_they_have_images():
    counts, uniform = torch.tensor([6, 1, 3, 0, 2]), (torch.arange(1000).double() + 0.5) / 1000
    shares = {0: [6, 1], 1: [6, 1, 3], 2: [0, 1, 3], 3: [0, 0, 3, 0, 2]}
    for rank, images in shares.items():
        asked = asked_rank(torch.full((1000,), rank), uniform, counts, near=True)
        got = torch.bincount(asked, minlength=5)[: len(images)]
        wanted = [1000 * n / sum(images) for n in images]
        assert all(abs(int(g) - w) <= 1 for g, w in zip(got, wanted, strict=True)), rank
    both = asked_rank(torch.full((1000,), 1), uniform, counts, near=True, balanced=True)
    assert torch.bincount(both).tolist() == [333, 334, 333]
    # Rank 4 has no neighbour; mixing becomes another policy, and the answer is on the scale.
    assert asked_rank(torch.tensor([4]), torch.tensor([0.5]), counts, near=True).tolist() == [3]


def test_generated_pictures_are_of_ranks_that_exist():
    stored = torch.tensor([0] * 5 + [1] * 4 + [3] * 3 + [5] * 2)
    index = PartnerIndex(stored, 7)
    numbers = draw_numbers(4000, torch.Generator().manual_seed(2))
    ranks = stored[torch.arange(4000) % len(stored)]
    draws = policy_draws(numbers, ranks, index, ["nonordinal_mix", "generate_and_mix"])
    generated = draws.policy == 3
    assert set(ranks[generated].tolist()) == {0, 1}
    assert bool((index.counts[draws.asked[generated]] > 0).all())
    # Ranks 3 and 5 have no neighbours: a partner of the same rank, and it is counted.
    lonely = ranks >= 3
    assert set(draws.policy[lonely].tolist()) == {0, 1}
    assert torch.equal(~draws.adjacent, lonely)
    assert torch.equal(stored[draws.partner[lonely]], ranks[lonely])
    assert not bool((~draws.adjacent & generated).any())


def test_draws_with_all_ranks_present_are_what_they_were():
    index = PartnerIndex(torch.arange(40) % 5, 5)
    numbers, ranks = draw_numbers(500, torch.Generator().manual_seed(1)), torch.arange(500) % 5
    step = torch.where(numbers[:, 4] < 0.5, -1, 1)
    step = torch.where(ranks == 0, 1, torch.where(ranks == 4, -1, step))
    draws = policy_draws(numbers, ranks, index)
    assert torch.equal(draws.asked, ranks + step)
    assert torch.equal(draws.policy, (numbers[:, 0] * 4).long())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: named_policies("ordinal_mx"), "did you mean 'ordinal_mix'"),
        (lambda: named_policies([]), "no policy"),
        (lambda: PartnerIndex(torch.tensor([0, 5]), 5), "rank 5 is outside 0..4"),
        (lambda: PartnerIndex(torch.tensor([2, 2]), 5).require_two_ranks("x.csv"), "rank 2"),
        (
            lambda: policy_draws(
                draw_numbers(1, torch.Generator()),
                torch.tensor([0]),
                PartnerIndex(torch.tensor([0, 1]), 2),
                alpha=0.0,
            ),
            "alpha is 0",
        ),
        (
            lambda: mix_targets(
                every_case()[:1],
                OrdinalTarget.from_labels([0], 3),
                OrdinalTarget.from_labels([0], 5),
            ),
            "3 ranks, the generator 5",
        ),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(DisMixError, match=words):
        call()
