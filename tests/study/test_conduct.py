import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
from tests.study.toy import TINY, toy_choices, toy_images

from dismix.bench.folder import BenchFolder
from dismix.cli import main
from dismix.data.manifest import read_manifest
from dismix.errors import DisMixError
from dismix.study.conduct import conduct, prepare


def records(out):
    return BenchFolder(out / "bench").records()


def test_one_page_answers(finished):
    _, out, found = finished
    assert json.loads((out / "study.json").read_text()) == json.loads(json.dumps(found))
    page = (out / "study.html").read_text()
    assert found["headline"] in page
    for part in ("What mixing gained", "How far the annotators agree", "What the mixes look like",
                 "What it cost", "The rule, fixed beforehand", "not for diagnosis"):  # fmt: skip
        assert part in page, part
    assert "Trainings were short: graders had" in page
    assert "It is never narrower than the share of groups that may differ unseen." in page
    # One file: nothing is fetched, nothing runs.
    assert not re.search(r'(src|href)="(?!data:)|<script|<link|url\(', page)
    assert page.count("<figure") == 12
    assert str(out) not in page


def test_every_image_is_held_out_once_and_budgets_are_equal(finished):
    path, out, found = finished
    made = records(out)
    assert len(made) == 6
    for mixer in ("none", "mixup", "dismix"):
        tested = [
            i for r in made if r["factors"]["mixer"] == mixer for i in r["predictions"]["image"]
        ]
        assert len(tested) == len({*tested}) == len(read_manifest(path)) == 30
    for fold in ("1/2", "2/2"):
        assert len({r["images_seen"] for r in made if r["factors"]["fold"] == fold}) == 1
    assert found["cost"]["generators"] == 2
    assert 0 < found["cost"]["generator_share"] < 1
    assert len(found["agreement"]["annotators"]) == 5
    assert found["mixes"]["count"] == 64


def test_generators_never_saw_what_is_tested(finished):
    path, out, _ = finished
    for record in records(out):
        if record["factors"]["mixer"] != "dismix":
            continue
        run = out / "bench" / "generators" / record["config"]["generator"]["id"]
        seen = read_manifest(json.loads((run / "run.json").read_text())["manifest"])
        assert not {*map(str, seen.table["image"])} & {*record["predictions"]["image"]}
        held = {image.rsplit("/", 1)[-1] for image in record["predictions"]["image"]}
        assert not held & {p.name for p in seen.image_paths}
        assert len(seen) + len(held) == 30
        table = read_manifest(path).table
        patients = table["group"][[name.rsplit("/", 1)[-1] in held for name in table["image"]]]
        assert not {*patients} & {*seen.table["group"]}


def test_again_runs_nothing_and_another_question_costs_nothing(finished):
    path, out, found = finished
    before = (out / "bench" / "log.jsonl").read_text()
    again = conduct(path, out, toy_choices(metric="accuracy", worth=0.1))
    assert (out / "bench" / "log.jsonl").read_text() == before
    assert again["metric"] == "accuracy"
    page = (out / "study.html").read_text()
    assert "Difference in accuracy in percentage points on held-out images" in page
    assert page.count("10.0 points)") == 2
    same = conduct(path, out, toy_choices())
    volatile = ("date",)
    assert {k: v for k, v in same.items() if k not in volatile} == {
        k: v for k, v in found.items() if k not in volatile
    }


def test_what_is_missing_is_run_again(finished, tmp_path):
    path, out, found = finished
    shutil.copytree(out, tmp_path / "copy")
    lost = records(tmp_path / "copy")[0]["id"]
    BenchFolder(tmp_path / "copy" / "bench").record_path(lost).unlink()
    again = conduct(path, tmp_path / "copy", toy_choices())
    assert again["results"] == found["results"]


def test_a_failed_training_is_one_line(finished, tmp_path):
    path, out, _ = finished
    shutil.copytree(out, tmp_path / "copy")
    folder = BenchFolder(tmp_path / "copy" / "bench")
    record = folder.records()[0]
    folder.write_record({**record, "status": "failed", "error": "Traceback\nOSError: disk full"})
    with pytest.raises(DisMixError, match=r"1 of 6 trainings failed \(OSError: disk full\)"):
        conduct(path, tmp_path / "copy", toy_choices())
    conduct(path, tmp_path / "copy", toy_choices(), retry_failed=True)


@pytest.mark.parametrize("annotators", [0, 1])
def test_few_annotators_are_said_on_the_page(tmp_path, annotators):
    from dismix.study import findings
    from dismix.study.page_parts import agreement_part

    manifest = toy_images(tmp_path / "knees", annotators=annotators)
    found = {"agreement": findings._agreement(manifest)}
    text = agreement_part(found)
    assert ("only one grade an image" if annotators == 0 else "A single annotator (1)") in text
    assert "cannot be measured" in text or "no one to agree with" in text


def test_the_share_without_disagreement_says_of_how_many(tmp_path):
    from dismix.study import findings
    from dismix.study.page_parts import agreement_part

    manifest = toy_images(tmp_path / "knees", annotators=2)
    table = manifest.table.copy()
    table.loc[:4, "annotator_2"] = None
    found = {"agreement": findings._agreement(manifest.with_table(table))}
    both = int(table["annotator_2"].notna().sum())
    assert both < int(manifest.has_votes.sum())
    assert f"of the {both} images with two or more votes: no disagreement" in agreement_part(found)


def test_single_grades_are_never_given_invented_votes(tmp_path, finished):
    _, out, _ = finished
    manifest = toy_images(tmp_path / "knees", annotators=0)
    # Speed was measured before, so nothing is trained here.
    (tmp_path / "out").mkdir()
    shutil.copy(out / "speed.json", tmp_path / "out")
    prepared = prepare(manifest.path, tmp_path / "out", toy_choices())
    assert not prepared.intake.votes
    assert "--budget" not in prepared.announcement()
    day = dataclasses.replace(prepared.budget, seconds=86400.0)
    text = dataclasses.replace(prepared, budget=day).announcement()
    assert "about 24.0 h on" in text
    assert "--budget MINUTES makes it shorter" in text


def run_cli(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["dismix", "study", *map(str, words)])
    with pytest.raises(SystemExit) as left:
        main()
    return left.value.code


OPTIONS = ["--folds", 2, "--repeats", 1, "--epochs", 1, "--generator-epochs", 1, "--size", 32,
           "--cpu", "-q", *(w for k, v in TINY.items() for w in ("--set", f"{k}={v}"))]  # fmt: skip


def test_the_command_says_the_answer_and_where_the_page_is(finished, monkeypatch, capsys):
    path, out, found = finished
    assert run_cli(monkeypatch, path, "-o", out, *OPTIONS) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[0] == found["headline"]
    assert said.out.splitlines()[-1].endswith("study.html")
    assert "30 images, 2 folds" in said.err
    assert run_cli(monkeypatch, path, "-o", out, "--plan", *OPTIONS) == 0
    assert re.search(r"about \d+ (s|min)", capsys.readouterr().out)
    assert run_cli(monkeypatch, path, "-o", out, "--json", *OPTIONS) == 0
    assert json.loads(capsys.readouterr().out)["answer"] == found["answer"]


def test_mistakes_on_the_command_line_are_one_line(tmp_path, monkeypatch, capsys):
    table = pd.DataFrame({"image": [f"{i}.png" for i in range(20)], "grade": [0, 1] * 10})
    table.to_csv(tmp_path / "m.csv", index=False)
    for words, expected in (
        ((tmp_path / "m.csv",), "0.png"),
        ((tmp_path / "absent.csv",), "absent.csv"),
        ((tmp_path / "m.csv", "--budget", 5, "--epochs", 3), "either --budget or --epochs"),
        ((tmp_path / "m.csv", "--set", "x"), "write NAME=VALUE"),
    ):
        assert run_cli(monkeypatch, *words, "-o", tmp_path / "out", "-q", "--cpu") == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1, said
        assert expected in said


@pytest.mark.slow
def test_a_kill_loses_the_run_in_flight_at_most(finished, tmp_path):
    path, _, found = finished
    command = [sys.executable, "-m", "dismix", "study", str(path), "-o", str(tmp_path / "killed"),
               *map(str, OPTIONS)]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    kept: dict[str, int] = {}
    for least in (1, 3, 5):
        child = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        while child.poll() is None and len(records(tmp_path / "killed")) < least:
            time.sleep(0.02)
        child.send_signal(signal.SIGKILL)
        child.wait()
        for record in records(tmp_path / "killed"):
            place = BenchFolder(tmp_path / "killed" / "bench").record_path(record["id"])
            assert kept.setdefault(record["id"], place.stat().st_mtime_ns) == (
                place.stat().st_mtime_ns
            )
        assert len(kept) >= least
    again = conduct(path, tmp_path / "killed", toy_choices())
    assert again["results"] == found["results"]
    assert again["comparisons"] == found["comparisons"]
