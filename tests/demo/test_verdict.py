"""Words follow from numbers, and from nothing else."""

import pytest
from tests.bench.synthetic import Lab

from dismix.bench.report_study import read_study
from dismix.bench.statistics import Interval
from dismix.demo.verdict import Duel, headline, judge


def duel(low, high, seeds=(), rival="none", grader="ce"):
    return Duel(grader, rival, Interval((low + high) / 2, low, high), tuple(seeds))


@pytest.mark.parametrize(
    ("low", "high", "seeds", "outcome"),
    [
        (0.01, 0.09, (0.02, 0.08), "better"),
        (0.01, 0.09, (0.12, -0.02), "open"),
        (-0.09, -0.01, (-0.02, -0.08), "worse"),
        (-0.09, -0.01, (-0.12, 0.02), "open"),
        (-0.01, 0.09, (0.02, 0.08), "open"),
    ],
)
def test_a_difference_is_decided_where_images_and_seeds_agree(low, high, seeds, outcome):
    assert duel(low, high, seeds).outcome == outcome


def test_a_loss_is_told_as_plainly_as_a_win():
    lost, won, even = duel(-0.2, -0.1), duel(0.1, 0.2), duel(-0.1, 0.1)
    assert headline([lost, lost]) == "Here DisMix grades worse than no mixing with every grader."
    assert headline([won]) == "Here DisMix grades better than no mixing with every grader."
    assert "cannot be told apart" in headline([even, even])
    mixed = headline([won, lost, even])
    assert "better than no mixing with 1, worse than no mixing with 1" in mixed
    assert mixed.endswith("not to be told from it with 1 of 3 graders.")
    assert "than Mixup" in headline([duel(0.1, 0.2, rival="mixup")])


def test_every_line_has_its_records_and_every_rival_its_duel(tmp_path):
    lab, ids = Lab(tmp_path), {}
    for grader in ("ce", "cloc"):
        for mixer in ("none", "mixup", "dismix"):
            ids[grader, mixer] = [
                lab.grader("knee", grader, mixer, seed, scarcity=0.1) for seed in range(2)
            ]
    found = judge(read_study(tmp_path))
    assert {(line.grader, line.mixer): [*line.ids] for line in found.lines} == ids
    assert [(d.grader, d.rival) for d in found.duels] == [
        ("cloc", "none"), ("cloc", "mixup"), ("ce", "none"), ("ce", "mixup"),
    ]  # fmt: skip
    line = {(line.grader, line.mixer): line for line in found.lines}
    for one in found.duels:
        ours, theirs = line[one.grader, "dismix"], line[one.grader, one.rival]
        gain = sum(ours.accuracy) / 2 - sum(theirs.accuracy) / 2
        assert one.gain.mean == pytest.approx(gain)
        assert one.seeds == pytest.approx(
            [a - b for a, b in zip(ours.accuracy, theirs.accuracy, strict=True)]
        )
        assert one.gain.low <= one.gain.mean <= one.gain.high


def test_nothing_to_compare_is_said(tmp_path):
    Lab(tmp_path).grader("knee", "ce", "none", 0)
    assert judge(read_study(tmp_path)).headline == "DisMix was not run beside another."
