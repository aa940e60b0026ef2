import dataclasses
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
from tests.study.toy import TINY, toy_choices, toy_images

from dismix.bench.folder import BenchFolder
from dismix.bench.report import write_report
from dismix.bench.report_study import read_study
from dismix.cli import main
from dismix.data.manifest import read_manifest
from dismix.errors import DisMixError
from dismix.study.budget import Speed
from dismix.study.conduct import announce, conduct, prepare
from dismix.study.dealing import Dealt
from dismix.study.findings import repeating_command

FOLD = Dealt((4, 4, 4), (1, 1, 1), (5, 5, 5))


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
    assert (
        "Trainings were short: graders had 1 epochs (usual are 60) and generators had 1 epochs"
        in page
    )
    assert "`" not in page
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


def test_the_page_says_how_many_images_were_really_dealt(finished):
    path, out, found = finished
    made = records(out)
    for part in ("train", "val", "test"):
        real = {r["factors"]["fold"]: r["config"]["data"]["counts"][part] for r in made}
        assert [sum(fold[part]) for fold in found["folds"]] == [real["1/2"], real["2/2"]]
    assert sum(sum(fold["test"]) for fold in found["folds"]) == 30
    learned = sorted(sum(fold["train"]) for fold in found["folds"])
    assert f"{' to '.join(map(str, dict.fromkeys(learned)))} were learned from" in found["facts"][1]
    said = announce(path, out, toy_choices())
    seen = sorted({r["images_seen"] for r in made})
    assert f"(1 epochs, {' to '.join(map(str, seen))} images each," in said


def test_mixes_are_placed_on_the_scale_that_the_ranks_have():
    from types import SimpleNamespace

    from dismix.study.page_parts import _card

    pictures = dict.fromkeys(("anchor", "partner", "mix", "nearest"))
    mix = SimpleNamespace(
        policy="ordinal_mix", rank=1.4, anchor_rank=1, similarity=0.5, nearest_is_source=False,
        pictures=pictures,
    )  # fmt: skip
    assert "from 2 to rank 2.4;" in _card(mix, ["1", "2", "3"], 0.98)
    assert "from mild to 40 % of the way from mild to severe;" in _card(
        mix, ["none", "mild", "severe"], 0.98
    )


def test_what_is_done_is_not_announced_again(finished, tmp_path):
    path, out, _ = finished
    shutil.copytree(out, tmp_path / "copy")
    said = []
    conduct(path, tmp_path / "copy", toy_choices(), tell=said.append)
    assert said[0].endswith(": all done before, nothing is trained again")
    bench = BenchFolder(tmp_path / "copy" / "bench")
    bench.record_path(bench.records()[0]["id"]).unlink()
    left = announce(path, tmp_path / "copy", toy_choices())
    assert re.search(r": about .* in all, 5 of 6 trainings are done$", left)


def test_a_study_of_changed_data_says_that_it_begins_anew(finished, tmp_path):
    path, out, _ = finished
    shutil.copytree(out, tmp_path / "copy")
    shutil.copytree(path.parent, tmp_path / "knees")
    table = pd.read_csv(tmp_path / "knees" / "manifest.csv")
    table["annotator_1"] = 2 - table["annotator_1"]
    table.to_csv(tmp_path / "knees" / "manifest.csv", index=False)
    said = announce(tmp_path / "knees", tmp_path / "copy", toy_choices())
    assert re.search(
        r"about \S+ s on .*; 6 earlier trainings in this folder are of other images or settings$",
        said,
    )
    assert "earlier trainings" not in announce(path, tmp_path / "copy", toy_choices())


def test_a_finished_study_is_not_measured_again(finished, tmp_path, monkeypatch):
    path, out, _ = finished
    shutil.copytree(out, tmp_path / "copy")

    def measured(*_, **__):
        raise AssertionError("measured")

    monkeypatch.setattr("dismix.study.conduct.measured_speed", measured)
    for name in ("speed.json", "lengths.json"):
        # Other machines measure anew, and the page's own command asks for the lengths.
        (tmp_path / "copy" / name).unlink(missing_ok=True)
        said = []
        conduct(path, tmp_path / "copy", toy_choices(), tell=said.append)
        assert said[0].endswith(": all done before, nothing is trained again")
    bench = BenchFolder(tmp_path / "copy" / "bench")
    bench.record_path(bench.records()[0]["id"]).unlink()
    with pytest.raises(AssertionError, match="measured"):
        conduct(path, tmp_path / "copy", toy_choices())


def test_the_plan_has_a_line_of_its_own_in_a_terminal(finished, monkeypatch, capsys):
    path, out, _ = finished
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "500")

    def begun(*_, tell, progress, **__):
        progress("measuring this machine", 3, 3)
        tell("30 images, 2 folds")
        return {"headline": "", "reasons": []}

    monkeypatch.setattr("dismix.study.conduct.conduct", begun)
    loud = [word for word in OPTIONS if word != "-q"]
    assert run_cli(monkeypatch, path, "-o", out, *loud) == 0
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert re.search(r"^30 images, 2 folds$", shown.replace("\r", "\n"), flags=re.M), shown


def test_the_benchmarks_report_of_a_study_averages_its_folds(finished, tmp_path):
    _, out, _ = finished
    study = read_study(out / "bench")
    assert {key.mixer: len(runs) for key, runs in study.groups.items()} == {
        "none": 2, "mixup": 2, "dismix": 2,
    }  # fmt: skip
    assert {key.condition for key in study.groups} == {study.base}
    assert study.base.other == ()
    assert list(study.missing()) == []
    text = write_report(out / "bench", tmp_path).with_suffix(".md").read_text(encoding="utf-8")
    assert "Means over 2 runs (folds × seeds) ± standard deviation; best in bold." in text
    assert "Every grader saw the same number of images with every mixer." in text


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
    found = {"agreement": findings._agreement(manifest), "data": {"soft": False}}
    text = agreement_part(found)
    assert ("only one grade an image" if annotators == 0 else "A single annotator (1)") in text
    assert "cannot be measured" in text or "no one to agree with" in text


def test_soft_labels_are_called_so_on_the_page():
    from dismix.study.page_parts import agreement_part

    text = agreement_part({"agreement": None, "data": {"soft": True}})
    assert "The data hold soft labels" in text
    assert "one grade an image" not in text


def test_soft_labels_are_no_votes_in_the_facts(finished, tmp_path):
    from dismix.study import findings

    path, out, _ = finished
    table = read_manifest(path).table
    graded = table["grade"].to_numpy()
    laws = {f"prob_{c}": 0.8 * (graded == c) + 0.2 / 3 for c in range(3)}
    table = table[["image", "group", "split"]].assign(**laws)
    table["image"] = [f"{path.parent}/{name}" for name in table["image"]]
    table.to_csv(tmp_path / "soft.csv", index=False)
    (tmp_path / "out").mkdir()
    shutil.copy(out / "speed.json", tmp_path / "out")
    prepared = prepare(tmp_path / "soft.csv", tmp_path / "out", toy_choices())
    facts = " ".join(findings._facts(prepared, prepared.intake.manifest, [FOLD, FOLD]))
    assert "were learned from, by soft labels." in facts
    assert "judged by the largest share of the soft label." in facts


def test_facts_say_whose_labels_were_learned(finished, tmp_path):
    from dismix.study import findings

    path, _, _ = finished
    prepared = prepare(path, finished[1], toy_choices())

    def fact(manifest):
        return findings._facts(prepared, manifest, [FOLD, FOLD])[1]

    whole = prepared.intake.manifest
    # The phantoms' test images have grades, and nobody's votes.
    assert not whole.has_votes.all()
    assert "were learned from, by votes and single grades. Held-out" in fact(whole)
    assert "were learned from, by votes. Held-out" in fact(whole.rows(whole.has_votes))
    bare = whole.table.drop(columns=[f"annotator_{name}" for name in whole.annotators])
    assert "were learned from, by single grades. Held-out" in fact(whole.with_table(bare))


def test_only_what_was_short_is_called_short(finished):
    from dismix.study import findings

    path, out, _ = finished
    prepared = prepare(path, out, toy_choices())
    budget = dataclasses.replace(prepared.budget, epochs=60)
    said = findings._notes(dataclasses.replace(prepared, budget=budget), [FOLD])[-1]
    assert said.startswith("Trainings were short: generators had 1 epochs (usual are ")


def test_no_groups_are_claimed_where_the_column_is_empty(finished):
    from dismix.study import findings

    path, out, _ = finished
    prepared = prepare(path, out, toy_choices())
    manifest = prepared.intake.manifest
    bare = manifest.with_table(manifest.table.assign(group=None))
    facts = " ".join(findings._facts(prepared, bare, [FOLD, FOLD]))
    assert "The data name no groups (patients)" in facts
    assert "folds, then images within them" in facts


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
    both = dataclasses.replace(prepared, budget=day).announcement(jobs=2)
    assert "one training at a time (less with --jobs 2 where cores are free)" in both
    assert "one training at a time" not in text
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
    assert "all done before, nothing is trained again" in capsys.readouterr().out
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


def test_the_command_on_the_page_repeats_the_study(finished, tmp_path, monkeypatch, capsys):
    _, out, found = finished
    shutil.copytree(out.parent, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    before = (tmp_path / "copy" / "out" / "bench" / "log.jsonl").read_text()
    words = shlex.split(found["command"])
    assert words[:5] == ["dismix", "study", "knees/manifest.csv", "-o", "out"]
    assert run_cli(monkeypatch, *words[2:], "-q") == 0
    assert capsys.readouterr().out.splitlines()[0] == found["headline"]
    # The very same runs: nothing was trained again.
    assert (tmp_path / "copy" / "out" / "bench" / "log.jsonl").read_text() == before


def test_the_command_says_all_that_was_asked_for(finished, tmp_path, monkeypatch):
    path, out, _ = finished
    changes = {**TINY, "generator.guide_steps": "7", "mixers.dismix.policies_note": "a b"}
    choices = toy_choices(
        changes=TINY, on_error="skip", without_test=True, metric="accuracy", worth=0.0123456789,
    )  # fmt: skip
    (tmp_path / "my out").mkdir()
    shutil.copy(out / "speed.json", tmp_path / "my out")
    prepared = prepare(path, tmp_path / "my out", choices)
    prepared = dataclasses.replace(
        prepared, choices=dataclasses.replace(choices, changes=changes), source="my knees.csv"
    )
    command = repeating_command(prepared, tmp_path / "my out")
    kept = []

    def keep(manifest, output, choices, **options):
        kept.append((str(manifest), str(output), choices))
        return {"headline": "", "reasons": []}

    monkeypatch.setattr("dismix.study.conduct.conduct", keep)
    assert run_cli(monkeypatch, *shlex.split(command)[2:], "-q") == 0
    settled = {"backbone": "tiny", "arch": "tiny"}
    asked = dataclasses.replace(choices, changes=changes, **settled)
    assert kept == [("my knees.csv", "my out", asked)]


def test_a_trial_has_two_folds_however_many_are_asked_for(tmp_path, monkeypatch):
    from dismix.study import speed

    manifest, folds = toy_images(tmp_path / "knees", train=90, test=0), set()

    def timed(study, *_):
        folds.update(run.factors["fold"] for run in study.runs)
        return Speed(1e-3, 1e-3, 1e-3, 0.0, 0.0, "none")

    monkeypatch.setattr(speed, "_timed", timed)
    prepare(manifest.path, tmp_path / "out", toy_choices(folds=20))
    assert folds == {"1/2", "2/2"}


def test_a_second_command_waits_for_the_first_ones_trial(finished, tmp_path, monkeypatch):
    from dismix.study import conduct as module

    path, _, _ = finished
    free = []

    def measured(*_, **__):
        with BenchFolder(tmp_path / "out" / "bench").try_lock("prepare") as mine:
            free.append(mine)
        return Speed(1e-3, 1e-3, 1e-3, 0.0, 0.0, "none")

    monkeypatch.setattr(module, "measured_speed", measured)
    prepare(path, tmp_path / "out", toy_choices())
    assert free == [False]


def test_another_plan_in_between_leaves_a_stopped_study_its_lengths(
    finished, tmp_path, monkeypatch
):
    from dismix.study import conduct as module

    path, _, _ = finished
    rates = iter((1e-3, 2e-3, 4e-3, 8e-3))

    def measured(*_, **__):
        rate = next(rates)
        return Speed(rate, rate, rate, 0.0, 0.0, "none")

    monkeypatch.setattr(module, "measured_speed", measured)
    tight = toy_choices(budget=2.0, repeats=None, epochs=None, generator_epochs=None)
    first = prepare(path, tmp_path / "out", tight).budget
    # What an earlier version left behind: the last request alone.
    kept = json.loads((tmp_path / "out" / "lengths.json").read_text())
    (tmp_path / "out" / "lengths.json").write_text(json.dumps(kept[0]))
    other = prepare(path, tmp_path / "out", dataclasses.replace(tight, size=64)).budget
    assert other != first
    assert prepare(path, tmp_path / "out", tight).budget == first


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


def test_nobodys_manifest_is_overwritten(tmp_path):
    path, place = tmp_path / "images", tmp_path / "project" / "data"
    toy_images(path)
    shutil.copytree(path, place)
    before = (place / "manifest.csv").read_bytes()
    (tmp_path / "project" / "trial").mkdir()
    with pytest.raises(DisMixError, match="is the manifest that is to be studied"):
        prepare(place, tmp_path / "project", toy_choices())
    with pytest.raises(DisMixError, match="is there already, and no study is; choose another -o"):
        prepare(path, tmp_path / "project", toy_choices())
    assert (place / "manifest.csv").read_bytes() == before
    assert (tmp_path / "project" / "trial").is_dir()
