"""Reports of studies over folds: folds are repeats, paired like seeds, never a condition."""

import json
from itertools import permutations

import numpy as np
import pytest
from tests.bench.synthetic import Lab

from dismix.bench.report import write_report
from dismix.bench.report_data import Key, read_records
from dismix.bench.report_study import read_study
from dismix.bench.report_summary import summarise
from dismix.bench.tables import ACCURACY
from dismix.bench.tables_costs import budget_table
from dismix.bench.tables_statistics import duel_table, heat_table, judge, seed_table
from dismix.bench.tables_studies import other_tables

MIXERS = ("none", "mixup", "dismix")


def fold_run(lab, mixer, fold, seed=0, of=3, accuracy=0.5, images=4, source="", **config):
    """Write a run that tested one fold; its images are named alike in all folds."""
    right = round(accuracy * images)
    made = {
        "image": [f"{i}.png" for i in range(images)], "grade": [0] * images,
        "label": [0] * right + [1] * (images - right),
    }  # fmt: skip
    content = {
        "predictions": made, "metrics": {"accuracy": accuracy, "mae": 1 - accuracy},
        "images_seen": 100 + fold,
        "config": {
            "epochs": 3, "seed": seed,
            "data": {"content": f"{fold:064x}", "counts": {"train": 20 + fold},
                     "derivation": {"fold": {"number": fold, "of": of}},
                     **({"source": source} if source else {})}, **config,
        },
    }  # fmt: skip
    return lab.grader("knee", "ce", mixer, seed, fold=f"{fold}/{of}", content=content)


@pytest.fixture
def lab(tmp_path):
    made = Lab(tmp_path)
    for mixer in MIXERS:
        for fold in (1, 2, 3):
            for seed in (0, 1):
                fold_run(made, mixer, fold, seed, accuracy=0.25 * fold + 0.25 * (mixer == "dismix"))
    return made


def test_all_folds_stand_in_the_main_table(lab):
    study = read_study(lab.folder)
    units = [(fold, seed) for fold in (1, 2, 3) for seed in (0, 1)]
    for mixer in MIXERS:
        assert [r.unit for r in study.groups[Key("knee", "ce", mixer)]] == units
    assert len(study.groups) == 3
    assert study.older == []
    assert study.scores("accuracy")["knee", "ce"] == {"none": 0.5, "mixup": 0.5, "dismix": 0.75}
    table = seed_table(study, ACCURACY)
    assert table.columns[3] == "runs"
    assert [c.text for c in table.rows[0][2:6]] == ["no mixing", "6", "+25.00", "6 / 0 / 0"]
    assert "Paired by fold and seed" in table.notes[0]
    # Folds differ by an image; mixers do not.
    assert "the same number" in budget_table(study).notes[0]
    write_report(lab.folder)
    text = (lab.folder / "report.md").read_text(encoding="utf-8")
    assert "Means over 6 runs (folds × seeds) ± standard deviation; best in bold." in text
    assert "fold = " not in text
    assert "| condition | fold | seed |" in text
    assert "over seeds" not in text
    assert "by run fold 1 seed 0: 25.00" in (lab.folder / "report.html").read_text(encoding="utf-8")


def test_images_of_different_folds_are_different_images(lab):
    study = read_study(lab.folder)
    gains = study.image_gains(Key("knee", "ce", "dismix"), Key("knee", "ce", "mixup"), "accuracy")
    assert len(gains) == 12
    assert gains.mean() == pytest.approx(0.25)


def test_missing_folds_are_not_run(lab):
    lost = fold_run(lab, "mixup", 2, 1, accuracy=0.5)
    (lab.folder / "records" / f"{lost}.json").unlink()
    known = {(r.mixer, *r.unit): r.id for r in read_records(lab.folder)}
    runs = [
        {"id": known.get((mixer, fold, seed), lost), "kind": "grader",
         "factors": {"data": "knee", "grader": "ce", "mixer": mixer, "seed": seed,
                     "fold": f"{fold}/3"}}
        for mixer in MIXERS for fold in (1, 2, 3) for seed in (0, 1)
    ]  # fmt: skip
    (lab.folder / "planned.json").write_text(json.dumps({"runs": runs}))
    study = read_study(lab.folder)
    assert list(study.missing()) == [(Key("knee", "ce", "mixup"), [(2, 1)])]
    assert any("1 planned run in 1 setting" in line for line in summarise(study).not_run)


def test_mixers_are_compared_on_the_same_folds(tmp_path):
    lab = Lab(tmp_path)
    for mixer, folds in (("mixup", (1, 2, 3)), ("dismix", (1, 2))):
        for fold in folds:
            fold_run(lab, mixer, fold, accuracy=1.0 if fold == 3 else 0.5)
    study = read_study(tmp_path)
    assert np.mean(study.values(Key("knee", "ce", "mixup"), "accuracy")) > 0.6
    assert judge(study, ACCURACY).strongest.ties == 1
    told = dict(summarise(study).paragraphs)["Who wins"]
    assert told[-1].startswith("In one of these settings some mixers lack runs that others have")


def unfinished(folder):
    """Write five folds, the first of them lost, and a third mixer that was run on that one only."""
    lab = Lab(folder)
    for fold in range(1, 6):
        fold_run(lab, "mixup", fold, of=5, accuracy=0.5, images=10)
        fold_run(lab, "dismix", fold, of=5, accuracy=0.4 if fold == 1 else 0.7, images=10)
    fold_run(lab, "cutmix", 1, of=5, accuracy=0.8, images=10)
    return read_study(folder)


def test_a_mixer_that_is_not_finished_has_no_say_in_what_others_are_compared_on(tmp_path):
    study = unfinished(tmp_path)
    found = judge(study, ACCURACY)
    gains = {c.opponent: (c.wins, c.losses, c.mean_gain) for c in found.comparisons}
    assert gains["mixup"] == (1, 0, pytest.approx(0.14))
    assert gains["cutmix"] == (0, 1, pytest.approx(-0.4))
    # One fold is no mean over all of them: it is not the best baseline either.
    assert [duel.opponent for duel in found.strongest.duels] == ["mixup"]
    assert [c.text for c in heat_table(study, ACCURACY).rows[0][2:]] == ["+14.00", "−40.00"]
    # The main table shows every mixer over what it has.
    assert study.scores("accuracy")["knee", "ce"]["cutmix"] == 0.8
    assert "the best baseline is one of those" in dict(summarise(study).paragraphs)["Who wins"][-1]


def test_a_gain_and_its_interval_are_of_the_same_runs(tmp_path):
    lab = Lab(tmp_path)
    # Three seeds of a fold that has ten images as any other, and two folds without ours.
    units = [(1, 0), (1, 1), (1, 2), (2, 0), (3, 0)]
    for fold, seed in units:
        fold_run(lab, "dismix", fold, seed, of=5, accuracy=0.2 if seed else 0.6, images=10)
    for fold, seed in (*units, (4, 0), (5, 0)):
        fold_run(lab, "mixup", fold, seed, of=5, accuracy=0.9 if fold > 3 else 0.5, images=10)
    study = read_study(tmp_path)
    row = duel_table(study, judge(study, ACCURACY)).rows[0]
    assert row[3].value == pytest.approx((-0.5 / 3 + 0.1 + 0.1) / 3)
    assert row[6].text == "30"
    assert len(row[3].ids) == 10
    gains = study.image_gains(Key("knee", "ce", "dismix"), Key("knee", "ce", "mixup"), "accuracy")
    assert gains.mean() == pytest.approx(row[3].value)


def test_mixers_without_a_common_fold_are_not_compared(tmp_path):
    lab = Lab(tmp_path)
    for mixer, fold in (("mixup", 1), ("cutmix", 1), ("cutmix", 2), ("dismix", 2)):
        fold_run(lab, mixer, fold)
    study = read_study(tmp_path)
    assert [c.opponent for c in judge(study, ACCURACY).comparisons[2:]] == ["cutmix"]
    cells = heat_table(study, ACCURACY).rows[0][2:]
    assert [cell.text for cell in cells] == ["no fold in common", "0.00"]


def test_another_dealing_and_the_datas_own_split_stand_apart(lab):
    for mixer in MIXERS:
        fold_run(lab, mixer, 1, of=5, accuracy=1.0)
    lab.grader("knee", "ce", "cutmix", 0, content={"config": {"epochs": 3}})
    study = read_study(lab.folder)
    assert len(study.groups[Key("knee", "ce", "mixup")]) == 6
    # A mixer without any fold is not compared with those that have them.
    assert "cutmix" not in study.scores("accuracy")["knee", "ce"]
    captions = {table.caption.partition(":")[0] for table in other_tables(study)}
    assert captions == {"folds = 5", "folds = none"}


def test_what_plans_ask_for_now_is_the_usual_dealing(lab):
    runs = [
        {"id": f"new{fold}", "kind": "grader",
         "factors": {"data": "knee", "grader": "ce", "mixer": "mixup", "seed": 0,
                     "fold": f"{fold}/5"}}
        for fold in range(1, 6)
    ]  # fmt: skip
    (lab.folder / "planned.json").write_text(json.dumps({"runs": runs}))
    missing = list(read_study(lab.folder).missing())
    assert missing == [(Key("knee", "ce", "mixup"), [(fold, 0) for fold in range(1, 6)])]


def test_other_settings_of_the_same_folds_are_told_apart(lab):
    for fold in (1, 2, 3):
        fold_run(lab, "mixup", fold, accuracy=1.0, epochs=9)
    study = read_study(lab.folder)
    assert len(study.groups[Key("knee", "ce", "mixup")]) == 6
    assert {t.caption.partition(":")[0] for t in other_tables(study)} == {"epochs = 9"}


def test_folds_of_corrected_data_are_another_kind(tmp_path):
    """A study that is run again on corrected labels, and stopped, is not mixed with the old one."""
    lab = Lab(tmp_path)
    for fold in (1, 2, 3):
        for mixer in ("none", "mixup"):
            fold_run(lab, mixer, fold, accuracy=0.5, source="a" * 16)
    for mixer in ("none", "mixup"):
        fold_run(lab, mixer, 1, accuracy=1.0, source="b" * 16)
    study = read_study(lab.folder)
    usual = [r for key, rs in study.groups.items() if key.condition == study.base for r in rs]
    assert {r.content["config"]["data"]["source"] for r in usual} == {"a" * 16}
    assert len(usual) == 6


@pytest.mark.parametrize("path", ["votes", "validation", "scarcity"])
def test_folds_of_data_that_were_drawn_with_another_seed_are_another_kind(tmp_path, path):
    lab = Lab(tmp_path)
    for seed, runs in ((0, 3), (1, 2)):
        for fold in (1, 2, 3):
            how = {"fold": {"number": fold, "of": 3, "seed": 0}, path: {"seed": seed}}
            data = {"content": f"{10 * seed + fold:064x}", "derivation": how}
            for number in range(runs):
                fold_run(lab, "none", fold, number, data=data)
    study = read_study(lab.folder)
    assert study.older == []
    assert len(study.groups[Key("knee", "ce", "none")]) == 9
    assert {t.caption.partition(":")[0] for t in other_tables(study)} == {
        f"data.derivation.{path}.seed = 1"
    }


def test_folds_with_generators_of_another_seed_are_another_kind(tmp_path):
    lab = Lab(tmp_path)
    for seed, folds in ((0, (1, 2, 3)), (7, (1, 2))):
        for fold in folds:
            generator = {"id": f"{10 * seed + fold:016x}", "seed": seed}
            fold_run(lab, "dismix", fold, accuracy=0.25 if seed else 0.75, generator=generator)
    study = read_study(lab.folder)
    assert study.older == []
    assert study.values(Key("knee", "ce", "dismix"), "accuracy") == [0.75] * 3
    assert {t.caption.partition(":")[0] for t in other_tables(study)} == {"generator.seed = 7"}


@pytest.mark.parametrize("order", [*permutations(("a" * 16, "", "b" * 16))])
def test_sources_are_told_apart_also_beside_records_that_do_not_tell(tmp_path, order):
    lab = Lab(tmp_path)
    for seed, source in enumerate(order):
        name = fold_run(lab, "none", 1, seed, source=source)
        # Records are read by their ids.
        path = tmp_path / "records" / f"{name}.json"
        content = json.loads(path.read_text()) | {"id": str(seed)}
        path.with_name(f"{seed}.json").write_text(json.dumps(content))
        path.unlink()
    assert len(read_study(lab.folder).groups) == 3


def named(lab, mixer, fold, images, right):
    """Write a run on images of these names, the first ones of which it grades rightly."""
    label = [0] * right + [1] * (len(images) - right)
    made = {"image": images, "grade": [0] * len(images), "label": label}
    metrics = {"accuracy": right / len(images), "mae": 1 - right / len(images)}
    config = {"data": {"content": f"{fold:064x}", "derivation": {"fold": {"number": fold}}}}
    content = {"predictions": made, "metrics": metrics, "config": config}
    lab.grader("knee", "ce", mixer, 0, fold=f"{fold}/2", content=content)


def test_older_records_of_a_fold_name_the_same_images(tmp_path):
    lab = Lab(tmp_path)
    named(lab, "mixup", 1, ["1.png", "2.png"], 1)
    named(lab, "dismix", 1, ["a/1.png", "b/2.png"], 2)
    study = read_study(tmp_path)
    gains = study.image_gains(Key("knee", "ce", "dismix"), Key("knee", "ce", "mixup"), "accuracy")
    assert gains.tolist() == [0, 1]


def test_names_to_leave_out_that_no_test_image_has_are_told(tmp_path):
    lab = Lab(tmp_path)
    for mixer in ("mixup", "dismix"):
        named(lab, mixer, 1, ["a/1.png", "b/2.png"], 1)
        named(lab, mixer, 2, ["b/1.png", "a/3.png"], 1)

    def told(*images) -> list[str]:
        listed = {"images": {"knee": images, "elsewhere": ["x.png"]}}
        (tmp_path / "leave_out.json").write_text(json.dumps(listed))
        write_report(tmp_path)
        text = (tmp_path / "report.md").read_text(encoding="utf-8")
        assert "3 test images kept" in text
        return [line for line in text.splitlines() if line.startswith("- knee:")]

    assert told("a/1.png") == []
    assert told("a/1.png", "2.png", "c.png") == [
        "- knee: 2 of 3 listed names are those of no test image: 2.png, c.png."
    ]
    # Older records of folds whose names need fewer parts.
    named(lab, "none", 2, ["1.png", "3.png"], 1)
    (line,) = told("a/1.png")
    assert "some runs name images by more parts" in line
