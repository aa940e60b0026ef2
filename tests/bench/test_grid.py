from dismix.bench.grid import cells, chosen_data, factors, matches, sections
from dismix.bench.plan import change_plan, make_plan, read_plan
from dismix.bench.plan_checks import DEFAULTS


def test_counts_of_the_papers_studies():
    expected = {"main": 144, "boundary": 24, "scarcity": 30, "variability": 27, "clean": 24,
                "policies": 24, "groups": 12, "extreme": 24, "ablations": 4,
                "overhead": 8}  # fmt: skip
    assert {name: len(cells(read_plan(name), ["a"])) for name in expected} == expected


def test_seeds_are_outermost_over_data_and_blocks():
    plan = make_plan({"factors": [{"mixer": ["none"], "seed": [1, 0]}, {"seed": [0]}]}, "p")
    found = cells(plan, ["a", "b"])
    assert [c["seed"] for c in found] == [0, 0, 0, 0, 1, 1]
    assert [c["data"] for c in found] == ["a", "b", "a", "b", "a", "b"]


def test_skipped_cells_are_left_out():
    plan = make_plan(
        {"factors": {"mixer": ["none", "mixup"], "p": [0.3, 0.5], "seed": [0]},
         "skip": [{"mixer": "none", "p": [0.3]}]}, "p")  # fmt: skip
    assert [(c["mixer"], c["p"]) for c in cells(plan, ["a"])] == [
        ("none", 0.5), ("mixup", 0.3), ("mixup", 0.5)
    ]  # fmt: skip


def test_data_sets_are_a_factor_of_each_block():
    plan = make_plan({"factors": [{"data": "KOA", "mixer": ["mixup"]}, {"seed": [0]}]}, "p")
    found = cells(plan, ["idrid", "koa"])
    assert [(c["data"], c["mixer"]) for c in found] == [
        ("koa", "mixup"), ("idrid", "none"), ("koa", "none")
    ]  # fmt: skip
    assert chosen_data(plan) is None
    assert chosen_data(change_plan(plan, {"data": "koa, 1.50"})) == ("koa", "1.50")


def test_overrides_hold_where_they_say_and_merge_deeply():
    plan = make_plan(
        {"factors": {"grader": ["gol", "cloc"]}, "settings": {"epochs": 3, "lr": 1e-3},
         "generator": {"arch": "light", "settings": {"epochs": 7}},
         "overrides": [
            {"when": {"data": "KOA", "grader": ["cloc"]}, "settings": {"lr": 1e-4},
             "generator": {"settings": {"lr": 2}}}]}, "p")  # fmt: skip
    cell = {"data": "koa", **DEFAULTS, "grader": "cloc"}
    found = sections(plan, cell)
    assert found["settings"] == {"epochs": 3, "lr": 1e-4}
    assert found["generator"] == {"arch": "light", "settings": {"epochs": 7, "lr": 2}}
    assert sections(plan, {**cell, "grader": "gol"})["settings"]["lr"] == 1e-3
    assert plan.generator["settings"] == {"epochs": 7}
    assert not matches(cell, {"data": ("idrid",)})


def test_factors_without_a_say_are_none():
    cell = {"data": "a", **DEFAULTS, "mixer": "mixup", "p": 0.3, "policies": "order_swap"}
    found = factors("grader", cell, 30)
    assert (found["p"], found["policies"], found["ablation"]) == (0.3, None, None)
    clean = factors("grader", {**cell, "labels": "clean"}, None)
    assert (clean["variability"], clean["annotators"]) == (None, "none")
    generator = factors("generator", cell, 70)
    assert (generator["grader"], generator["ablation"], generator["annotators"]) == (
        None, "full", "90/60",
    )  # fmt: skip
