"""Tables: what stands in them, what is marked, and that nothing missing is hidden."""

import json
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from tests.bench.synthetic import Lab

from dismix.bench.report_charts import boundary_bars, overhead_settings
from dismix.bench.report_conflicts import flatten
from dismix.bench.report_data import MAIN, Key, read_records
from dismix.bench.report_study import Study, grader_name, read_study
from dismix.bench.report_summary import not_run, summarise
from dismix.bench.tables import ACCURACY, FAILED, MAE, NOT_RUN
from dismix.bench.tables_costs import boundary_table, budget_table, overhead_table, overheads
from dismix.bench.tables_generator import generator_table
from dismix.bench.tables_statistics import (
    duel_table,
    heat_table,
    judge,
    judge_everywhere,
    seed_table,
)
from dismix.bench.tables_studies import STUDIES, condition_words, other_tables
from dismix.errors import DisMixError

SPECS = {spec.key: spec for spec in STUDIES}


def cell(table, column, *labels):
    """Return the cell of a column in the row with these labels."""
    for row in table.rows:
        if tuple(c.text for c in row[: len(labels)]) == labels:
            return row[table.columns.index(column)]
    raise AssertionError(f"no row {labels} in {table.caption}")


def tables(study, key):
    return {table.key: table for table in SPECS[key].tables(study)}


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path)


def test_main_table_has_means_the_papers_numbers_and_its_records(lab):
    ids = [lab.grader("idrid", "cloc", "mixup", seed) for seed in range(3)]
    lab.grader("idrid", "cloc", "dismix", 0)
    study = read_study(lab.folder)
    found = tables(study, "main")
    accuracies = [
        json.loads((lab.folder / "records" / f"{i}.json").read_text())["metrics"]["accuracy"]
        for i in ids
    ]
    ours = cell(found["main-accuracy"], "Mixup", "IDRID", "CLOC")
    mean, sd = 100 * np.mean(accuracies), 100 * np.std(accuracies, ddof=1)
    assert ours.text == f"{mean:.2f} ± {sd:.2f}"
    assert ours.value == pytest.approx(np.mean(accuracies))
    assert set(ours.ids) == set(ids)
    assert ours.paper == "64.08 ± 0.97"
    assert cell(found["main-mae"], "DisMix", "IDRID", "CLOC").paper == "0.57 ± 0.02"


def test_what_was_not_run_is_said_and_other_numbers_of_seeds_are_marked(lab):
    for seed in range(3):
        lab.grader("idrid", "cloc", "dismix", seed)
        lab.grader("idrid", "poe", "dismix", seed)
    lab.grader("idrid", "cloc", "mixup", 0)
    lab.failed("idrid", "cloc", "cutmix", 0, "Traceback\nOSError: full")
    found = tables(read_study(lab.folder), "main")
    main, rest = found["main-accuracy"], found["main-accuracy-not-run"]
    assert cell(main, "Mixup", "IDRID", "CLOC").mark == "n=1"
    assert "±" not in cell(main, "Mixup", "IDRID", "CLOC").text
    assert cell(main, "DisMix", "IDRID", "CLOC").mark == ""
    failed = cell(main, "CutMix", "IDRID", "CLOC")
    assert (failed.text, failed.note, failed.missing) == (FAILED, "OSError: full", True)
    assert cell(main, "PuzzleMix", "IDRID", "CLOC").text == NOT_RUN
    # Whole settings that were not run stand apart, still with every grader and the paper's number.
    assert rest.folded
    assert len(main.rows) + len(rest.rows) == 24
    assert cell(rest, "DisMix", "GLEASON", "GOL").text == NOT_RUN
    assert cell(rest, "DisMix", "GLEASON", "GOL").paper == "94.77 ± 0.23"


def test_what_neither_we_nor_the_paper_ran_is_left_out(lab):
    for mixer in ("mixup", "dismix"):
        lab.grader("koa", "cloc", mixer, 0, scarcity=0.1)
    study = read_study(lab.folder)
    for metric in ("accuracy", "mae"):
        rest = tables(study, "main")[f"main-{metric}-not-run"]
        # Its scarce study has four data sets and two graders.
        assert len(rest.rows) == 7
        assert all(any(c.paper for c in row) for row in rest.rows)
        assert rest.caption.split(": ", 1)[1].startswith("7 settings not run")


def test_best_is_bold_also_twice_and_by_the_metrics_direction(lab):
    for mixer in ("mixup", "cutmix", "dismix"):
        lab.grader("d", "cloc", mixer, 0)
    study = read_study(lab.folder)
    for metric in (ACCURACY, MAE):
        row = tables(study, "main")[f"main-{metric.key}"].rows[0][2:]
        best = (max if metric.higher else min)(c.value for c in row)
        assert [c.best for c in row] == [c.value == best for c in row]
        assert any(c.best for c in row)


def test_own_data_show_no_rows_of_the_paper(lab):
    lab.grader("my knees", "ce", "mixup", 0)
    found = tables(read_study(lab.folder), "main")
    assert [*found] == ["main-accuracy", "main-mae"]
    assert found["main-mae"].columns == ("data set", "grader", "Mixup")
    assert [c.text for c in found["main-mae"].rows[0][:2]] == ["my knees", "CE"]


def test_every_study_finds_its_runs_and_no_others(lab):
    lab.grader("koa", "cloc", "dismix", 0)
    lab.grader("koa", "cloc", "dismix", 0, scarcity=0.1)
    lab.grader("koa", "cloc", "dismix", 0, annotators="90/60", p=0.3)
    lab.grader("koa", "cloc", "dismix", 0, labels="clean")
    lab.grader("koa", "cloc", "dismix", 0, policies="order_swap")
    lab.grader("koa", "cloc", "dismix", 0, policies="preserving")
    lab.grader("koa", "cloc", "dismix", 0, policies="order_swap", scarcity=0.1)
    lab.grader("koa", "cloc", "dismix", 0, policies="order_swap", variability=70)
    lab.grader("koa", "cloc", "dismix", 0, ablation="no_reversal")
    study = read_study(lab.folder)
    assert all(spec.was_run(study) for spec in STUDIES)
    counts = {spec.key: sum(map(spec.select, study.groups)) for spec in STUDIES}
    assert counts == dict.fromkeys(SPECS, 1) | {"extreme": 2}
    words = ("KOA", "CLOC")
    swap = cell(tables(study, "policies")["policies-accuracy"], "Order Swap", *words)
    assert (swap.paper, swap.missing) == ("67.93 ± 0.36", False)
    varied = tables(study, "variability")["variability-dismix-mae"]
    assert cell(varied, "p = 0.3", *words, "70 %").paper == "0.47"
    assert not cell(varied, "p = 0.3", *words, "70 %").missing
    # The usual setting is part of the grid too.
    assert not cell(varied, "p = 0.5", *words, "30 %").missing
    hard = tables(study, "extreme")["extreme-variability-accuracy"]
    assert cell(hard, "Order Swap", *words).paper == "65.88 ± 0.07"
    assert cell(hard, "all four", *words).text == NOT_RUN
    group = tables(study, "groups")["groups-accuracy"]
    assert cell(group, "Preserving", *words).paper == "68.13 ± 0.41"
    assert cell(tables(study, "clean")["clean-mae"], "DisMix", *words).paper == "0.38 ± 0.01"
    odd = other_tables(study)
    assert odd[0].caption.startswith("generator: no_reversal")
    assert not cell(odd[0], "DisMix, as usual", *words).missing


def test_runs_of_other_settings_are_never_averaged_together(lab):
    usual = {"content": {"config": {"votes": {"mode": "per_vote"}, "epochs": 3}}}
    other = {"content": {"config": {"votes": {"mode": "per_image"}, "epochs": 3}}}
    for seed in range(3):
        lab.grader("koa", "cloc", "dismix", seed, **usual)
        lab.grader("koa", "poe", "dismix", seed, **usual)
        if seed < 2:
            lab.grader("koa", "cloc", "dismix", seed, **other)
    study = read_study(lab.folder)
    assert len(study.groups[Key("koa", "cloc", "dismix")]) == 3
    odd = replace(MAIN, other=(("votes.mode", "per_image"),))
    assert len(study.groups[Key("koa", "cloc", "dismix", odd)]) == 2
    assert study.older == []
    assert condition_words(odd) == "votes.mode = per_image"
    assert "votes.mode = per_image" in other_tables(study)[0].caption
    assert flatten({"a": {"b": [1]}}) == {"a.b": "[1]"}


def test_ids_do_not_decide_what_is_told_apart(lab):
    """In whatever order records are read, none of other settings is taken for another."""
    ids = [
        lab.grader("koa", "cloc", "mixup", seed, content={"config": {
            "epochs": epochs, "data": {"content": content * 64}}})
        for seed, (epochs, content) in enumerate([(1, "a"), (2, "b"), (1, "b")])
    ]  # fmt: skip
    for order in permutations(range(3)):
        folder = lab.folder / "".join(map(str, order))
        (folder / "records").mkdir(parents=True)
        for place, number in enumerate(order):
            content = json.loads((lab.folder / "records" / f"{ids[number]}.json").read_text())
            content["id"] = f"{place}"
            (folder / "records" / f"{place}.json").write_text(json.dumps(content))
        assert len(read_study(folder).groups) == 3


def test_what_the_plans_ask_for_now_is_usual(lab):
    old = [
        lab.grader("koa", "cloc", "dismix", s, content={"config": {"epochs": 3}}) for s in range(3)
    ]
    new = lab.grader("koa", "cloc", "dismix", 7, content={"config": {"epochs": 9}})
    key = Key("koa", "cloc", "dismix")
    # Seeds differ, and yet they are not averaged with each other.
    assert {r.id for r in read_study(lab.folder).groups[key]} == set(old)
    run = {"id": new, "factors": {"data": "koa", "grader": "cloc", "mixer": "dismix", "seed": 7}}
    (lab.folder / "planned.json").write_text(json.dumps({"runs": [run]}))
    study = read_study(lab.folder)
    assert [r.id for r in study.groups[key]] == [new]
    odd = replace(MAIN, other=(("epochs", "3"),))
    assert {r.id for r in study.groups[replace(key, condition=odd)]} == set(old)


def test_a_run_done_again_counts_once(lab):
    lab.grader("koa", "cloc", "mixup", 0)
    path = next((lab.folder / "records").glob("*.json"))
    content = json.loads(path.read_text())
    content["id"], content["provenance"]["date"] = "f" * 16, "2026-02-01 00:00 UTC"
    (path.parent / "ffffffffffffffff.json").write_text(json.dumps(content))
    study = read_study(lab.folder)
    assert [r.id for r in study.groups[Key("koa", "cloc", "mixup")]] == ["f" * 16]
    assert len(study.older) == 1


def test_planned_runs_that_are_missing_are_counted(lab):
    done = lab.grader("koa", "cloc", "mixup", 0)
    # The second was run with other settings, under another id.
    lab.grader("koa", "cloc", "mixup", 1)
    runs = [
        {"id": f"{seed}" if seed else done, "kind": "grader",
         "blocked": "needs a diffusion model" if seed else None,
         "factors": {"data": "KOA", "grader": "cloc", "mixer": "mixup", "seed": seed}}
        for seed in range(3)
    ]  # fmt: skip
    (lab.folder / "planned.json").write_text(json.dumps({"runs": runs}))
    study = read_study(lab.folder)
    assert list(study.missing()) == [(Key("koa", "cloc", "mixup"), [(0, 1), (0, 2)])]
    assert study.blocked == {"needs a diffusion model": 2}
    (lab.folder / "planned.json").write_text("[]")
    with pytest.raises(DisMixError, match="planned runs"):
        read_study(lab.folder)


def test_bad_records_are_named(lab):
    with pytest.raises(DisMixError, match="no records"):
        read_records(lab.folder)
    path = lab.folder / "records" / "x.json"
    for text in ("{", "[]", '{"format": 1}', '{"format": 9, "factors": {}}'):
        path.write_text(text)
        with pytest.raises(DisMixError, match=r"x\.json"):
            read_records(lab.folder)


def test_records_whose_parts_do_not_fit_are_named(lab):
    path = lab.folder / "records" / f"{lab.grader('koa', 'cloc', 'none', 0)}.json"
    whole = json.loads(path.read_text())
    short = {**whole["predictions"], "label": [0]}
    for changes in ({"id": "0" * 16}, {"metrics": [1]}, {"predictions": short}):
        path.write_text(json.dumps({**whole, **changes}))
        with pytest.raises(DisMixError, match=rf"{path.name}: not a record of a run"):
            read_records(lab.folder)


def _run(accuracy_of, folder, data="d", seeds=1):
    """Write runs whose decisions are known: accuracy_of[mixer] right of ten."""
    lab = Lab(folder)
    for mixer, right in accuracy_of.items():
        for seed in range(seeds):
            label = [0] * right + [1] * (10 - right)
            made = {"image": [str(i) for i in range(10)], "grade": [0] * 10, "label": label}
            metrics = {"accuracy": right / 10, "mae": 1 - right / 10}
            lab.grader(data, "cloc", mixer, seed, content={"predictions": made, "metrics": metrics})
    return read_study(folder)


def test_duels_have_intervals_over_the_images_both_graded(tmp_path):
    study = _run({"dismix": 8, "mixup": 5, "cutmix": 6, "none": 9}, tmp_path)
    table = duel_table(study, judge(study, ACCURACY), draws=500)
    row = table.rows[0]
    assert [c.text for c in row[2:5]] == ["CutMix", "+20.00", "won"]
    gains = study.image_gains(Key("d", "cloc", "dismix"), Key("d", "cloc", "cutmix"), "accuracy")
    assert gains.tolist() == [0] * 6 + [1, 1] + [0] * 2
    assert row[6].text == "10"
    low = row[5].value
    assert 0 <= low <= 0.2
    # No mixing is better here, and is not a baseline.
    assert judge(study, ACCURACY).against_none.losses == 1
    heat = heat_table(study, MAE)
    assert cell(heat, "Mixup", "d", "CLOC").text == "+0.300"
    assert cell(heat, "no mixing", "d", "CLOC").tone < 0 < cell(heat, "Mixup", "d", "CLOC").tone


def test_conditions_are_settings_too(lab):
    for mixer in ("mixup", "dismix"):
        lab.grader("koa", "cloc", mixer, 0)
        lab.grader("koa", "cloc", mixer, 0, labels="clean")
        lab.grader("koa", "cloc", mixer, 0, scarcity=0.1)
    # Without a rival it is no setting.
    lab.grader("koa", "cloc", "dismix", 0, policies="order_swap")
    study = read_study(lab.folder)
    assert len(judge(study, ACCURACY).strongest.duels) == 1
    assert len(judge_everywhere(study, ACCURACY).strongest.duels) == 3
    assert judge_everywhere(_run({"dismix": 3, "mixup": 2}, lab.folder / "one"), MAE) is None


def test_seeds_are_paired_by_number(tmp_path):
    study = _run({"dismix": 8, "mixup": 5}, tmp_path, seeds=6)
    table = seed_table(study, ACCURACY)
    assert [c.text for c in table.rows[0][2:6]] == ["Mixup", "6", "+30.00", "6 / 0 / 0"]
    assert table.rows[0][6].value == 2**-6
    assert seed_table(_run({"dismix": 8, "mixup": 5}, tmp_path / "few", seeds=3), MAE) is None
    # The gain leads to the runs that it was computed from, and to no others.
    alone = Lab(tmp_path).grader("d", "cloc", "dismix", 6)
    study = read_study(tmp_path)
    assert [c.text for c in seed_table(study, ACCURACY).rows[0][2:4]] == ["Mixup", "6"]
    paired = {record.id for record in study.records} - {alone}
    assert {*seed_table(study, ACCURACY).rows[0][4].ids} == paired


def test_overhead_is_measured_or_taken_from_wall_times(tmp_path):
    lab = Lab(tmp_path)
    for mixer in ("none", "dismix", "mixup"):
        lab.grader("idrid", "gol", mixer, 0, content={"wall_s": {"none": 100.0}.get(mixer, 130.0)})
    study = read_study(tmp_path)
    found = {o.mixer: o for o in overheads(study)}
    assert found["dismix"].percent == pytest.approx(30)
    assert (found["dismix"].generator_s, found["mixup"].generator_s) == (402.0, None)
    assert "nothing was measured apart" in overhead_table(study).notes[0]
    # Of runs side by side nobody knows what the mixer's part was.
    lab.grader("idrid", "gol", "cutmix", 0, content={"wall_s": 300.0, "at_once": 3})
    lab.grader("idrid", "gol", "dismix", 1, content={"wall_s": 900.0, "at_once": 3})
    study = read_study(tmp_path)
    found = {o.mixer: o for o in overheads(study)}
    assert [*found] == ["none", "mixup", "dismix"]
    assert found["dismix"].percent == pytest.approx(30)
    assert "runs that ran side by side are left out" in overhead_table(study).notes[0]
    assert "Some ran side by side" in budget_table(study).notes[0]
    lab.overhead("idrid", "gol", "mixup")
    study = read_study(tmp_path)
    found = {o.mixer: o for o in overheads(study)}
    assert found["mixup"].percent == pytest.approx(2)
    assert found["none"].percent == 0
    assert found["mixup"].accuracy is not None
    assert [*found] == ["none", "mixup"]


def test_budgets_tell_when_images_seen_differ(tmp_path):
    lab = Lab(tmp_path)
    lab.grader("koa", "cloc", "mixup", 0)
    lab.grader("koa", "cloc", "dismix", 0)
    assert "the same number" in budget_table(read_study(tmp_path)).notes[0]
    lab.grader("koa", "cloc", "cutmix", 0, content={"images_seen": 7})
    assert "different numbers" in budget_table(read_study(tmp_path)).notes[0]


def test_boundary_errors_are_means_over_seeds(tmp_path):
    lab = Lab(tmp_path)
    for seed, share in enumerate((0.2, 0.4)):
        metrics = {"accuracy": 0.5, "mae": 0.5, "boundary_errors": {"0|1": share, "1|2": None}}
        lab.grader("koa", "cloc", "mixup", seed, content={"metrics": metrics})
    table = boundary_table(read_study(tmp_path))
    assert len(table.rows) == 1
    assert cell(table, "Mixup", "KOA", "CLOC", "0 ↔ 1").text == "30.0"
    assert boundary_table(Study([])) is None


def test_boundary_errors_name_grades_as_the_records_do(tmp_path):
    lab = Lab(tmp_path)
    for data, ranks in (("mine", ["1", "2", "3"]), ("old", None)):
        config = {} if ranks is None else {"config": {"data": {"ranks": ranks}}}
        metrics = {"accuracy": 0.5, "mae": 0.5, "boundary_errors": {"0|1": 0.2, "1|2": 0.4}}
        lab.grader(data, "ce", "mixup", 0, content={"metrics": metrics, **config})
    study = read_study(tmp_path)
    shown = [(row[0].text, row[2].text) for row in boundary_table(study).rows]
    assert shown == [("mine", "1 ↔ 2"), ("mine", "2 ↔ 3"), ("old", "0 ↔ 1"), ("old", "1 ↔ 2")]
    bars = boundary_bars(study)
    assert bars.count("grades 2 ↔ 3<") == 1
    assert bars.count("grades 0 ↔ 1<") == 1


def test_boundary_errors_of_all_graders_are_shown(tmp_path):
    lab = Lab(tmp_path)
    for grader, share in (("cloc", 0.2), ("ce", 0.3), ("gol", 0.4)):
        metrics = {"accuracy": 0.5, "mae": 0.5, "boundary_errors": {"0|1": share}}
        lab.grader("koa", grader, "mixup", 0, content={"metrics": metrics})
    study = read_study(tmp_path)
    table = boundary_table(study)
    shown = {row[1].text: row[3].text for row in table.rows}
    assert shown == {
        grader_name(g): t for g, t in (("cloc", "20.0"), ("ce", "30.0"), ("gol", "40.0"))
    }
    bars = boundary_bars(study)
    assert all(f"KOA, {grader_name(g)}</h3>" in bars for g in ("cloc", "ce", "gol"))


def test_generators_stand_beside_the_papers_probes(tmp_path):
    lab = Lab(tmp_path)
    lab.grader("koa", "cloc", "mixup", 0)
    lab.generator("koa", "full", 0.64, 0.3)
    lab.generator("koa", "one_codebook", 0.5, 0.5)
    lab.generator("koa", "full", 0.6, 0.3, scarcity=0.1)
    table = generator_table(read_study(tmp_path))
    full = cell(table, "z_n accuracy", "KOA", "DisMix", "as usual")
    assert (full.text, full.paper) == ("30.0", "19.65")
    assert cell(table, "z_o error", "KOA", "one codebook", "as usual").paper == "1.72"
    assert cell(table, "z_o accuracy", "KOA", "DisMix", "10 % of the images").paper == ""
    # Training alone; measuring came on top.
    assert cell(table, "training", "KOA", "DisMix", "as usual").text == "6.7 min"


def test_generators_of_other_recipes_are_not_averaged(tmp_path):
    lab = Lab(tmp_path)
    for epochs, z_o, seeds in ((2, 0.2, (0,)), (400, 0.8, (0, 1))):
        for seed in seeds:
            # Another seed makes another generator, which is a repeat and no other setting.
            made = {"id": f"{epochs + seed:016x}", "recipe": {"epochs": epochs}, "seed": seed}
            lab.generator("koa", "full", z_o, 0.3, seed=seed,
                          content={"config": {"generator": made, "seed": seed}})  # fmt: skip
    table = generator_table(read_study(tmp_path))
    shown = {row[2].text: row[3].text for row in table.rows}
    assert shown == {"as usual": "80.0", "generator.recipe.epochs = 2": "20.0"}
    # What generators differ in is no matter of graders.
    lab.grader("koa", "cloc", "dismix", 0)
    assert [*read_study(tmp_path).groups] == [Key("koa", "cloc", "dismix")]


def test_generators_have_no_probability_of_mixing(tmp_path):
    lab = Lab(tmp_path)
    for mixer in ("mixup", "dismix"):
        lab.grader("koa", "cloc", mixer, 0, p=0.3, policies="interpolating")
    lab.generator("koa", "full", 0.64, 0.3)
    lab.overhead("koa", "cloc", "mixup", p=0.3)
    study = read_study(tmp_path)
    found = cell(generator_table(study), "z_n accuracy", "KOA", "DisMix", "as usual")
    assert (found.text, found.paper) == ("30.0", "19.65")
    # Timed runs do mix: the usual policies are theirs too, so their graders are found.
    (mixup,) = (o for o in overheads(study) if o.mixer == "mixup")
    assert mixup.where == ""
    assert mixup.accuracy is not None


def test_overhead_of_other_steps_is_not_averaged(tmp_path):
    lab = Lab(tmp_path)
    timed = ((0, 32, 3, 4.0), (1, 32, 3, 6.0), (0, 32, 9, 5.0), (0, 8, 3, 11.0))
    for seed, size, epochs, percent in timed:
        config = {"grader": {"batch_size": size, "epochs": epochs}, "seed": seed}
        content = {"config": config, "metrics": {"overhead_percent": percent}}
        lab.overhead("idrid", "gol", "mixup", seed=seed, content=content)
    found = {o.where: o.percent for o in overheads(read_study(tmp_path)) if o.mixer == "mixup"}
    # Epochs say nothing about a step.
    assert found == {"": 5.0, "grader.batch_size = 8": 11.0}


def test_overhead_of_other_probabilities_is_not_averaged(tmp_path):
    lab = Lab(tmp_path)
    for mixer in ("none", "mixup", "dismix"):
        lab.grader("idrid", "gol", mixer, 0)
    for p in (0.5, 1.0):
        # On few images: a step takes as long as on many.
        lab.overhead("idrid", "gol", "dismix", p=p, scarcity=0.1)
    study = read_study(tmp_path)
    usual = 100 * (38 / 30 - 1)
    found = {o.where: o.percent for o in overheads(study) if o.mixer == "dismix"}
    assert found == {"": pytest.approx(usual), "p = 1": pytest.approx(2 * usual)}
    table = overhead_table(study)
    assert [row[2].text for row in table.rows] == ["no mixing", "DisMix", "DisMix, p = 1"]
    # The chart has one point a mixer.
    assert [o.where for o in overhead_settings(study)[2]] == ["", ""]


def test_usual_columns_are_those_of_the_studys_own_condition(tmp_path):
    lab = Lab(tmp_path)
    for grader in ("ce", "cloc"):
        lab.grader("knee", grader, "mixup", 0, scarcity=0.1)
    lab.grader("knee", "ce", "mixup", 0, scarcity=0.1, twins="without")
    study = read_study(tmp_path)
    assert study.base == replace(MAIN, scarcity=0.1)
    odd = other_tables(study)[0]
    assert not cell(odd, "Mixup, as usual", "knee", "CE").missing


def test_mixers_of_other_settings_are_not_compared(tmp_path):
    """Epochs are the same for all mixers of a table, whoever was run with which."""
    lab = Lab(tmp_path)
    for seed in range(2):
        for mixer in ("none", "mixup", "cutmix"):
            config = {"grader": {"epochs": 200}, "mixer": {"name": mixer}}
            lab.grader("koa", "cloc", mixer, seed, content={"config": config})
        config = {"grader": {"epochs": 3, "mix_until": 0.75}, "mixer": {"name": "dismix"}}
        lab.grader("koa", "cloc", "dismix", seed, content={"config": config})
    study = read_study(lab.folder)
    mixers = {key.mixer for key in study.groups if key.condition == study.base}
    assert mixers == {"none", "mixup", "cutmix"}
    (odd,) = (key for key in study.groups if key.mixer == "dismix")
    assert dict(odd.condition.other) == {"grader.epochs": "3"}
    # When to mix is a mixer's own.
    for seed in range(2):
        config = {"grader": {"epochs": 200, "mix_until": 0.75}, "mixer": {"name": "dismix"}}
        lab.grader("koa", "cloc", "dismix", seed, content={"config": config, "status": "done"})
    study = read_study(lab.folder)
    assert "dismix" in {key.mixer for key in study.groups if key.condition == study.base}


def test_a_study_at_one_other_probability_has_a_main_table(tmp_path):
    lab = Lab(tmp_path)
    for mixer in ("none", "mixup", "cutmix"):
        lab.grader("koa", "cloc", mixer, 0, p=None if mixer == "none" else 0.7)
    study = read_study(lab.folder)
    assert study.base.p == 0.7
    assert {key.mixer for key in study.groups if key.condition == study.base} == {
        "none", "mixup", "cutmix",
    }  # fmt: skip
    table = tables(study, "main")["main-accuracy"]
    assert {"no mixing", "Mixup", "CutMix"} <= {*table.columns}
    assert cell(table, "no mixing", "KOA", "CLOC").text not in (NOT_RUN, "")


def test_dismix_with_chosen_policies_stands_in_the_main_table(lab):
    for mixer in ("none", "mixup"):
        lab.grader("koa", "cloc", mixer, 0)
    lab.grader("koa", "cloc", "dismix", 0, policies="interpolating")
    study = read_study(lab.folder)
    assert study.is_main
    assert study.scores("accuracy")["koa", "cloc"].keys() >= {"mixup", "dismix"}
    found = tables(study, "main")["main-accuracy"]
    assert "DisMix with interpolating policies" in found.caption
    ours = cell(found, "DisMix", "KOA", "CLOC")
    assert (ours.missing, ours.paper) == (False, "68.41 ± 0.36")
    won = dict(summarise(study).paragraphs)["Who wins"]
    assert won[0] == "DisMix has interpolating policies in all of its runs."
    # It is no study of policies, and does not count as one.
    assert any("preserving or interpolating" in line for line in not_run(study))
    # With several sets of policies the paper's, all four, is the usual one again.
    lab.grader("koa", "cloc", "dismix", 0)
    assert read_study(lab.folder).base == MAIN


def test_what_is_usual_of_the_data_is_asked_for_each_condition(tmp_path):
    lab = Lab(tmp_path)
    for seed, content in ((0, "a" * 16), (1, "a" * 16), (2, "a" * 16), (3, "b" * 16)):
        lab.grader("koa", "cloc", "mixup", seed, content={"config": {"data": {"content": content}}})
    for seed in range(5):
        config = {"config": {"data": {"content": "c" * 16}}}
        lab.grader("koa", "cloc", "mixup", seed, scarcity=0.1, content=config)
    study = read_study(tmp_path)
    found = {key.condition: len(runs) for key, runs in study.groups.items()}
    # The digest marks the one run on other data, not every run of the main table.
    assert found[MAIN] == 3
    assert found[replace(MAIN, scarcity=0.1)] == 5
    (odd,) = (c for c in found if c.other)
    assert (found[odd], odd.other) == (1, (("data.content", "b" * 16),))
