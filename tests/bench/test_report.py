"""The report: whole, escaped, linked, the same from the same records."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image
from tests.bench.synthetic import ALL, Lab, full_study, torn_study

from dismix.bench.figures import keep_picture
from dismix.bench.paper import find_number
from dismix.bench.plan import plan_title
from dismix.bench.report import write_report
from dismix.bench.report_paper import paper_sentence
from dismix.bench.report_study import read_study
from dismix.bench.report_summary import not_run, summarise
from dismix.cli.bench import BENCH, _place
from dismix.errors import DisMixError

VOID = {"meta", "img", "br", "path", "circle"}


class Reader(HTMLParser):
    """Checks nesting and gathers links, ids and texts."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append(tag)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if "href" in given else []
        self.sources += [given["src"]] if "src" in given else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    return reader


@pytest.fixture(scope="module")
def full(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("full")
    full_study(folder, seeds=2)
    keep_picture(folder, "codes", Image.new("RGB", (8, 8)), "The two codes", "t-SNE")
    (folder / "leave_out.json").write_text(
        json.dumps({"title": "Without twins", "images": {"IDRiD": ["image_001.png"]}})
    )
    write_report(folder)
    return folder


def test_every_number_leads_to_its_record(full):
    found = read(full / "report.html")
    records = {path.stem for path in (full / "records").glob("*.json")}
    assert {i.removeprefix("r-") for i in found.ids if i.startswith("r-")} == records
    inner = {link[1:] for link in found.links if link.startswith("#")}
    assert inner <= set(found.ids)
    files = [link for link in found.links if not link.startswith("#")]
    assert len(files) == len(records)
    assert all((full / link).is_file() for link in files)
    text = (full / "report.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\((records/\w+\.json)", text)
    assert len(linked) > len(records)
    assert all((full / link).is_file() for link in linked)
    assert (full / re.search(r"\]\((figures/[^)]+)\)", text)[1]).is_file()


def test_the_page_needs_nothing_else(full):
    found = read(full / "report.html")
    assert found.sources
    assert all(source.startswith("data:") for source in found.sources)
    assert not {"link", "iframe", "object"} & set(found.tags)
    page = (full / "report.html").read_text(encoding="utf-8")
    assert "http" not in page
    assert "@import" not in page
    assert "url(" not in page


def test_all_sections_are_there(full):
    found = read(full / "report.html")
    sections = {
        "main", "significance", "heat", "scarcity", "variability", "clean", "policies", "groups",
        "extreme", "other", "boundary", "overhead", "generators", "budgets", "missing", "runs",
        "figure-codes", "without",
    }  # fmt: skip
    assert sections <= set(found.ids)
    text = (full / "report.md").read_text(encoding="utf-8")
    assert "0.0075 for accuracy and 0.13 for error" in text
    assert "CHAOYANG, GLEASON: not run" in text
    assert "twins = without" in text
    assert "102 test images kept" in text


def test_the_same_records_give_the_same_report(full, tmp_path):
    steps = []
    path = write_report(full, tmp_path / "again", progress=lambda *step: steps.append(step))
    again = path.read_text(encoding="utf-8")
    assert steps[-1] == ("report", 4, 4)
    # From elsewhere only the way to the records differs.
    links = [link for link in read(path).links if not link.startswith("#")]
    assert all((path.parent / link).is_file() for link in links)
    here = (full / "report.html").read_text(encoding="utf-8")
    folder = links[0].rpartition("/")[0]
    assert again.replace(f'"{folder}/', '"records/') == here


def test_names_are_text_and_never_markup(tmp_path):
    torn_study(tmp_path)
    found = read(write_report(tmp_path))
    # One script and no bold text but the report's own.
    assert found.tags.count("script") == 1
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "Knie &lt;b&gt;&quot;α&quot;&lt;/b&gt; &amp; Söhne" in page
    assert "RuntimeError: &lt;script&gt;" in page
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "<b>" not in text
    assert "my\\|grader &lt;i&gt;" in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1


def test_summary_of_a_torn_study(tmp_path):
    torn_study(tmp_path)
    summary = summarise(read_study(tmp_path))
    lines = " ".join(summary.not_run)
    assert "None of the paper's data sets" in lines
    assert "2 runs failed" in lines
    assert "Studies of the paper: few images, disagreement" in lines
    told = dict(summary.paragraphs)
    assert "too few settings for a test" in " ".join(told["Who wins"])
    assert summary.tiles[-1].figure == "9"
    assert summary.tiles[-1].more == "2 failed"


def test_summary_names_winners_losers_and_what_is_missing(tmp_path):
    lab = Lab(tmp_path)
    rank = {"dismix": 0.8, "mixup": 0.7, "cutmix": 0.75, "none": 0.65}
    for number, grader in enumerate(("poe", "gol", "mwr", "rnc", "ord2seq", "cloc")):
        for mixer, accuracy in rank.items():
            lost = grader == "mwr" and mixer == "dismix"
            metrics = {"accuracy": accuracy + 0.001 * number - 0.2 * lost, "mae": 1 - accuracy}
            lab.grader("koa", grader, mixer, 0, content={"metrics": metrics})
    summary = summarise(read_study(tmp_path))
    told = dict(summary.paragraphs)
    wins = told["Who wins"][0]
    assert wins.startswith("DisMix has the best accuracy among 3 mixers in 5 of 6 settings.")
    assert "Against CutMix, the best baseline on average" in wins
    # Five gains of one size and a larger loss: 15 of 21 ranks, which 17 of 64 signs reach.
    assert "one-sided p = 0.27, not significant at 5 %" in wins
    assert told["Where it loses"][0] == "Accuracy: 1 of 6: KOA with MWR (CutMix −15.00)."
    assert told["Where it loses"][1:] == (
        "Mean absolute error: in no setting.",
        "Accuracy against no mixing: 1 of 6: KOA with MWR (no mixing −5.00).",
        "Mean absolute error against no mixing: in no setting.",
    )
    assert summary.tiles[0].title == "settings where DisMix has the best accuracy of the mixers"
    assert "one-sided p = 0.016, significant" in told["Who wins"][1]
    lines = told["What was not run"]
    assert lines[0] == "Data sets of the main table: IDRID, CHAOYANG, GLEASON: not run."
    assert lines[1].startswith("Mixers of the main table: PuzzleMix, CoMix, GuidedMix")
    assert (summary.tiles[0].figure, summary.tiles[1].figure) == ("5 of 6", "6 of 6")


def test_a_mixer_that_was_run_in_some_settings_is_no_rival_in_the_others(tmp_path):
    lab = Lab(tmp_path)
    for grader in ("ce", "cloc"):
        for mixer in ("mixup", "cutmix", "dismix")[grader == "ce" :]:
            lab.grader("knee", grader, mixer, 0)
    wins = dict(summarise(read_study(tmp_path)).paragraphs)["Who wins"][0]
    assert wins.startswith("DisMix has the best accuracy among 2 to 3 mixers in ")


def test_graders_that_were_not_run_are_named(tmp_path):
    lab = Lab(tmp_path)
    for mixer in ALL:
        lab.grader("koa", "cloc", mixer, 0)
    lines = " ".join(not_run(read_study(tmp_path)))
    assert "KOA with POE, KOA with GOL" in lines
    assert "KOA with CLOC" not in lines


@pytest.mark.parametrize("mixers", [("none",), ("dismix",), ("mixup", "cutmix")])
def test_studies_with_little_to_compare(tmp_path, mixers):
    lab = Lab(tmp_path)
    for mixer in mixers:
        lab.grader("own", "ce", mixer, 0)
    read(write_report(tmp_path))
    assert summarise(read_study(tmp_path)).paragraphs[0][0] == "Who wins"


def test_a_study_under_one_condition_is_its_own_main_table(tmp_path):
    lab = Lab(tmp_path)
    for mixer in ("none", "mixup", "dismix"):
        for grader in ("ce", "cloc"):
            lab.grader("knee", grader, mixer, 0, scarcity=0.1)
    found = read(write_report(tmp_path))
    assert {"t-main-accuracy", "significance", "heat", "boundary", "overhead"} <= set(found.ids)
    assert "scarcity" not in found.ids
    summary = summarise(read_study(tmp_path))
    assert "10 % of the images" in summary.paragraphs[0][1][0]
    assert summary.tiles[0].figure.endswith("of 2")
    assert not any("few images" in line or "main table" in line for line in summary.not_run)


def test_only_generators_or_only_failures(tmp_path):
    # As runs of generators have it: factors without a say are None.
    Lab(tmp_path / "g").generator("koa", "full", 0.6, 0.3, grader=None, mixer=None)
    Lab(tmp_path / "f").failed("koa", "cloc", "dismix", 0, "OSError: full")
    for name in ("g", "f"):
        read(write_report(tmp_path / name))
    assert "NONE" not in (tmp_path / "g" / "report.md").read_text(encoding="utf-8")
    assert "OSError: full" in (tmp_path / "f" / "report.html").read_text(encoding="utf-8")


def test_the_papers_own_numbers_are_counted_in_words():
    text = paper_sentence()
    assert "best accuracy in 20 of 24 settings, strictly best error in 15" in text
    assert "p = 0.0075 for accuracy and 0.13 for error" in text
    assert "p is 0.0074 and 0.18" in text


def test_records_of_real_runs(smoke, tmp_path):
    _, bench = smoke
    found = read(write_report(bench.root, tmp_path))
    records = list((bench.root / "records").glob("*.json"))
    assert sum(i.startswith("r-") for i in found.ids) == len(records)
    summary = summarise(read_study(bench.root))
    assert summary.tiles[-1].more == "none failed"
    assert not any("planned" in line for line in summary.not_run)


def test_broken_extras_are_named(tmp_path):
    Lab(tmp_path).grader("koa", "cloc", "mixup", 0)
    (tmp_path / "leave_out.json").write_text("[]")
    with pytest.raises(DisMixError, match=r"leave_out\.json"):
        write_report(tmp_path)
    (tmp_path / "leave_out.json").unlink()
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "odd.json").write_text("{}")
    with pytest.raises(DisMixError, match=r"odd\.json"):
        write_report(tmp_path)


def test_records_that_are_being_written_do_not_count(tmp_path):
    name = Lab(tmp_path).grader("knee", "ce", "none", 0)
    (tmp_path / "records" / f".{name}.x1.part.json").write_text("")
    assert [record.id for record in read_study(tmp_path).records] == [name]


def test_a_plan_has_a_report_of_its_own_runs(tmp_path):
    lab = Lab(tmp_path)
    names = [lab.grader("knee", "ce", mixer, 0) for mixer in ("none", "mixup", "dismix")]
    runs = [{"id": names[0], "factors": {"data": "knee", "grader": "ce", "seed": 0}}]
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "one.json").write_text(json.dumps({"runs": runs}))
    path = write_report(tmp_path, plan="one")
    assert path == tmp_path / "reports" / "one" / "report.html"
    found = read(path)
    assert [link for link in found.links if link.endswith(".json")] == [
        f"../../records/{names[0]}.json"
    ]
    assert (path.parent / f"../../records/{names[0]}.json").is_file()
    with pytest.raises(DisMixError, match="no plan 'on' was run here; did you mean 'one'"):
        write_report(tmp_path, plan="on")


def test_a_report_of_failures_alone_is_whole(tmp_path):
    Lab(tmp_path).failed("knee", "ce", "none", 0, "Traceback\nValueError: no")
    path = write_report(tmp_path)
    read(path)
    text = path.read_text(encoding="utf-8")
    assert "No run of a grader has ended" in text
    assert "1 run failed" in text


def test_the_heading_tells_what_was_planned(tmp_path):
    Lab(tmp_path).grader("idrid", "ce", "none", 0)
    name = tmp_path.name

    def heading(**given) -> str:
        page = write_report(tmp_path, tmp_path / "out", **given).with_suffix(".md")
        return page.read_text(encoding="utf-8").splitlines()[0]

    assert heading() == f"# DisMix benchmark: {name}"
    (tmp_path / "plans").mkdir()
    for plan in ("first", "second"):
        content = {"plan": plan, "title": f"The {plan} study", "runs": []}
        (tmp_path / "plans" / f"{plan}.json").write_text(json.dumps(content))
        if plan == "first":
            assert heading() == f"# DisMix benchmark: {name} (plan: The first study)"
    # Neither of two is the folder's, but each is its own.
    assert heading() == f"# DisMix benchmark: {name}"
    assert plan_title(tmp_path, "second") == "The second study"
    (tmp_path / "plan.json").write_text('{"title": "Its own <b>name</b>"}')
    assert heading() == f"# DisMix benchmark: {name} (plan: Its own &lt;b&gt;name&lt;/b&gt;)"
    (tmp_path / "plan.json").write_text("torn {")
    assert heading() == f"# DisMix benchmark: {name}"


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ((1, 1), "One seed each; best in bold."),
        ((1, 1, 3), "One seed each (n: mean ± standard deviation of n seeds); best in bold."),
        ((2, 2), "Means over 2 seeds ± standard deviation; best in bold."),
        (
            (3, 2, 3),
            "Means over 3 seeds ± standard deviation (n: over n seeds instead of 3); best in bold.",
        ),
    ],
)
def test_tables_say_over_how_many_seeds(tmp_path, seeds, words):
    lab = Lab(tmp_path)
    for mixer, count in zip(("none", "mixup", "dismix"), seeds, strict=False):
        for seed in range(count):
            lab.grader("idrid", "ce", mixer, seed)
    write_report(tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert words in text.splitlines()
    assert text.count("best in bold") == text.count(words)


@pytest.mark.parametrize(
    ("factors", "table"), [({}, "main"), ({"scarcity": 0.1}, "scarcity"), ({"labels": "clean"}, "")]
)
def test_numbers_stand_beside_the_papers_of_the_same_condition(tmp_path, factors, table):
    lab = Lab(tmp_path)
    for mixer in ("mixup", "dismix"):
        lab.grader("koa", "cloc", mixer, 0, content={"metrics": {"accuracy": 0.5}}, **factors)
    told = dict(summarise(read_study(tmp_path)).paragraphs).get("Beside the paper", ("",))
    if not table:
        assert told == ("",)
        return
    numbers = [
        find_number(table, "koa", "cloc", name, "accuracy").mean for name in ("Mixup", "DisMix")
    ]
    gap = sum(numbers) / 2 - 50
    assert f"ours are {gap:.1f} points below the paper's on average" in told[0]
    # The paper's own counting is of its main table.
    assert any("The same counting" in line for line in told) == (table == "main")


def test_settings_that_rest_on_unequal_seeds_are_counted(tmp_path):
    lab = Lab(tmp_path)
    for grader, counts in (("ce", (2, 2)), ("cloc", (1, 2))):
        for mixer, count in zip(("mixup", "dismix"), counts, strict=True):
            for seed in range(count):
                lab.grader("knee", grader, mixer, seed)
    told = " ".join(dict(summarise(read_study(tmp_path)).paragraphs)["Who wins"])
    assert "In one of these settings some mixers were run with other seeds or fewer" in told
    lab.grader("knee", "cloc", "mixup", 1)
    told = " ".join(dict(summarise(read_study(tmp_path)).paragraphs)["Who wins"])
    assert "other seeds" not in told


def test_a_folder_without_records_is_not_taken_for_a_benchmark(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = tmp_path / "bench"
    (tmp_path / "demo" / "phantoms").mkdir(parents=True)
    assert _place("demo", output) == (output, "demo")
    assert _place("demo", BENCH) == (BENCH, "demo")
    # Neither a plan nor a benchmark: the message is about records.
    (tmp_path / "empty").mkdir()
    assert _place("empty", BENCH) == (Path("empty"), None)
    with pytest.raises(DisMixError, match="would be another one; leave"):
        _place("empty", output)
    Lab(tmp_path / "demo").grader("knee", "ce", "none", 0)
    assert _place("demo", BENCH) == (Path("demo"), None)
    # Who names the benchmark's folder means its plan.
    assert _place("demo", output) == (output, "demo")


def test_links_are_whole_where_folders_have_spaces(tmp_path):
    name = Lab(tmp_path / "my bench (1)").grader("knee", "ce", "none", 0)
    path = write_report(tmp_path / "my bench (1)", tmp_path / "out")
    links = [link for link in read(path).links if link.endswith(".json")]
    wanted = f"../my%20bench%20%281%29/records/{name}.json"
    assert links == [wanted]
    assert f"]({wanted} " in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")


def test_the_same_data_are_one_however_they_were_made(tmp_path):
    lab = Lab(tmp_path)
    ways = [{"variability": "own"}, {"variability": 30, "votes": {"seed": 0}}]
    for seed, (way, content) in enumerate([*((w, "a") for w in ways), (ways[1], "b")]):
        data = {"content": content * 64, "derivation": way}
        lab.grader("knee", "ce", "none", seed, content={"config": {"data": data}})
    groups = read_study(lab.folder).groups
    assert sorted(len(runs) for runs in groups.values()) == [1, 2]
