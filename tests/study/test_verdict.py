import re
from dataclasses import replace

import pytest

from dismix.bench.statistics import Interval
from dismix.study.chart import forest
from dismix.study.choices import METRICS
from dismix.study.verdict import RULE, Comparison, decide, images_needed, judged
from dismix.study.words import gained, number, span, spell

MAE = METRICS["mae"]
INTERVALS = {
    "helps": Interval(0.08, 0.02, 0.14), "hurts": Interval(-0.08, -0.14, -0.02),
    "no gain": Interval(0.0, -0.02, 0.02), "cannot tell": Interval(0.02, -0.04, 0.08),
}  # fmt: skip


def three(mixup, dismix, between="cannot tell"):
    pairs = {("mixup", "none"): mixup, ("dismix", "none"): dismix, ("dismix", "mixup"): between}
    return {
        pair: Comparison(*pair, INTERVALS[f], (0.1, -0.1), f, 900, (0.4, 0.5))
        for pair, f in pairs.items()
    }


@pytest.mark.parametrize("finding", INTERVALS)
def test_an_interval_says_one_thing(finding):
    assert judged(INTERVALS[finding], 0.03) == finding


@pytest.mark.parametrize(
    ("mixup", "dismix", "between", "expected"),
    [
        ("cannot tell", "helps", "cannot tell", ("yes", "dismix")),
        ("helps", "cannot tell", "cannot tell", ("yes", "mixup")),
        ("helps", "helps", "helps", ("yes", "dismix")),
        # No generator is trained for nothing.
        ("helps", "helps", "cannot tell", ("yes", "mixup")),
        ("helps", "hurts", "hurts", ("yes", "mixup")),
        ("no gain", "hurts", "hurts", ("no", "none")),
        ("hurts", "hurts", "no gain", ("no", "none")),
        ("no gain", "cannot tell", "cannot tell", ("cannot tell", "none")),
        ("hurts", "cannot tell", "helps", ("cannot tell", "none")),
    ],
)
def test_the_rule(mixup, dismix, between, expected):
    assert decide(three(mixup, dismix, between)) == expected
    assert decide(three(mixup, dismix, between), learned=False) == ("cannot tell", "none")


def test_the_boundaries_are_not_a_gain():
    assert judged(Interval(0.05, 0.0, 0.1), 0.03) == "cannot tell"
    assert judged(Interval(0.0, -0.03, 0.03), 0.03) == "cannot tell"


def test_no_number_of_images_is_promised_where_any_gain_counts():
    found = {
        pair: replace(one, needed=images_needed(one.gain, 0.0, 300))
        for pair, one in three("cannot tell", "cannot tell").items()
    }
    closing = spell(found, MAE, 0.0, 300).sentences[-1]
    assert "--worth" in closing
    assert not re.search(r"\d", closing)


def test_four_times_the_images_halve_an_interval():
    assert images_needed(Interval(0, -0.06, 0.06), 0.03, 250) == 1000
    assert images_needed(Interval(0, -0.01, 0.01), 0.03, 270) == 30


def test_words_name_the_uncertainty():
    yes = spell(three("no gain", "helps"), MAE, 0.03, 300)
    assert yes.headline == "Yes: train with DisMix"
    assert "+0.080 (+0.020 to +0.140)" in yes.sentences[1]
    assert "mean error in grades 0.400 against 0.500 without mixing" in yes.sentences[1]
    assert "better in 1 of 2 folds" in yes.sentences[1]
    assert "weaker" in yes.sentences[2]
    worse = spell(three("cannot tell", "helps", "hurts"), MAE, 0.03, 300)
    assert worse.sentences[2].startswith("DisMix against Mixup: −0.080")
    no = spell(three("hurts", "hurts"), MAE, 0.03, 300)
    assert no.headline.startswith("No: mixing makes it worse")
    none = spell(three("no gain", "no gain"), MAE, 0.03, 300)
    assert none.headline.startswith("No: mixing does not help")
    assert "is ruled out" in none.sentences[0]
    maybe = spell(three("no gain", "cannot tell"), MAE, 0.03, 300)
    assert maybe.headline == "Cannot tell with 300 images"
    assert "about 900 images" in maybe.sentences[-1]
    assert "no evidence" in maybe.sentences[1]
    # Wide intervals of few images are no proof that nothing was learned.
    nothing = spell(three("helps", "helps"), MAE, 0.03, 9, learned=False)
    assert nothing.headline == "Cannot tell: no grader is shown to have learned anything"
    assert "is shown to grade held-out images better" in nothing.sentences[0]


def test_numbers_are_written_in_the_metrics_unit():
    assert number(METRICS["accuracy"], 0.621) == "62.1 %"
    assert gained(METRICS["accuracy"], -0.021, signed=True) == "−2.1 points"
    assert span(MAE, three("hurts", "hurts")["mixup", "none"]) == "−0.080 (−0.140 to −0.020)"
    assert all("{" not in line.format(worth="0.03") for line in RULE)


@pytest.mark.parametrize("finding", INTERVALS)
def test_gains_in_accuracy_are_points_and_never_percent(finding):
    metric, found = METRICS["accuracy"], three(finding, finding)
    said = " ".join(spell(found, metric, 0.02, 300).sentences)
    # The two accuracies keep their sign, the differences do not have it.
    assert said.count("%") == 2 * said.count("accuracy 40.0 % against 50.0 %") == 4
    one = found["mixup", "none"].gain
    shown = f"{100 * one.mean:+.1f} points ({100 * one.low:+.1f} to {100 * one.high:+.1f})"
    assert shown.replace("-", "−") in said
    if finding in ("no gain", "cannot tell"):
        assert "gain of 2.0 points" in said


def test_the_chart_names_points_once_on_its_axis():
    chart = forest([*three("helps", "hurts").values()], METRICS["accuracy"], 0.02)
    text = re.sub(r"<[^>]*>", " ", chart)
    assert "%" not in text
    assert re.search(r"worse\s+points\s+better", text)
    assert "points" not in forest([*three("helps", "hurts").values()], MAE, 0.03)
