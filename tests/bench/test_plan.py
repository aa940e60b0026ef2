from pathlib import Path

import pytest

from dismix.bench.plan import PLANS, change_plan, list_plans, make_plan, plan_name, read_plan
from dismix.bench.plan_files import read_content
from dismix.errors import DisMixError

WANTED = {
    "main", "scarcity", "variability", "clean", "policies", "groups", "extreme", "ablations",
    "boundary", "overhead", "diffusemix", "smoke", "demo",
}  # fmt: skip


def test_all_studies_are_there():
    assert {*list_plans()} >= WANTED


@pytest.mark.parametrize("name", sorted(WANTED))
def test_every_plan_opens_with_what_it_reproduces_its_cost_and_the_numbers(name):
    plan = read_plan(name)
    assert plan.title
    text = (PLANS / f"{name}.yaml").read_text()
    head = text[: text.index("title:")]
    assert all(line.startswith("#") for line in head.splitlines())
    for word in ("Reproduces:", "Cost:", "Numbers to expect", "Command: dismix bench run"):
        assert word in head, word


def test_plans_survive_a_trip_through_json(tmp_path):
    import json

    file = tmp_path / "mine.json"
    for name in list_plans():
        file.write_text(json.dumps(read_plan(name).to_dict()))
        assert read_plan(file).to_dict() == read_plan(name).to_dict()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("factors: {mixr: [none]}", ("p.yaml", "mixr", "did you mean 'mixer'?")),
        ("factors: {mixer: [mixupp]}", ("p.yaml", "mixer", "'mixup'")),
        ("factors: {p: [1.5]}", ("p.yaml", "column 'p'", "1.5")),
        ("factors: {variability: [40]}", ("variability", "30")),
        ("kind: graders\nfactors: {seed: 0}", ("kind", "did you mean 'grader'?")),
        ("factor: {seed: [0]}", ("unknown field 'factor'", "did you mean 'factors'?")),
        ("factors: {}", ("no factors",)),
        ("factors: {seed: [0]}\nvalidation: {shar: 1}", ("'shar'", "'share'")),
        ("factors: {seed: [0]}\noverrides: [{settings: {}}]", ("when",)),
        ("factors: {seed: [0]}\nskip: [{see: 0}]", ("'see'", "'seed'")),
        ("factors: {seed: [0]\n", ("p.yaml, row 2", "no YAML")),
        ("kind: generator\nfactors: {mixer: [none]}", ("'mixer'",)),
        ("- 1", ("no plan",)),
        ("factors: {seed: 0}\nmixers: {mixup: {p: 0.9}}", ("mixers.mixup.p", "--set p=...")),
        ("factors: {seed: 0}\nmixers: {dismix: {policies: order_swap}}", ("--set policies=...",)),
        ("factors: {seed: 0}\ncost: {images_per_s: fast}", ("cost.images_per_s", "'fast'")),
        ("factors: {seed: 0}\ncost: {images_per_s: 0}", ("give a number above 0",)),
        ("factors: {seed: 0}\ncost: {mixers: 3}", ("cost.mixers", "no mapping")),
        ("factors: {seed: 0}\ncost: {mixers: {mixup: no}}", ("cost.mixers.mixup",)),
        ("factors: {seed: 0}\nphantoms: {knee: 3}", ("phantoms.knee", "no mapping")),
        ("factors: []", ("no factors",)),
        ("factors: {seed: 0}\nskip: [{}]", ("column 'skip'", "leaves out every run")),
        ("factors: {grader: null}", ("column 'grader'", "None is no name")),
        ("factors: {policies: [[]]}", ("column 'policies'", "'' is no name")),
        ("factors: {seed: 0}\npreset: []", ("column 'preset'", "[] is no name")),
        ("factors: {seed: 0}\ngenerator: {arch: }", ("generator.arch", "None is no name")),
        ("factors: {seed: 0}\nvotes: {mode: }", ("votes.mode", "None is no name")),
        ("factors: {seed: 0}\nsettings: {}\nsettings: {}", ("row 3", "'settings' is there twice")),
        ("factors: {seed: 0}\nsettings:\n  lr: 1\n  lr: 2\n", ("row 4", "'lr' is there twice")),
        ("factors: !!map x", ("row 1", "is no YAML (expected a mapping node")),
    ],
)
def test_mistakes_are_one_line_with_place_and_cure(tmp_path, text, parts):
    file = tmp_path / "p.yaml"
    file.write_text(text)
    with pytest.raises(DisMixError) as caught:
        read_plan(file)
    said = str(caught.value)
    assert "\n" not in said
    for part in parts:
        assert part in said


def test_unknown_plans_offer_near_ones():
    with pytest.raises(DisMixError, match="did you mean 'scarcity'"):
        read_plan("scarcty")


def test_changes_reach_factors_settings_sections_and_beat_overrides():
    plan = make_plan(
        {
            "factors": {"seed": [0]},
            "settings": {"epochs": 200},
            "overrides": [{"when": {"data": "koa"}, "settings": {"epochs": 9, "lr": 1e-3}}],
        },
        "p",
    )
    changed = change_plan(
        plan,
        {"seed": "3,4", "epochs": "2", "generator.epochs": "5", "generator.arch": "tiny",
         "mixers.dismix.pool": "8", "validation.own": "merge", "mixer": "none,mixup"},
    )  # fmt: skip
    assert changed.factors == ({"seed": (3, 4), "mixer": ("none", "mixup")},)
    assert changed.settings == {"epochs": 2}
    assert changed.overrides[0]["settings"] == {"lr": 1e-3}
    assert changed.generator == {"arch": "tiny", "settings": {"epochs": 5}}
    assert changed.mixers == {"dismix": {"pool": 8}}
    with pytest.raises(DisMixError, match=r"unknown setting 'nothing\.there'"):
        change_plan(plan, {"nothing.there": "1"})


def test_yaml_may_be_missing(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(DisMixError, match="JSON"):
        read_plan("main")
    file = Path(tmp_path / "p.json")
    file.write_text('{"factors": {"seed": [0]}}')
    assert read_plan(file).factors == ({"seed": (0,)},)


def test_a_plan_of_another_encoding_is_one_line(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_bytes("# ok\ntitle: Größe\nfactors: {seed: [0]}\n".encode("latin-1"))
    with pytest.raises(DisMixError, match=r"p\.yaml, row 2: is no UTF-8 text; save it as UTF-8"):
        read_plan(file)


def test_fields_left_empty_are_empty_sections(tmp_path):
    file = tmp_path / "p.yaml"
    text = "factors: {seed: [0]}\nmixers:\n  dismix:\ngenerator:\n  settings:\n"
    file.write_text(text + "overrides: [{when: {data: a}, generator: {settings: }}]\n")
    plan = read_plan(file)
    assert plan.mixers == {"dismix": {}}
    assert plan.generator == {"settings": {}}
    changed = change_plan(plan, {"mixers.dismix.pool": "8", "generator.epochs": "5"})
    assert changed.mixers == {"dismix": {"pool": 8}}
    assert changed.generator == {"settings": {"epochs": 5}}


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("generator.seed", "x"), ("generator.seed", "null"), ("votes.annotators", "five"),
        ("votes.annotators", "0"), ("scarcity.at_least", "x"), ("validation.share", "much"),
        ("validation.share", "nan"), ("votes.p_split", "2"), ("seed", "inf"), ("seed", "nan"),
        ("p", "inf"),
    ],
)  # fmt: skip
def test_values_that_are_no_numbers_are_one_line(change, value):
    plan = make_plan({"factors": {"seed": [0]}}, "p")
    with pytest.raises(DisMixError) as caught:
        change_plan(plan, {change: value})
    said = str(caught.value)
    assert "\n" not in said
    assert f"column '{change}'" in said
    assert "is not allowed; give " in said


@pytest.mark.parametrize("name", ["mine.YAML", "mine"])
def test_reports_call_a_plan_as_runs_do(tmp_path, name):
    file = tmp_path / name
    file.write_text("factors: {seed: 0}")
    assert plan_name(file) == read_plan(file).name == "mine"


def test_a_json_plan_has_each_name_once(tmp_path):
    file = tmp_path / "p.json"
    file.write_text('{"factors": {"seed": 0, "seed": [1, 2]}}')
    with pytest.raises(DisMixError, match=r"p\.json: 'seed' is there twice; join them"):
        read_plan(file)


def test_what_an_anchor_brings_in_may_be_said_anew(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(
        "settings: &usual {lr: 1, size: 64}\n"
        "mixers:\n  dismix: &other {<<: *usual, lr: 2}\n"
        "validation: {<<: *other}\n"
    )
    assert read_content(file)["validation"] == {"lr": 2, "size": 64}


def test_a_value_has_one_spelling():
    # Ids of runs and names of tables are made of it.
    content = {"factors": {"variability": [30.0, "own"], "fold": ["02/5", "none"], "seed": [1.0]}}
    found = make_plan(content, "p").factors[0]
    assert repr(found) == repr({"variability": (30, "own"), "fold": ("2/5", "none"), "seed": (1,)})
    assert make_plan({**content, "generator": {"arch": 5}}, "p").generator == {"arch": "5"}


def test_numbers_of_sections_keep_their_kind():
    # Ids of runs are made of them.
    content = {"factors": {"seed": [0]}, "votes": {"p_split": 1, "annotators": 3}}
    assert repr(dict(make_plan(content, "p").votes)) == "{'p_split': 1, 'annotators': 3}"
