from dataclasses import asdict

import numpy as np
import pytest

from dismix.data.phantom import PhantomSpec, draw_factors, rank_free_factors
from dismix.data.phantom.factors import factor_row
from dismix.data.phantom.plan import plan_images

SUBJECTS = ("knee", "fundus")


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("rank", range(4))
def test_severity_stays_with_its_rank(subject, rank):
    spec = PhantomSpec(subject=subject, num_ranks=4, jitter=0.4)
    rng = np.random.default_rng(0)
    severities = [draw_factors(spec, rank, rng).severity for _ in range(100)]
    assert min(severities) >= max(0, rank - 0.4)
    assert max(severities) <= min(3, rank + 0.4)
    assert np.ptp(severities) > 0.3


@pytest.mark.parametrize("subject", SUBJECTS)
def test_only_severity_depends_on_the_rank(subject):
    spec = PhantomSpec(subject=subject)
    low, high = (asdict(draw_factors(spec, rank, np.random.default_rng(5))) for rank in (0, 4))
    assert {name for name in low if low[name] != high[name]} == {"rank", "severity"}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_rank_free_factors_are_independent_of_rank_in_a_set(subject):
    planned = list(plan_images(PhantomSpec(subject=subject, train=2000, val=0, test=0)))
    ranks = np.array([p.factors.rank for p in planned])
    for name in rank_free_factors(subject):
        values = np.array([getattr(p.factors, name) for p in planned])
        if values.dtype.kind == "U":
            values = values == "none" if name == "implant" else values == "femur"
        # 2000 images: a correlation of 0.08 is more than 3.5 standard errors.
        assert abs(np.corrcoef(ranks, values.astype(float))[0, 1]) < 0.08, name


def test_joint_space_narrows_and_the_mean_is_kept():
    spec = PhantomSpec()
    knees = [draw_factors(spec, rank, np.random.default_rng(2)) for rank in range(5)]
    widths = [knee.joint_space for knee in knees]
    assert widths == sorted(widths, reverse=True)
    for knee in knees:
        mean = (knee.joint_space_medial + knee.joint_space_lateral) / 2
        assert mean == pytest.approx(knee.joint_space)
        assert 0 < knee.joint_space_medial <= knee.joint_space_lateral
    assert [k.osteophyte for k in knees] == sorted(k.osteophyte for k in knees)


def test_rows_hold_every_factor_and_what_follows():
    fundus = draw_factors(PhantomSpec(subject="fundus"), 2, np.random.default_rng(0))
    row = factor_row(fundus)
    assert set(asdict(fundus)) < set(row)
    assert row["lesion_load"] == fundus.lesion_load
    assert not any(name.endswith("_seed") for name in rank_free_factors("fundus"))
