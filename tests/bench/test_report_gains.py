"""The figure of gains: the same seeds, their standard error, and nothing drawn of what is not."""

import json
import re
from math import sqrt
from statistics import mean, stdev

import pytest
from tests.bench.synthetic import Lab

from dismix.bench.report import write_report
from dismix.bench.report_gains import Gain, gains, gains_svg, gains_table
from dismix.bench.report_study import read_study
from dismix.bench.tables import ACCURACY, MAE, METRICS


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path)


def metrics(lab, run):
    return json.loads((lab.folder / "records" / f"{run}.json").read_text())["metrics"]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.key)
def test_gains_are_of_the_seeds_that_both_have(lab, metric):
    ours = {seed: lab.grader("idrid", "cloc", "dismix", seed) for seed in (0, 1, 2, 5)}
    theirs = {seed: lab.grader("idrid", "cloc", "mixup", seed) for seed in (1, 2, 5, 7)}
    lab.grader("idrid", "cloc", "none", 0)
    lab.grader("idrid", "cloc", "cutmix", 9)
    found = {gain.against: gain for gain in gains(read_study(lab.folder), metric)}
    assert found.keys() == {"none", "mixup"}
    sign = 100 if metric.higher else -1
    wanted = [
        sign * (metrics(lab, ours[s])[metric.key] - metrics(lab, theirs[s])[metric.key])
        for s in (1, 2, 5)
    ]
    assert found["mixup"].mean == pytest.approx(mean(wanted))
    assert found["mixup"].error == pytest.approx(stdev(wanted) / sqrt(3))
    assert (found["mixup"].repeats, found["none"].repeats) == (3, 1)
    assert found["none"].error is None
    assert {*found["mixup"].ids} == {runs[s] for runs in (ours, theirs) for s in (1, 2, 5)}


def places(text):
    """Return where the dots and the ends of their lines are."""
    dots = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', text)]
    ends = re.findall(r'd="M([\d.]+) [\d.]+H([\d.]+)"', text)
    return dots, [(float(left), float(right)) for left, right in ends]


def test_dots_are_where_their_numbers_are():
    found = [
        Gain("d", "cloc", "none", 2.0, 1.0, 3),
        Gain("d", "cloc", "mixup", -4.0, 0.0, 3),
        Gain("d", "poe", "none", 1.0, 2.0, 3),
        Gain("d", "poe", "mixup", 1.0, None, 1),
    ]
    text = gains_svg(found, "words", ACCURACY)
    dots, ends = places(text)
    zero = float(re.findall(r'<text x="([\d.]+)"[^>]*>0</text>', text)[0])
    two = float(re.findall(r'<text x="([\d.]+)"[^>]*>\+2</text>', text)[0])
    point = (two - zero) / 2
    assert dots == pytest.approx([zero + g.mean * point for g in found], abs=0.06)
    assert [right - left for left, right in ends] == pytest.approx(
        [2 * point * (g.error or 0) for g in found], abs=0.11
    )
    colours = re.findall(r'r="4" style="fill:var\(--(\w+)[^;]*;stroke:var\(--(\w+)', text)
    assert colours == [("up", "up"), ("down", "down"), ("soft", "soft"), ("paper", "soft")]
    assert "against Mixup: +1.00 (1 repeat)" in text
    assert text.count(">CLOC<") == text.count(">POE<") == 1


def test_equal_runs_and_odd_names_are_drawn_too():
    text = gains_svg([Gain("d", "<b>", "a & b", 0.0, 0.0, 2)], 'what "is" <it>', MAE, heading=True)
    assert "&lt;b&gt;" in text.lower()
    assert "a &amp; b" in text
    assert "<it>" not in text
    dots, _ = places(text)
    assert dots == pytest.approx([float(re.findall(r'<text x="([\d.]+)"[^>]*>0</text>', text)[0])])


def test_the_report_shows_gains_and_a_table_of_them(lab):
    for seed in range(3):
        for mixer in ("none", "mixup", "dismix"):
            lab.grader("idrid", "cloc", mixer, seed)
            lab.grader("koa", "poe", mixer, seed)
    page = write_report(lab.folder).read_text(encoding="utf-8")
    assert page.count("<svg") >= 4
    assert "Accuracy: what DisMix gains on KOA (points)" in page
    assert "Mean absolute error: what DisMix gains on IDRID (ranks)" in page
    table = gains_table(read_study(lab.folder))
    assert [[cell.text for cell in row[:4]] for row in table.rows] == [
        ["IDRID", "CLOC", "no mixing", "3"],
        ["IDRID", "CLOC", "Mixup", "3"],
        ["KOA", "POE", "no mixing", "3"],
        ["KOA", "POE", "Mixup", "3"],
    ]
    text = (lab.folder / "report.md").read_text(encoding="utf-8")
    for row in table.rows:
        assert " ± " in row[4].text
        assert row[4].text in text
        assert len(row[4].ids) == len(row[5].ids) == 6


def test_one_mixer_alone_has_no_gains(lab):
    lab.grader("idrid", "cloc", "none", 0)
    page = write_report(lab.folder).read_text(encoding="utf-8")
    assert "Gains at a glance" not in page
