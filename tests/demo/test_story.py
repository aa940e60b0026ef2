"""The whole story on a plan of seconds: the page is whole, its links lead somewhere."""

import re
from html.parser import HTMLParser

import pytest
from tests.bench.study import tiny_plan

from dismix.bench.folder import BenchFolder
from dismix.bench.plan import read_plan
from dismix.bench.resolve import resolve
from dismix.bench.runner import run_study
from dismix.demo.story import tell
from dismix.errors import DisMixError

FACTORS = {"grader": ["ce", "sord"], "mixer": ["none", "mixup", "dismix"], "seed": [0]}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    home, said = tmp_path_factory.mktemp("demo"), []
    plan = tiny_plan("demo", factors=FACTORS)
    page = tell(home, plan, jobs=1, progress=lambda *words: said.append(words))
    text = page.read_text(encoding="utf-8")
    lines = len(BenchFolder(home / "bench").log())
    # A record of another plan, as an older version may have left it.
    lone = tiny_plan("other", factors={"grader": ["ce"], "seed": [7]})
    bench = BenchFolder(home / "bench")
    run_study(resolve(lone, bench), bench, cpu=True)
    more = len(bench.log())
    again = tell(home, plan, jobs=1).read_text(encoding="utf-8")
    assert len(bench.log()) == more
    return home, text, said, lines, again


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.links = [], []

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name == "href"]
        if tag not in ("meta", "img", "line", "circle", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("line", "circle", "polyline"):
            assert self.open.pop() == tag


def test_the_page_is_whole_and_its_links_lead_somewhere(told):
    home, text, _, _, _ = told
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert len(reader.links) == 3 + 6
    for link in reader.links:
        assert (home / link).exists(), link
    assert text.count("data:image/png;base64,") == 4
    assert not re.search(r'(src|href)="(https?:)?//', text)


def test_the_verdict_is_told_before_and_behind_the_numbers(told):
    _, text, _, _, _ = told
    assert text.count("<b>Here DisMix ") == 2
    assert text.count("resampled test sets") == 4
    for words in ("z_n", "order swap", "pictures seen"):
        assert words in text
    told_of_mixes = [w in text for w in ("Ordinal mixes are", "no closer than Mixup")]
    assert told_of_mixes.count(True) == 1


def test_a_second_call_reuses_everything_and_tells_of_its_own_plan(told):
    home, text, _, lines, again = told
    seconds = re.compile(r"this call\s+\d+ s")
    assert seconds.sub("", again) == seconds.sub("", text)
    events = [line["event"] for line in BenchFolder(home / "bench").log()]
    assert events.count("generator started") == 1
    assert len(events) == lines + 2


def test_progress_is_one_bar_to_the_end(told):
    _, _, said, _, _ = told
    places = [done for _, done, _ in said]
    assert {stage.split(" | ")[0] for stage, _, _ in said} == {"demo"}
    assert places == sorted(places)
    assert said[-1][1] == said[-1][2]


def test_two_demos_do_not_meet(tmp_path):
    with BenchFolder(tmp_path / "bench").try_lock("demo") as mine:
        assert mine
        with pytest.raises(DisMixError, match="another demo is at work"):
            tell(tmp_path)


def test_the_packaged_plan_is_what_the_page_tells_of():
    plan = read_plan("demo")
    (factors,) = plan.factors
    assert len(factors["grader"]) == 2
    assert factors["mixer"] == ("none", "mixup", "dismix")
    assert all(share < 1 for share in factors["scarcity"])
