"""Tables in results/ say what the committed records say."""

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

import pytest
from scipy.stats import t as student

from dismix.bench.report import write_report
from dismix.bench.statistics import holm, signed_rank

RESULTS = Path(__file__).parents[1] / "results"
PAGES = [RESULTS / "README.md", RESULTS / "earlier.md"]
TABLE = re.compile(r"<!-- table: (\S+) -->\n((?:\|.*\n)+)")
METHODS = re.compile(r"<!-- methods: (\S+) -->\n((?:\|.*\n)+)")
RULES = re.compile(r"<!-- rules: (.+) -->\n((?:\|.*\n)+\n(?:\|.*\n)+)")
PHANTOM = re.compile(r"<!-- phantom: (\S+) -->\n((?:\|.*\n)+)")
STUBBORN = re.compile(r"<!-- stubborn: (.+) -->\n((?:\|.*\n)+)")
PAIRS = re.compile(r"<!-- pairs: (\S+) -->\n((?:\|.*\n)+)")
ORACLE = re.compile(r"<!-- oracle: (\S+) -->\n((?:\|.*\n)+)")
FEW = re.compile(r"<!-- few: (\S+) -->\n((?:\|.*\n)+)")
TAUGHT = re.compile(r"<!-- taught: (\S+) -->\n((?:\|.*\n)+)")
GUIDES = re.compile(r"<!-- guides: (\S+) -->\n((?:\|.*\n)+)")
DATA = re.compile(r"<!-- data: (\S+) -->\n((?:\|.*\n)+)")
RANKS = re.compile(r"<!-- ranks: (\S+) -->\n((?:\|.*\n)+)")
FOLDS = re.compile(r"<!-- folds: (\S+) -->\n((?:\|.*\n)+)")
DECISIONS = re.compile(r"<!-- decisions: (.+) -->\n((?:\|.*\n)+)")
AUTO = re.compile(r"<!-- auto: (.+) -->\n((?:\|.*\n)+)")
ALONE = re.compile(r"<!-- alone: (.+) -->\n((?:\|.*\n)+)")
POLICIES = re.compile(r"<!-- policies: (\S+) -->\n((?:\|.*\n)+)")


Runs = dict[tuple[str, str], dict[int, dict[str, float]]]


def _runs(folder: Path) -> Runs:
    """Return the metrics of each setting and mixer by seed.

    A setting is named by its grader, and by its data set too where there are several.
    """
    records = [
        json.loads(file.read_text(encoding="utf-8"))
        for file in sorted((folder / "records").glob("*.json"))
    ]
    assert all(record["status"] == "done" for record in records), folder
    factors = [record["factors"] for record in records]
    several = len({named["data"] for named in factors}) > 1
    runs: Runs = defaultdict(dict)
    for record, named in zip(records, factors, strict=True):
        name = f"{named['data']}, {named['grader']}" if several else named["grader"]
        runs[name, named["mixer"]][named["seed"]] = record["metrics"]
    return runs


def _last_epoch(name: str) -> dict[str, float]:
    """Return what a generator's record says of its last epoch."""
    file = RESULTS / "generator" / "records" / f"{name}.json"
    found: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))["last_epoch"]
    return found


def _cells(folder: Path) -> dict[tuple[str, str], str]:
    """Return "accuracy / MAE (seeds)" of each setting and mixer."""
    return {key: _cell([*found.values()]) for key, found in _runs(folder).items()}


def _written(table: str) -> dict[tuple[str, str], str]:
    """Return the cells of a table by the names of their row and column."""
    head, _, *rows = [[c.strip() for c in line.split("|")[1:-1]] for line in table.splitlines()]
    return {
        (row[0], column): cell.replace("*", "")
        for row in rows
        for column, cell in zip(head[1:], row[1:], strict=True)
        if cell != "not run"
    }


def _cell(found: list[dict[str, float]]) -> str:
    accuracy, error = (mean(m[name] for m in found) for name in ("accuracy", "mae"))
    return f"{100 * accuracy:.1f} / {error:.3f} ({len(found)})"


@pytest.mark.parametrize("page", [*PAGES, RESULTS.parent / "README.md"], ids=str)
def test_tables_are_those_of_the_records(page: Path) -> None:
    tables = TABLE.findall(page.read_text(encoding="utf-8"))
    assert tables
    for folder, text in tables:
        cells = _cells(RESULTS / folder)
        assert _written(text) == cells


def test_paired_differences_are_those_of_the_records() -> None:
    tables = [found for page in PAGES for found in PAIRS.findall(page.read_text(encoding="utf-8"))]
    assert tables
    for folder, text in tables:
        runs = _runs(RESULTS / folder)
        head, _, *rows = [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines()]
        for other, *cells in rows:
            for grader, cell in zip(head[1:], cells, strict=True):
                ours, theirs = runs[grader, "dismix"], runs[grader, other]
                assert (cell == "not run") == (not theirs), (grader, other)
                if not theirs:
                    continue
                gains = [
                    100 * (ours[seed]["accuracy"] - theirs[seed]["accuracy"])
                    for seed in ours.keys() & theirs.keys()
                ]
                error = stdev(gains) / len(gains) ** 0.5
                assert cell == f"{mean(gains):+.1f} ({error:.1f})", (grader, other)


def test_policies_are_those_of_the_records() -> None:
    ((folder, text),) = POLICIES.findall((RESULTS / "README.md").read_text(encoding="utf-8"))
    runs: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    for file in (RESULTS / folder / "records").glob("*.json"):
        record = json.loads(file.read_text(encoding="utf-8"))
        factors = record["factors"]
        runs[factors["policies"], factors["data"]].append(record["metrics"])
    assert _written(text) == {key: _cell(found) for key, found in runs.items()}


def test_the_second_simulation_is_that_of_its_records() -> None:
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    ((folder, text),) = DATA.findall(page)
    page = " ".join(page.split())
    runs: dict[tuple[str, str], dict[int, dict[str, float]]] = defaultdict(dict)
    given = []
    for file in (RESULTS / folder / "records").glob("*.json"):
        record = json.loads(file.read_text(encoding="utf-8"))
        factors = record["factors"]
        assert record["config"]["data"]["derivation"]["votes"]["mode"] == "per_image"
        runs[factors["data"], factors["mixer"]][factors["seed"]] = record["metrics"]
        given += record["predictions"]["label"]
    cells = {key: _cell(list(found.values())) for key, found in runs.items()}
    assert _written(text) == cells
    for words, mixer in (
        ("2.9 points on no mixing (standard error of the paired difference 1.5)", "none"),
        ("3.2 on CutMix (3.4)", "cutmix"),
        ("5.2 on Mixup (4.4)", "mixup"),
    ):
        ours, theirs = runs["idrid", "dismix"], runs["idrid", mixer]
        gains = [100 * (ours[s]["accuracy"] - theirs[s]["accuracy"]) for s in sorted(ours)]
        error = stdev(gains) / len(gains) ** 0.5
        assert [f"{mean(gains):.1f}", f"{error:.1f}"] == re.findall(r"\d+\.\d", words)
        assert words in page
    missed = 66.0 - 100 * mean(m["accuracy"] for m in runs["idrid", "dismix"].values())
    assert f"missed by {missed:.1f} points and 0.02 ranks" in page
    assert (given.count(1), len(cells), sum(map(len, runs.values()))) == (1, 8, 19)
    assert "one image of all 19 runs" in page


def test_ranks_of_mixes_are_those_of_the_record() -> None:
    ((file, text),) = RANKS.findall((RESULTS / "README.md").read_text(encoding="utf-8"))
    record = json.loads((RESULTS / file).read_text(encoding="utf-8"))["data"]
    wanted = []
    for name, found in record.items():
        wanted.append([f"{name}, images", *map(str, found["own"]), "-"])
        for pairing in ("adjacent", "near"):
            mixes = found["mixes"][f"interpolating, {pairing}"]
            label = f"{name}, mixes of {pairing} pairs"
            wanted.append([label, *map(str, mixes["ranks"]), f"{mixes['busiest']} times"])
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines()][2:]
    assert rows == wanted


def test_folds_of_a_hundred_epochs_are_those_that_were_tried() -> None:
    ((file, text),) = FOLDS.findall((RESULTS / "tried.md").read_text(encoding="utf-8"))
    runs: dict[str, list[dict[str, float]]] = defaultdict(list)
    for line in (RESULTS / file).read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if "neighbours together, 100 epochs" in record["what"]:
            runs[record["what"].split(": ", 1)[1].split(", third")[0]].append(record["held_out"])
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines()][2:]
    assert all(len(found) == 4 for found in runs.values())
    assert dict(rows) == {
        way: f"{100 * mean(m['accuracy'] for m in found):.1f} / "
        f"{mean(m['mae'] for m in found):.3f} / {mean(m['rps'] for m in found):.3f}"
        for way, found in runs.items()
    }


def test_perfect_mixes_are_those_of_the_records() -> None:
    page = RESULTS / "mixing" / "README.md"
    tables = ORACLE.findall(page.read_text(encoding="utf-8"))
    assert len(tables) == 2
    for folder, text in tables:
        runs: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
        for file in (RESULTS / folder).glob("*.json"):
            record = json.loads(file.read_text(encoding="utf-8"))
            asked = record["asked"]
            place = f"{asked['train']} pictures, {asked['epochs']} epochs"
            if asked["method"] != "ce":
                place = f"{asked['method']}, {place}"
            runs[asked["way"], place].append(record["test"])
        assert _written(text) == {key: _cell(found) for key, found in runs.items()}


def test_the_methods_without_mixing_are_those_of_the_records() -> None:
    page = (RESULTS / "graders" / "README.md").read_text(encoding="utf-8")
    tables = METHODS.findall(page)
    assert tables
    for folder, text in tables:
        runs: dict[str, list[dict[str, float]]] = defaultdict(list)
        for file in (RESULTS / folder / "records").glob("*.json"):
            record = json.loads(file.read_text(encoding="utf-8"))
            if record["factors"]["mixer"] == "none":
                runs[record["factors"]["grader"]].append(record["metrics"])
        rows = [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines()][2:]
        assert {row[0] for row in rows} == runs.keys()
        for name, *written in rows:
            points = [100 * m["accuracy"] for m in runs[name]]
            count, middle = len(points), mean(points)
            said = f"{middle:.1f}"
            if count > 1:
                half = float(student.ppf(0.975, count - 1)) * stdev(points) / count**0.5
                said += f" ({middle - half:.1f} to {middle + half:.1f})"
            assert written == [
                str(count),
                said,
                f"{mean(m['mae'] for m in runs[name]):.3f}",
                f"{mean(m['qwk'] for m in runs[name]):.3f}",
                f"{100 * mean(m['off_by_one'] for m in runs[name]):.1f}",
            ]


def test_what_decides_best_is_in_the_records() -> None:
    page = (RESULTS / "graders" / "README.md").read_text(encoding="utf-8")
    ((files, text),) = DECISIONS.findall(page)
    wanted, gains = [], []
    for file in files.split():
        record = json.loads((RESULTS / file).read_text(encoding="utf-8"))
        name = {"koa_v": "KOA, from nothing", "few": "591 knees", "f0": "IDRiD folds"}
        for method in ("poe", "gol"):
            for size, rules in record[method].items():
                cells = [
                    f"{100 * rules[rule]['accuracy']:.1f} / {rules[rule]['mae']:.3f}"
                    for rule in ("nearest", "averaged", "mode", "auto")
                ]
                wanted.append([name[record["data"][0]], method, size, *cells])
                found = {rule: 100 * values["accuracy"] for rule, values in rules.items()}
                gains.append([
                    found["mode"] - found["averaged"],
                    rules["averaged"]["mae"] - rules["mode"]["mae"],
                    *(found["mode"] - found[rule] for rule in ("auto", "auto 0", "auto 2")),
                ])  # fmt: skip
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines()][2:]
    assert rows == wanted
    hits, errors, lost, at_once, late = ([gain[i] for gain in gains] for i in range(5))
    page = " ".join(page.split())
    assert f"more hits than cut points in {sum(h > 0 for h in hits)} of the {len(hits)}" in page
    assert f"by {mean(hits):.1f} points in the mean" in page
    assert f"the smaller error in {sum(e > 0 for e in errors)}." in page
    assert sum(h < -0.5 for h in hits) == 1
    assert f"it has {max(lost):.1f} points fewer hits than the mode at most, and" in page
    assert f"and {mean(lost):.1f} in the mean." in page
    assert f"photographs lose up to {max(at_once):.1f} points to the mode" in page
    assert max(map(abs, late)) < 0.2


def test_what_validation_chooses_on_drawings_is_in_the_records() -> None:
    page = (RESULTS / "graders" / "README.md").read_text(encoding="utf-8")
    ((folders, text),) = AUTO.findall(page)
    names = {"mode": ("mode",), "cut points": ("fitted", "rank"), "auto": ("auto",)}
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines()][2:]
    assert [row[0] for row in rows] == [*names]
    for name, *cells in rows:
        wanted = []
        for folder in folders.split():
            for method in ("poe", "gol"):
                places = [RESULTS / folder / f"{method}-{end}.json" for end in names[name]]
                (file,) = (place for place in places if place.is_file())
                record = json.loads(file.read_text(encoding="utf-8"))
                assert record["options"]["method"] == method
                wanted.append(f"{100 * record['test']['accuracy']:.1f}")
        assert cells == wanted


def test_the_rules_of_choosing_are_those_of_the_records() -> None:
    found = RULES.findall((RESULTS / "graders" / "README.md").read_text(encoding="utf-8"))
    assert found
    for folders, text in found:
        places = [str(RESULTS / folder) for folder in folders.split()]
        script = RESULTS.parent / "benchmarks" / "grader_idrid.py"
        command = [sys.executable, str(script), "--table", "--results", *places]
        made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert made.strip() == text.strip()


def test_images_that_tell_mixers_apart_are_those_of_the_records() -> None:
    ((folders, text),) = STUBBORN.findall((RESULTS / "README.md").read_text(encoding="utf-8"))
    script = RESULTS.parent / "benchmarks" / "stubborn_images.py"
    command = [sys.executable, str(script), *(str(RESULTS / name) for name in folders.split())]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert made.split("\n", 1)[1] == text


def test_graders_on_phantoms_are_those_of_the_records() -> None:
    page = RESULTS.parent / "docs" / "graders" / "README.md"
    ((folder, text),) = PHANTOM.findall(page.read_text(encoding="utf-8"))
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines()][2:]
    records = {}
    for file in (RESULTS / folder).glob("*.json"):
        record = json.loads(file.read_text(encoding="utf-8"))
        records[record["options"]["method"]] = record["test"]
    assert {row[0] for row in rows} == records.keys()
    for name, *written in rows:
        found = records[name]
        digits = [f"{found[metric]:.3f}" for metric in ("mae", "mae_expected", "qwk")]
        seconds = f"{found['seconds']:.0f}"
        assert written == [f"{found['accuracy']:.1%}".replace("%", " %"), *digits, seconds]


def test_both_data_sets_together_are_what_the_page_says() -> None:
    page = " ".join((RESULTS / "README.md").read_text(encoding="utf-8").split())
    gains: dict[tuple[str, str], list[float]] = defaultdict(list)
    for folder in ("bench/idrid", "bench/koa"):
        runs: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
        for file in (RESULTS / folder / "records").glob("*.json"):
            record = json.loads(file.read_text(encoding="utf-8"))
            runs[record["factors"]["grader"], record["factors"]["mixer"]].append(record["metrics"])
        for grader in ("poe", "gol", "mwr", "rnc", "ord2seq", "cloc"):
            for metric, sign in (("accuracy", 100), ("mae", -1)):
                means = {
                    mixer: sign * mean(m[metric] for m in found)
                    for (name, mixer), found in runs.items()
                    if name == grader
                }
                ours, none = means.pop("dismix"), means.pop("none")
                gains["best", metric].append(ours - max(means.values()))
                gains["none", metric].append(ours - none)
    won = {
        metric: sum(gain > 0 for gain in gains["best", metric]) for metric in ("accuracy", "mae")
    }
    text = {
        key: f"{mean(found):.{1 if key[1] == 'accuracy' else 3}f}" for key, found in gains.items()
    }
    p = {key: f"p = {signed_rank(found).p:.2f}" for key, found in gains.items()}
    for said in (
        f"best accuracy of the mixers in {won['accuracy']} of 12 settings and the best error in "
        f"{won['mae']}**",
        f"{text['best', 'accuracy']} points (one-sided Wilcoxon {p['best', 'accuracy']})",
        f"{text['best', 'mae']} ranks ({p['best', 'mae']})",
        f"against no mixing {text['none', 'accuracy']} points ({p['none', 'accuracy']}) and "
        f"{text['none', 'mae']} ranks ({p['none', 'mae']})",
    ):
        assert said in page


def test_gains_on_each_mixer_alone_are_those_of_the_records() -> None:
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    ((folders, text),) = ALONE.findall(page)
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    best: dict[str, int] = defaultdict(int)
    for folder in folders.split():
        runs = _runs(RESULTS / folder)
        for grader in ("poe", "gol", "mwr", "rnc", "ord2seq", "cloc"):
            means = {
                mixer: {m: mean(r[m] for r in seeds.values()) for m in ("accuracy", "mae", "rps")}
                for (name, mixer), seeds in runs.items()
                if name == grader
            }
            for other in means.keys() - {"dismix"}:
                for metric, sign in (("accuracy", 100), ("mae", -1), ("rps", -1)):
                    gain = means["dismix"][metric] - means[other][metric]
                    found[other][metric].append(sign * gain)
            best[min(means.keys() - {"none"}, key=lambda mixer: means[mixer]["rps"])] += 1
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines()][2:]
    assert {row[0] for row in rows} == found.keys()
    for other, *cells in rows:
        wanted = []
        for metric, digits in (("accuracy", 1), ("mae", 3), ("rps", 3)):
            gains = found[other][metric]
            assert len(gains) == 12
            p = f"p = {signed_rank(gains).p:.3f}"
            wanted += [f"{mean(gains):+.{digits}f} ({p})", f"{sum(g > 0 for g in gains)} of 12"]
        assert cells == wanted
    own = {other: f"{abs(mean(gains['accuracy'])):.1f}" for other, gains in found.items()}
    first = " ".join((RESULTS.parent / "README.md").read_text(encoding="utf-8").split())
    assert (
        f"it gains {own['guidedmixup']} points on GuidedMixup, {own['puzzlemix']} on PuzzleMix, "
        f"{own['mixup']} on Mixup, {own['comixup']} on Co-Mixup, {own['cutmix']} on CutMix, and "
        f"loses {own['none']} to no mixing" in first
    )
    for metric, kept in (("accuracy", {"guidedmixup", "comixup"}), ("mae", {"guidedmixup"})):
        tried = {o: signed_rank(g[metric]).p for o, g in found.items() if o != "none"}
        corrected = dict(zip(tried, holm([*tried.values()]), strict=True))
        assert {other for other, p in corrected.items() if p < 0.05} == kept
    words = "in {} of the 12 settings, no other mixer in more than {}.".format(
        best.pop("dismix"), max(best.values())
    )
    assert words in " ".join(page.split())


def test_what_the_page_says_of_single_numbers_is_in_the_records() -> None:
    page = " ".join((RESULTS / "README.md").read_text(encoding="utf-8").split())
    runs: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for file in (RESULTS / "bench/idrid/records").glob("*.json"):
        record = json.loads(file.read_text(encoding="utf-8"))
        factors = record["factors"]
        points = 100 * record["metrics"]["accuracy"]
        runs[factors["grader"], factors["mixer"]][factors["seed"]] = points
    words = {"mixup": "{:.1f} points (standard error {:.1f}) better than Mixup",
             "cutmix": "{:.1f} worse ({:.1f}) than CutMix",
             "none": "{:.1f} better ({:.1f}) than no mixing"}  # fmt: skip
    for other, said in words.items():
        gains = [
            ours[seed] - runs[grader, other][seed]
            for (grader, mixer), ours in runs.items()
            if mixer == "dismix"
            for seed in ours
        ]
        assert len(gains) == 42
        assert said.format(abs(mean(gains)), stdev(gains) / len(gains) ** 0.5) in page
        assert (mean(gains) < 0) == (other == "cutmix")
    found: dict[str, list[bool]] = defaultdict(list)
    first: list[bool] = []
    last = []
    for file in (RESULTS / "bench/koa/records").glob("*.json"):
        record = json.loads(file.read_text(encoding="utf-8"))
        last.append(record["epoch"] == record["config"]["grader"]["epochs"])
        if record["factors"]["grader"] == "cloc":
            made = record["predictions"]
            for grade, label in zip(made["grade"], made["label"], strict=True):
                found[record["factors"]["mixer"]] += [label == 4] if grade == 4 else []
                if record["factors"]["mixer"] == "mixup" and record["factors"]["seed"] == 0:
                    first += [label == 4] if grade == 4 else []
    shares = {mixer: f"{100 * mean(hits):.0f}" for mixer, hits in found.items()}
    assert (
        f"{shares['none']} per cent of the 51 knees of grade 4 are found without mixing,"
        f" {shares['dismix']} with DisMix, {shares['cutmix']} with CutMix,"
        f" {shares['mixup']} with Mixup" in page
    )
    assert f"moved Mixup with CLOC from {100 * mean(first):.0f} to {shares['mixup']} per" in page
    said = f"{sum(last)} of the {len(last)} chosen checkpoints are those of the last epoch"
    assert said in page


def test_what_a_longer_training_gains_is_in_the_records() -> None:
    page = " ".join((RESULTS / "README.md").read_text(encoding="utf-8").split())
    short, long = (_runs(RESULTS / "bench" / name) for name in ("koa", "koa_48"))
    gains, images = {}, {}
    for (grader, mixer), seeds in long.items():
        assert seeds.keys() == {0}
        gained = seeds[0]["accuracy"] - short[grader, mixer][0]["accuracy"]
        gains[mixer] = f"{100 * gained:.1f}"
        images[mixer] = round(seeds[0]["accuracy"] * seeds[0]["count"])
    assert (
        f"it gains {gains['dismix']} points by it (generators F2 and F4), Mixup {gains['mixup']},"
        f" CutMix {gains['cutmix']} and no mixing {gains['none']}." in page
    )
    assert images["dismix"] - images["mixup"] == -1
    assert images["dismix"] - images["none"] == 2
    ours = long["cloc", "dismix"][0]
    assert f"missed by {68.4 - 100 * ours['accuracy']:.1f} points and" in page
    assert f"points and {ours['mae'] - 0.41:.3f} ranks. One seed" in page
    report = (RESULTS / "bench" / "koa_48" / "report.md").read_text(encoding="utf-8")
    assert "from -1.27 to +1.15 points" in page
    assert "| lost | −1.27 to +1.15 | 1656 |" in report
    first = " ".join((RESULTS.parent / "README.md").read_text(encoding="utf-8").split())
    cells = {mixer: _cell([*seeds.values()])[:-4] for (_, mixer), seeds in long.items()}
    assert cells["dismix"] == cells["mixup"]
    assert f"DisMix has {cells['dismix']}, Mixup the same and no mixing {cells['none']}." in first
    eyes = [*_runs(RESULTS / "bench" / "idrid")["cloc", "dismix"].values()]
    missed = 66.0 - 100 * mean(metrics["accuracy"] for metrics in eyes)
    assert f"missed by {missed:.1f} and {68.4 - 100 * ours['accuracy']:.1f} points" in first
    found = _last_epoch("koa_light_f16_fourth")
    assert f"{found['psnr_val']:.1f} dB, mixing accuracy {found['mixing_accuracy_val']:.2f}" in page


def test_figures_of_gains_are_drawn_from_the_records(tmp_path: Path) -> None:
    script = RESULTS.parent / "benchmarks" / "gains_figure.py"
    folders = [str(RESULTS / "bench" / name) for name in ("idrid", "koa")]
    subprocess.run([sys.executable, str(script), *folders, "-o", str(tmp_path)], check=True)
    made = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.svg")}
    kept = {p.name: p.read_text(encoding="utf-8") for p in (RESULTS / "figures").glob("*.svg")}
    assert made.keys() == kept.keys() != set()
    assert made == kept
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    assert all(f"(figures/{name})" in page for name in kept)
    # What the figure of accuracy is told to show: blue dots against Mixup, grey against none.
    shown = re.findall(
        r"<title>against (Mixup|no mixing):.*?<circle[^>]*fill:var\(--(\w+)",
        kept["gains_idrid_accuracy.svg"],
    )
    assert (shown.count(("Mixup", "up")), shown.count(("no mixing", "soft"))) == (6, 7)
    assert "better than Mixup with six of seven graders, within the error of no mixing" in page


@pytest.mark.parametrize(
    "folder", sorted(p.parent for p in RESULTS.glob("bench/*/records")), ids=str
)
def test_a_report_is_rebuilt_from_the_records(folder: Path, tmp_path: Path) -> None:
    write_report(folder, tmp_path)
    made, kept = (
        re.sub(r"\]\([^ )]*/", "](", (place / "report.md").read_text(encoding="utf-8"))
        for place in (tmp_path, folder)
    )
    assert made == kept


def test_the_scarce_study_is_what_its_records_say() -> None:
    page = " ".join((RESULTS / "README.md").read_text(encoding="utf-8").split())
    for name in ("idrid", "koa"):
        made = _last_epoch(f"{name}_scarce_tiny_128px")
        said = (
            "{psnr_val:.1f} dB, mixing accuracy {mixing_accuracy_val:.2f}, order of the guide on "
        )
        assert (said + "real validation images {reader_order_val:.2f}").format(**made) in page
    for path in (RESULTS / "bench" / "scarce" / "records").glob("*.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        data, settings = record["config"]["data"], record["config"]["grader"]
        kind, epochs = {"idrid": ("eyes", 100), "koa": ("knees", 30)}[record["factors"]["data"]]
        words = f"({{train}} {kind}, {{val}} of validation, all {{test}} test images) | {epochs} |"
        assert words.format(**data["counts"]) in page
        assert (settings["epochs"], settings["size"], settings["batch_size"]) == (epochs, 128, 16)
    runs = _runs(RESULTS / "bench" / "scarce")
    ways, gaps = [], []
    for (setting, mixer), found in runs.items():
        points = [100 * metrics["accuracy"] for metrics in found.values()]
        ways.append(max(points) - min(points))
        ours = runs.get((setting, "dismix"), {})
        if mixer == "dismix" or not ours:
            continue
        for metric in ("accuracy", "mae"):
            gains = [ours[seed][metric] - found[seed][metric] for seed in sorted(ours)]
            gaps.append(abs(mean(gains)) / (stdev(gains) / len(gains) ** 0.5))
    assert f"up to {max(ways):.1f} points" in page
    assert len(gaps) == 24
    assert max(gaps) < 2
    assert "reaches two standard errors" in page


def test_clean_labels_in_a_small_form_are_what_the_records_say() -> None:
    page = " ".join((RESULTS / "README.md").read_text(encoding="utf-8").split())
    made = _last_epoch("idrid_clean_tiny_128px")
    said = (
        "{psnr_val:.1f} dB, mixing accuracy {mixing_accuracy_val:.2f}, order of the guide on real "
        "validation images {reader_order_val:.2f}; `generator/records/idrid_clean_tiny_128px.json`"
    )
    assert said.format(**made) in page
    runs = _runs(RESULTS / "bench" / "clean_small")
    ours = runs["cloc", "dismix"]
    reached = []
    for (_, mixer), found in runs.items():
        for metric in ("accuracy", "mae"):
            gains = [ours[seed][metric] - found[seed][metric] for seed in sorted(ours)]
            if mixer != "dismix" and abs(mean(gains)) >= 2 * stdev(gains) / len(gains) ** 0.5:
                reached.append((mixer, metric))
    assert reached == [("none", "accuracy")]
    assert "on no mixing in accuracy is the only difference that reaches two standard" in page
    order = sorted((-mean(m["accuracy"] for m in f.values()), k) for (_, k), f in runs.items())
    assert [mixer for _, mixer in order[:2]] == ["cutmix", "dismix"]


def test_more_disagreement_in_a_small_form_is_what_the_records_say() -> None:
    page = " ".join((RESULTS / "README.md").read_text(encoding="utf-8").split())
    made = _last_epoch("idrid_variability_70_tiny_128px")
    said = (
        "{psnr_val:.1f} dB, mixing accuracy {mixing_accuracy_val:.2f} (one rank for all: "
        "{mixing_chance_val:.2f}), order of the guide on real validation images "
        "{reader_order_val:.2f}; `generator/records/idrid_variability_70_tiny_128px.json`"
    )
    assert said.format(**made) in page
    runs = _runs(RESULTS / "bench" / "variability_small")
    ours = runs["cloc", "dismix"]
    larger = {
        other: [ours[seed]["mae"] - runs["cloc", other][seed]["mae"] for seed in range(3)]
        for other in ("mixup", "cutmix", "none")
    }
    assert all(gap > 0 for gaps in larger.values() for gap in gaps)
    mixup, cutmix, none = (f"{mean(gaps):.3f}" for gaps in larger.values())
    assert (
        f"{mixup} ranks larger than Mixup's, {cutmix} larger than CutMix's and {none} larger than "
        "that of no mixing, with each of the three seeds" in page
    )
    for record in (RESULTS / "bench" / "variability_small" / "records").glob("*.json"):
        how = json.loads(record.read_text(encoding="utf-8"))["config"]["data"]["derivation"]
        assert how["variability"] == 70


def test_what_ten_seeds_say_is_in_the_records() -> None:
    page = " ".join((RESULTS / "README.md").read_text(encoding="utf-8").split())
    runs: dict[tuple[str, str], dict[int, dict[str, float]]] = defaultdict(dict)
    for file in (RESULTS / "bench/idrid/records").glob("*.json"):
        record = json.loads(file.read_text(encoding="utf-8"))
        factors = record["factors"]
        runs[factors["grader"], factors["mixer"]][factors["seed"]] = record["metrics"]

    def said(grader: str, other: str, metric: str) -> str:
        ours, theirs = runs[grader, "dismix"], runs[grader, other]
        assert ours.keys() == theirs.keys() == set(range(10))
        gains = [theirs[seed][metric] - ours[seed][metric] for seed in sorted(ours)]
        return f"{mean(gains):.3f}{{}}, p = {signed_rank(gains).p:.3f})"

    found = {
        (grader, other): said(grader, other, "mae")
        for grader in ("ce", "poe", "cloc")
        for other in ("mixup", "cutmix")
    }
    plain = found["cloc", "cutmix"].format("")
    for words in (
        f"cross-entropy ({found['ce', 'mixup'].format(' ranks')}, POE "
        f"({found['poe', 'mixup'].format('')} and CLOC ({found['cloc', 'mixup'].format('')}",
        f"cross-entropy ({found['ce', 'cutmix'].format('')}, not with POE "
        f"({found['poe', 'cutmix'].format('')} and CLOC ({plain}",
        f"of CLOC does ({said('cloc', 'none', 'rps').format('')}",
    ):
        assert words in page


def test_what_is_read_in_knees_is_in_its_record() -> None:
    page = " ".join((RESULTS / "README.md").read_text(encoding="utf-8").split())
    file = RESULTS / "generator" / "records" / "koa_few_read.json"
    least, _, _, third, most = json.loads(file.read_text(encoding="utf-8"))["readings"]
    assert (
        f"in the {most['images']} knees that annotators call 4 the generator of 591 knees, told no "
        f"label, reads {most['read']:.1f} in the mean, in the {third['images']} they call 3 it "
        f"reads {third['read']:.1f}, in the {least['images']} they call 0 it reads "
        f"{least['read']:.1f}" in page
    )
    file = file.with_name("koa_light_f16_third_read.json")
    found = json.loads(file.read_text(encoding="utf-8"))["readings"]
    told = [f"{row['read']:.1f}" for row in found]
    assert f"reads {', '.join(told[:-1])} and {told[-1]} in ranks 0 to 4" in page
    assert found[4]["images"] == 8


def test_few_knees_are_those_of_the_records() -> None:
    ((file, text),) = FEW.findall((RESULTS / "tried.md").read_text(encoding="utf-8"))
    runs: dict[str, list[dict[str, float]]] = defaultdict(list)
    for line in (RESULTS / file).read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["what"].startswith("591 KOA images"):
            runs[record["what"].split(": ", 1)[1]].append(record["held_out"])
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines()][2:]
    assert dict(rows) == {
        way: f"{100 * mean(m['accuracy'] for m in found):.1f} / "
        f"{mean(m['mae'] for m in found):.3f} / {mean(m['rps'] for m in found):.3f} ({len(found)})"
        for way, found in runs.items()
    }


def test_what_guides_of_few_knees_are_worth_is_in_their_record() -> None:
    page = (RESULTS / "generator" / "README.md").read_text(encoding="utf-8")
    ((file, text),) = GUIDES.findall(page)
    record = json.loads((RESULTS / file).read_text(encoding="utf-8"))

    def readings(values: list[float]) -> str:
        return " ".join(f"{value:.2f}" for value in values)

    names = ("conv_guide", "lite0_guide", "lite0_guide_lr", "lite0_guide_blur")
    wanted = [["-", readings(record["real_val"]["by_majority"]), "-", "-"]] + [
        [
            f"{run['guide']['rank_correlation']:.2f}", readings(run["read_at_ranks"]),
            f"{run['slope']:.2f}", f"{100 * run['monotone']:.0f} %",
        ]
        for run in map(record["runs"].get, names)
    ]  # fmt: skip
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines()][2:]
    assert [row[1:] for row in rows] == wanted
    page = " ".join(page.split())
    worth = [record[name]["rank_correlation"] for name in ("judge", "real_val")]
    assert f"rank correlation {worth[0]:.2f} with" in page
    assert "{:.2f} on the {} of validation".format(worth[1], record["real_val"]["images"]) in page
    trained = [
        json.loads((RESULTS / "generator" / "records" / file).read_text(encoding="utf-8"))
        for file in re.findall(
            r"`records/(koa_few_tiny_128px_\w+_guide(?:_lr|_blur)?\.json)`", page
        )
    ]
    small, lite0, taught, blurred = (record["last_epoch"] for record in trained)
    assert {f"{found['mixing_accuracy_val']:.3f}" for found in (small, lite0)} == {"0.582"}
    assert f"({small['psnr_val']:.1f} and {lite0['psnr_val']:.1f} dB)" in page
    better = f"mixing accuracy of {taught['mixing_accuracy_val']:.3f} by that guide"
    assert f"{better} instead of {lite0['mixing_accuracy_val']:.3f}" in page
    assert f"_blur.json`, mixing accuracy {blurred['mixing_accuracy_val']:.3f})" in page


def test_what_a_judge_reads_behind_a_blur_is_in_its_record() -> None:
    page = " ".join((RESULTS / "generator" / "README.md").read_text(encoding="utf-8").split())
    file = RESULTS / "generator" / "records" / "koa_few_judged_blurred.json"
    record = json.loads(file.read_text(encoding="utf-8"))
    sharp = json.loads(file.with_name("koa_few_judged.json").read_text(encoding="utf-8"))
    worth = [found["judge"]["rank_correlation"] for found in (record, sharp)]
    assert "real knees with {:.2f} instead of {:.2f})".format(*worth) in page
    streaks, blurred = (record["runs"][f"lite0_guide_{name}"] for name in ("lr", "blur"))
    said = (
        f"reads {blurred['slope']:.2f} ranks a rank, monotone in {100 * blurred['monotone']:.0f} %,"
        f" and with the streaks {streaks['slope']:.2f} and {100 * streaks['monotone']:.0f} %"
    )
    assert said in page


def test_how_guides_were_taught_is_in_their_record() -> None:
    page = (RESULTS / "generator" / "README.md").read_text(encoding="utf-8")
    ((file, text),) = TAUGHT.findall(page)
    record = json.loads((RESULTS / file).read_text(encoding="utf-8"))
    wanted = [
        [
            guide["guide"], str(guide["seed"]), f"{guide['val']:.2f}", f"{guide['test']:.2f}",
            f"{guide['seconds']:.0f}",
        ]
        for guide in record["guides"]
    ]  # fmt: skip
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines()][2:]
    assert rows == wanted
    assert f"{record['images']['test']} held out" in text


def test_seconds_of_the_quick_start_are_those_that_were_measured() -> None:
    record = (RESULTS / "explore" / "quickstart_cpu.txt").read_text(encoding="utf-8")
    parts = re.findall(r"processor ([\d.]+) \+ ([\d.]+) s", record)
    measured = [f"{float(user) + float(system):.0f}" for user, system in parts]
    page = (RESULTS.parent / "docs" / "quickstart.md").read_text(encoding="utf-8")
    table = page.split("| step | seconds |")[1].split("\n\n")[0]
    assert re.findall(r"\| (\d+) \|", table) == measured
